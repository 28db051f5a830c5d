"""Programs written for CUDA under `fulldeck run`, on simulated cards and on the CPU: docs/python.md."""
import json
import os
import re
import subprocess
import sys

import pytest

from cluster.launch import has_module, script
from launching import BUILD, TOP
from python_ranks import PACKAGE, clean_environment, run_python

with_torch = pytest.mark.skipif(not has_module("torch") or not os.path.exists(os.path.join(BUILD, "lib", "libfulldeck_sim.so")),
                                reason="this Python has no torch, or the build no libfulldeck_sim.so")
PATIENCE = 200


def losses(done):
    return re.findall(r"^(?:\[0\] )?loss (.*)$", done.out, re.MULTILINE)


# ---- the table


@with_torch
def test_every_row_of_the_table_goes_to_the_card(workspace):
    workspace.simulate("gcu:8")
    done = workspace.run("--nproc-per-node", 7, script("cuda_rows.py"), seconds=PATIENCE)
    assert done.code == 0, done.err
    results = json.loads(done.out[done.out.index("{"):])
    assert len(results) > 200
    wrong = {row: said for row, said in results.items() if said != "ok"}
    assert not wrong, "\n".join("{}: {}".format(row, said) for row, said in wrong.items())
    with open(os.path.join(TOP, "docs", "python.md")) as text:
        reported = text.read()
    assert not [row for row in results if row.startswith("torch.") and "`{}`".format(row.rsplit(".", 1)[1]) not in reported]
    assert "adapted torch" in workspace.log(6) and "goes to this rank's gcu:6" in workspace.log(6)


# ---- a script like PyTorch's tutorial


@with_torch
def test_the_tutorials_script_trains_on_cards_to_the_loss_of_the_processors(workspace):
    on_cpu = workspace.run("--nproc-per-node", 2, script("cuda_tutorial.py"), "--on-cpu", seconds=PATIENCE)
    assert on_cpu.code == 0, on_cpu.err
    workspace.simulate("gcu:8")
    done = workspace.run("--nproc-per-node", 2, script("cuda_tutorial.py"), seconds=PATIENCE)
    assert done.code == 0, done.err
    assert len(losses(done)) == 8
    for card, cpu in zip(losses(done), losses(on_cpu)):
        assert abs(float(card) - float(cpu)) < 2e-5, (losses(done), losses(on_cpu))
    for rank in (0, 1):
        assert "rank {0} trained on gcu:{0}".format(rank) in done.out
        assert re.search(r"fulldeck: rank {0}/2, backend fulldeck \(the program asks for nccl, and nccl is for NVIDIA cards\), "
                         r"device gcu:{0}, card serial SIM-gcu-000{0}, host ".format(rank), done.err), done.err


@with_torch
def test_without_adapters_and_without_cards_the_same_script_says_why_it_cannot(workspace):
    done = workspace.run("--nproc-per-node", 1, script("cuda_tutorial.py"), seconds=PATIENCE)
    assert done.code == 1
    assert "fulldeck: the program asks for a CUDA device, and this rank runs on the processors" in done.err, done.err
    workspace.simulate("gcu:8")
    done = workspace.run("--nproc-per-node", 1, "--no-adapt", script("cuda_tutorial.py"), seconds=PATIENCE)
    assert done.code == 1 and "module 'torch._C' has no attribute '_cuda_setDevice'" in done.err, done.err
    assert "adapted" not in done.err


# ---- torch.distributed, DistributedDataParallel


@with_torch
def test_groups_placement_meshes_and_norms_of_two_ranks(workspace):
    workspace.simulate("gcu:8")
    done = workspace.run("--nproc-per-node", 2, "--timeout", 100, script("adapted_ranks.py"), seconds=PATIENCE)
    assert done.code == 0, done.err
    for rank in (0, 1):
        for line in ("one group", "groups and barriers", "placement", "FSDP2", "SyncBatchNorm", "torch_gcu"):
            assert "[{}] {}\n".format(rank, line) in done.out, (line, done.err)
        assert "timeout 100 s" in workspace.log(rank)
        assert "init_process_group was called again: the group of 2 ranks that is there stays" in workspace.log(rank)
        assert "8 of 8 parameters are not on gcu:{0}, the device of rank {0}. It was moved to gcu:{0} (--place).".format(rank) in workspace.log(rank)


@with_torch
def test_ranks_on_the_processors_of_a_machine_with_cards_and_the_processes_that_they_start(workspace):
    workspace.simulate("gcu:8")
    done = workspace.run("--nproc-per-node", 2, "--devices", "cpu", script("processors.py"), seconds=PATIENCE)
    assert done.code == 0, done.err
    for rank in (0, 1):
        for line in ("barriers", "SyncBatchNorm"):
            assert "[{}] {}\n".format(rank, line) in done.out, (line, done.err)
        assert ("[{}] fulldeck: the program starts 4 processes of its own (torch.multiprocessing.spawn), and the launcher started 2 ranks: that "
                "would be 4 in each.".format(rank)) in done.out, done.out
        assert "barrier: device_ids left out: the group has no backend for a card of this rank" in workspace.log(rank)
        assert "DistributedDataParallel: device_ids=[{}] left out: the module is on the CPU".format(rank) in workspace.log(rank)
    assert "[0] a spawned child\n" in done.out, done.err


TRACED = """
import os, sys, torch, torch.distributed as dist
if os.environ["RANK"] == "1":
    sys.exit()
os.environ["WORLD_SIZE"] = "1"
try:
    dist.init_process_group("gloo")
except RuntimeError as error:
    print(error)
os.environ["WORLD_SIZE"] = "2"
store = dist.HashStore()
dist.distributed_c10d.started_ranks = None
from fulldeck.adapters import distributed
distributed.started_ranks = lambda: 1
dist.init_process_group("nccl", store=store, rank=0, world_size=1)
torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 3).cuda())
torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 3), device_ids=[0])
"""


@with_torch
def test_the_trace_says_where_each_model_is_and_which_rank_came_without_one(workspace):
    workspace.simulate("gcu:8")
    done = workspace.run("--nproc-per-node", 2, "--trace-ddp", "--place", workspace.write("traced.py", TRACED), seconds=PATIENCE)
    assert done.code == 0, done.err
    assert "fulldeck: the launcher started 2 ranks, and the program asks for a group of 1. Let" in done.out, done.out
    first = workspace.log(0)
    assert "fulldeck: placement of Linear on rank 0 of 2 (local rank 0):\nfulldeck:   wanted            gcu:0\n" in first, first
    assert "verdict           case A: the device is right (gcu:0)." in first
    assert "verdict           case B: the module is still on the CPU, and this rank trains on gcu:0. Cure: " in first
    assert "It was moved to gcu:0 (--place)" in first
    assert "ended without wrapping" not in first
    assert "fulldeck: rank 1: ended without wrapping a model in DistributedDataParallel; its last phase: torch was imported\n" in workspace.log(1)


BROKEN = """
import torch
try:
    torch.ones(1).cuda()
except RuntimeError as error:
    print(error)
try:
    torch.distributed.init_process_group()
except RuntimeError as error:
    print(error)
"""


@with_torch
def test_a_card_that_computes_wrongly_or_not_at_all_is_refused_at_its_first_use(workspace):
    workspace.simulate("gcu:2,lying=0,broken=1")
    done = workspace.run("--nproc-per-node", 2, "--idle-card", "off", workspace.write("broken.py", BROKEN), seconds=PATIENCE)
    assert done.out.count("[0] fulldeck: the card gcu:0 computes wrongly: ") == 2, done.out
    assert done.out.count("[1] fulldeck: the card gcu:1 cannot compute a small test: gcu:1: the simulated card is broken") == 2, done.out


# ---- ignored settings are reported


@with_torch
def test_what_the_adapters_change_without_effect_is_honored_or_reported_once(workspace):
    workspace.simulate("gcu:1")
    done = workspace.run("--nproc-per-node", 1, script("adapter_reports.py"), seconds=PATIENCE)
    assert done.code == 0, done.err
    assert done.out.splitlines() == ["classes", "settings", "groups", "recorder", "fingerprints"], done
    log = workspace.log(0)
    for line in ("torch.backends.cudnn.benchmark=True has no effect on gcu", "torch.backends.cuda.matmul.allow_tf32=True has no effect on gcu",
                 "torch.backends.cudnn.enabled=False has no effect", "torch.backends.cudnn.flags(benchmark=False, deterministic=True) has no effect",
                 "torch.set_float32_matmul_precision('high') has no effect", "torch.backends.cuda.enable_flash_sdp(False) has no effect",
                 "torch.backends.cuda.enable_mem_efficient_sdp(False) has no effect", "torch.backends.cuda.matmul.allow_fp16_accumulation=True has no",
                 "new_group: backend fulldeck in place of nccl: ", "init_process_group was called again with timeout=0:01:11",
                 "is no longer recorded", "ZeroDivisionError", "note: J1 (all ranks train on the same batches) is not checked"):
        assert log.count(line) == 1, (line, log)
    for silent in ("cudnn.deterministic", "'highest'", "enable_flash_sdp(True) has", "enable_math_sdp"):
        assert silent not in log, (silent, log)


LATE = """
import os, sys, types
import torch
from fulldeck import adapters
adapters.start()
torch.manual_seed(1)
torch.cuda.manual_seed_all(17)
torch.cuda.manual_seed_all(18)
import torch_gcu
assert torch.gcu.seeds == [18], torch.gcu.seeds
torch.cuda.manual_seed_all(19)
assert torch.gcu.seeds == [18, 19]
print("seeded")
"""
VENDOR = """
import types, torch
torch.utils.rename_privateuse1_backend("gcu")
cards = types.ModuleType("torch.gcu")
cards.seeds = []
cards.is_available, cards.device_count, cards.manual_seed_all = lambda: True, lambda: 1, cards.seeds.append
torch._register_device_module("gcu", cards)
"""


@with_torch
def test_a_seed_that_comes_before_the_vendors_module_is_applied_when_that_is_imported(tmp_path):
    (tmp_path / "torch_gcu.py").write_text(VENDOR)
    done = run_python(LATE, folder=tmp_path, FULLDECK_DEVICE="gcu:0", PYTHONPATH=os.pathsep.join((PACKAGE, str(tmp_path))),
                      TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.code == 0 and done.out == "seeded\n", done


OTHER_TORCH = """
import fulldeck._build
fulldeck._build.TORCH = "2.5.1"  # as a wheel that was built for another torch
import torch
assert not torch.cuda.is_available()
torch.ones(1).cuda()
"""


@with_torch
def test_a_build_for_another_torch_is_named_and_no_vendors_module_blamed(workspace):
    workspace.simulate("gcu:1")
    events = os.path.join(workspace.folder, "events")
    done = workspace.run("--nproc-per-node", 1, workspace.write("other.py", OTHER_TORCH), seconds=PATIENCE, extra={"FULLDECK_EVENTS": events})
    assert done.code == 1
    ending = [line for line in workspace.log(0).splitlines() if line.startswith("RuntimeError: ")][-1]
    assert "built for torch 2.5.1" in ending and "-m pip install" in ending and "vendor" not in ending and "torch_gcu" not in ending, ending
    assert "known failure E2" in done.err and "known failure B2" not in done.err, done


# ---- the import machinery


@with_torch
def test_torch_is_adapted_however_it_is_imported_and_costs_little(workspace):
    workspace.simulate("gcu:8")
    # As after the first run of an installation: Python keeps its compiled files.
    subprocess.run([sys.executable, "-m", "compileall", "-q", os.path.join(PACKAGE, "fulldeck", "adapters")], check=True)
    done = workspace.run("--nproc-per-node", 1, script("late_torch.py"), seconds=PATIENCE)
    assert done.code == 0, done.err
    assert "in a forked child\nwith patches of its own\n" in done.out

    def costs(said):
        calls, each, step = map(float, re.search(r"overhead (\d+) calls (-?\d+) ns step (\d+) us", said).groups())
        return calls * each / 1e3 / step, float(re.search(r"spent ([\d.]+) ms", said).group(1))

    # Other load only adds to the cost: the minimum of a few runs is the real cost.
    share, spent = costs(done.out)
    for _ in range(4):
        if share < 0.005 and spent < 20:
            break
        again = costs(workspace.run("--nproc-per-node", 1, script("late_torch.py"), seconds=PATIENCE).out)
        share, spent = min(share, again[0]), min(spent, again[1])
    assert share < 0.005 and spent < 20, (share, spent, done.out)


MACHINERY = """
import importlib, importlib.util, os, runpy, sys, types
sys.path.insert(0, os.getcwd())
from fulldeck import adapters

reported = []
adapters.say = reported.append
adapters.start()
seen = []
for name in ("plain", "parent.child", "half", "absent", "spaces", "failing"):
    adapters.on_import(name, lambda module: seen.append((module.__name__, getattr(module, "VALUE", None))))
adapters.on_import("failing", lambda module: 1 / 0)
adapters.on_import("failing", lambda module: seen.append("after it"))

import plain
assert seen == [("plain", 1)] and plain.__spec__.loader is plain.__loader__ and type(plain.__loader__).__name__ == "SourceFileLoader"
import plain
importlib.reload(plain)
assert seen == [("plain", 1)], "once"
adapters.on_import("plain", lambda module: seen.append("at once"))
assert seen.pop() == "at once"
import parent
assert len(seen) == 1
from parent import child
assert seen[1] == ("parent.child", 2)
try:
    import half
except ImportError as error:
    assert "no_such_part" in str(error) and "half" not in sys.modules and len(seen) == 2, error
try:
    import absent
except ModuleNotFoundError as error:
    assert error.name == "absent"
import spaces
assert importlib.util.find_spec("spaces") is not None and len(seen) == 2
import failing
assert seen[2:] == [("failing", None), "after it"] and reported == ["warning: failing is not adapted: ZeroDivisionError: division by zero"], reported
runpy.run_module("parent.main")
assert importlib.util.find_spec("absent") is None

# A finder that finds itself again, and a program that empties the list of finders.
class Asks:
    def find_spec(self, name, path=None, target=None):
        return importlib.util.find_spec(name) if name == "asked" else None
adapters.on_import("asked", lambda module: seen.append("asked"))
sys.meta_path.append(Asks())
import asked
assert seen[-1] == "asked"
sys.meta_path.remove(adapters.FINDER)
import later

# What an adapter that does not know a version says.
adapters.TABLE["plain"] = ["strange"]
strange = types.ModuleType("fulldeck.adapters.strange")
def adapt(module):
    raise adapters.NotKnown("plain 1.0 is not known")
strange.adapt = adapt
sys.modules[strange.__name__] = strange
adapters.adapt(plain)
assert reported[-1] == "warning: plain is left as it is (strange): plain 1.0 is not known", reported
strange.adapt = lambda module: "one thing"
adapters.adapt(plain)
assert reported[-1] == "adapted plain of unknown version: one thing", reported
adapters.OLDEST["plain"] = (2, 0)
plain.__version__ = "1.10.2+vendor"
adapters.adapt(plain)
assert reported[-1] == "warning: plain 1.10.2+vendor is left as it is: versions before 2.0 are not known", reported
plain.__version__ = "2.13.0+cpu"
adapters.adapt(plain)
assert reported[-1] == "adapted plain 2.13.0+cpu: one thing", reported
assert "torch" not in sys.modules
print("ok")
"""


def test_what_is_imported_is_reported_once_and_nothing_else_changes(tmp_path):
    for name, text in (("plain.py", "VALUE = 1"), ("half.py", "import no_such_part"), ("failing.py", ""), ("asked.py", ""), ("later.py", ""),
                       ("parent/__init__.py", ""), ("parent/child.py", "VALUE = 2"), ("parent/main.py", "from parent import child"),
                       ("spaces/inside.py", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    done = run_python(MACHINERY, folder=tmp_path)
    assert (done.code, done.out, done.err) == (0, "ok\n", ""), done


def test_a_rank_without_torch_pays_next_to_nothing(workspace):
    program = workspace.write("nothing.py", "import sys, time\nprint('fulldeck.adapters' in sys.modules, sys.meta_path[0].__class__.__name__)\n")
    done = workspace.run("--nproc-per-node", 1, program)
    assert done.out == "False ImportWatcher\n", done
    done = workspace.run("--nproc-per-node", 1, "--no-adapt", program)
    assert done.out.startswith("False ") and "ImportWatcher" not in done.out, done
    timed = ("import sys, time\nbegun = time.process_time()\nsys.path.insert(0, sys.argv[1])\nimport adapters\nadapters.start()\n"
             "print(time.process_time() - begun)\n")
    spent = min(float(subprocess.run([sys.executable, "-c", timed, os.path.join(BUILD, "lib", "fulldeck_hook")], env=clean_environment(),
                                     stdout=subprocess.PIPE, check=True).stdout) for _ in range(5))
    assert spent < 0.005, spent


def test_a_torch_that_is_half_installed_gives_its_own_error(workspace):
    os.makedirs(os.path.join(workspace.folder, "broken", "torch"))
    workspace.write("broken/torch/__init__.py", "from torch._no_such_part import anything\n")
    done = workspace.run("--nproc-per-node", 1, workspace.write("uses.py", "import torch\n"), extra={"PYTHONPATH": os.path.join(workspace.folder, "broken")})
    assert done.code == 1 and "ModuleNotFoundError: No module named 'torch._no_such_part'" in done.err
    assert "fulldeck: warning" not in done.err, done.err
