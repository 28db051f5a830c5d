"""The simulated cards as a device of torch (libfulldeck_sim.so), in Python: what tests/scripts/simulator_checks.py
checks in one process, ranks, faults, and the cases without cards."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from cluster import launch
from cluster.launch import script
from launching import BUILD, FULLDECK, HERE, PATIENCE, wait_until
from python_ranks import PACKAGE, clean_environment, run_python, run_ranks

LIBRARY = os.path.join(BUILD, "lib", "libfulldeck_sim.so")
pytestmark = pytest.mark.skipif(not launch.has_module("torch") or not os.path.exists(LIBRARY),
                                reason="this Python has no torch, or the build no libfulldeck_sim.so")

with open(os.path.join(HERE, "scripts", "simulator_checks.py")) as text:
    CHECKS = re.findall(r"^def (check_\w+)", text.read(), re.MULTILINE)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The result of each check; all of them run in one process, which spends most of its time importing torch."""
    folder = tmp_path_factory.mktemp("simulated")
    done = subprocess.run([sys.executable, os.path.join(HERE, "scripts", "simulator_checks.py")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          env=clean_environment(FULLDECK_SIMULATE="gcu:8", FULLDECK_SIMULATE_DIR=str(folder), PYTHONPATH=os.pathsep.join((PACKAGE, HERE))), stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("check", CHECKS)
def test_of_one_process(results, check):
    assert results[check] == "ok", results[check]


def simulated(program, folder, cards="gcu:8", **variables):
    return run_python(program, FULLDECK_SIMULATE=cards, FULLDECK_SIMULATE_DIR=str(folder), **variables)


def test_two_ranks_with_sync_batch_norm_ddp_and_fsdp2(tmp_path):
    ended = run_ranks(2, [sys.executable, script("simulated_ranks.py")], tmp_path, FULLDECK_SIMULATE="gcu:8",
                      FULLDECK_SIMULATE_DIR=str(tmp_path), seconds=400)
    for rank in ended:
        assert rank.code == 0 and rank.out.split("\n")[:3] == ["SyncBatchNorm is right", "DDP is right", "FSDP2 is right"], rank


# Each fault as a program sees it; faults are set by the variable, or at runtime.
FAULTS = """
import time, torch
from fulldeck import simulator

def said(action):
    try:
        action()
    except RuntimeError as error:
        return "{}: {}".format(type(error).__name__, error)
    return "nothing"

# memory=64MiB: what is too much fails, what fits does not, and what was given back can be had again.
kept = torch.empty(40 << 20, dtype=torch.uint8, device="gcu:0")
print(said(lambda: torch.empty(30 << 20, dtype=torch.uint8, device="gcu:0")))
print(said(lambda: kept.float()))
assert torch.gcu.memory_allocated(0) == 40 << 20
other = torch.empty(60 << 20, dtype=torch.uint8, device="gcu:1")
del kept, other
assert isinstance(torch.ones(60 << 18, device="gcu:0"), torch.Tensor)

print(said(lambda: torch.ones(3, device="gcu:2")))                                     # broken=2
big = torch.ones(300, 300)
right = big @ big
wrong = (big.to("gcu:3") @ big.to("gcu:3")).cpu()                                        # lying=3
assert (wrong != right).sum() == 1 and not torch.allclose(wrong, right) and torch.equal(big.to("gcu:3").cpu(), big)
print(said(lambda: torch.ones(3, device="gcu:4")))                                     # dropped=4

x = torch.ones(200, 200, device="gcu:5")
def seconds():
    begun = time.monotonic()
    for _ in range(30):
        x @ x
    return time.monotonic() - begun
seconds()
fast = min(seconds() for _ in range(10))
simulator.set_faults(5, "slow", slow_factor=100.0)
slow = seconds()
simulator.set_faults(5)
assert slow > 4 * fast, (slow, fast)

y = torch.ones(3, device="gcu:6")
simulator.set_faults(6, "dropped")
print(said(lambda: y + y), said(lambda: y.cpu()), said(lambda: torch.empty(3, device="gcu:6")), said(lambda: torch.gcu.synchronize(6)))
simulator.set_faults(6)
assert (y + y).tolist() == [2, 2, 2]
"""


def test_each_fault_of_a_card(tmp_path):
    done = simulated(FAULTS, tmp_path, "gcu:8,memory=64MiB,broken=2,lying=3,dropped=4")
    assert done.code == 0, done
    too_much, converted, broken, dropped, lost = done.out.splitlines()
    assert too_much == ("OutOfMemoryError: GCU out of memory. Tried to allocate 30.00 MiB. gcu:0 has a total capacity of 64.00 MiB of which "
                        "24.00 MiB is free. Including non-PyTorch memory, this process has 40.00 MiB memory in use; 40.00 MiB of "
                        "64.00 MiB are held by all processes together."), too_much
    assert converted.startswith("OutOfMemoryError: GCU out of memory. Tried to allocate 160.00 MiB."), converted
    assert broken == "RuntimeError: gcu:2: the simulated card is broken and refuses to compute.", broken
    assert dropped.startswith("RuntimeError: gcu:4: device lost: "), dropped
    assert lost.count("gcu:6: device lost: ") == 4, lost


HUNG = """
import signal, sys, torch
x = torch.ones(3, device="gcu:1")
print("ready", flush=True)
sys.stdin.readline()
print((x + x).tolist(), flush=True)
"""


def set_faults(folder, card, *names):
    done = run_python("import sys\nfrom fulldeck import simulator\nsimulator.set_faults(int(sys.argv[1]), *sys.argv[2:])", str(card), *names,
                      FULLDECK_SIMULATE="gcu:2", FULLDECK_SIMULATE_DIR=str(folder))
    assert done.code == 0, done


@pytest.mark.parametrize("ending", ["healed", "killed"])
def test_a_hung_card_holds_its_program_until_it_is_healed_or_killed(tmp_path, ending):
    program = subprocess.Popen([sys.executable, "-c", HUNG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True,
                               env=clean_environment(FULLDECK_SIMULATE="gcu:2", FULLDECK_SIMULATE_DIR=str(tmp_path)))
    try:
        assert program.stdout.readline() == "ready\n"
        set_faults(tmp_path, 1, "hung")
        program.stdin.write("go\n")
        program.stdin.flush()

        def busy():
            return cards(tmp_path, "gcu:2")[1]["utilisation_percent"] > 90

        wait_until(busy, "the hung card to be seen busy")
        assert program.poll() is None
        if ending == "killed":
            program.send_signal(signal.SIGTERM)
            assert program.wait(30 * PATIENCE) == -signal.SIGTERM
        else:
            set_faults(tmp_path, 1)
            assert program.stdout.readline() == "[2.0, 2.0, 2.0]\n" and program.wait(30 * PATIENCE) == 0
    finally:
        program.kill()
        program.wait()
        program.stdin.close()
        program.stdout.close()


def cards(folder, simulate):
    done = subprocess.run([FULLDECK, "devices", "--json"], stdout=subprocess.PIPE, timeout=60,
                          env=clean_environment(FULLDECK_SIMULATE=simulate, FULLDECK_SIMULATE_DIR=str(folder)))
    assert done.returncode == 0
    return json.loads(done.stdout.decode())["cards"]


BUSY = """
import sys, torch
torch.set_num_threads(1)
kept = torch.empty(10 << 20, dtype=torch.uint8, device="gcu:1")
x = torch.ones(300, 300, device="gcu:1")
print("running", flush=True)
while not sys.stdin.isatty():
    x @ x
"""


def test_bytes_and_busy_time_are_what_fulldeck_devices_shows(tmp_path):
    program = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               env=clean_environment(FULLDECK_SIMULATE="gcu:4", FULLDECK_SIMULATE_DIR=str(tmp_path)))
    try:
        assert program.stdout.readline() == b"running\n"

        def seen():
            card = cards(tmp_path, "gcu:4")[1]
            return card["utilisation_percent"] >= 30 and card

        card = wait_until(seen, "the card to be seen busy", 60)
        assert (10 << 20) + 360000 <= card["memory_used_bytes"] <= (10 << 20) + 3 * 360000
        assert [process["pid"] for process in card["processes"]] == [program.pid]
        idle = cards(tmp_path, "gcu:4")[0]
        assert idle["utilisation_percent"] == 0 and idle["memory_used_bytes"] == 0 and idle["processes"] == []
    finally:
        program.kill()
        program.wait()
        program.stdout.close()
    assert cards(tmp_path, "gcu:4")[1]["memory_used_bytes"] == 0


ABSENT = """
import sys, torch
from fulldeck import simulator
assert torch.ones(2).sum().item() == 2
print(simulator.failure)
print(torch._C._get_privateuse1_backend_name(), hasattr(torch, "gcu") and torch.gcu.is_available())
try:
    torch.gcu.memory_allocated()
except (simulator.NotThere, AttributeError) as error:
    print(error)
"""


def test_it_stays_away_from_a_vendors_module(tmp_path):
    (tmp_path / "torch_gcu.py").write_text("raise RuntimeError('nobody was to import this')\n")
    done = simulated(ABSENT, tmp_path, PYTHONPATH=os.pathsep.join([PACKAGE, str(tmp_path)]))
    assert done.code == 0 and done.err == "", done
    assert "the vendor's module torch_gcu is installed" in done.out and "privateuseone False" in done.out, done


def test_it_stays_away_from_a_device_that_is_taken(tmp_path):
    done = simulated("import torch\ntorch.utils.rename_privateuse1_backend('npu')\n"
                     "from fulldeck import simulator\n"
                     "try:\n    simulator.load()\nexcept simulator.NotThere as error:\n    print(error)\n"
                     "print(torch.device('npu').type)", tmp_path, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.code == 0 and 'the name "npu" already' in done.out and done.out.endswith("\nnpu\n"), done


@pytest.mark.parametrize("cards, words", [("cuda:8", 'torch has a device "cuda" of its own'), ("gcu:zero", "gcu:zero")])
def test_kinds_that_torch_cannot_be_given(tmp_path, cards, words):
    done = simulated(ABSENT, tmp_path, cards)
    assert done.code == 0 and words in done.out.splitlines()[0] and "privateuseone False" in done.out, done
    assert done.err.startswith("fulldeck: warning: there are no simulated cards in this process: ") and done.err.count("\n") == 1, done


@pytest.mark.parametrize("damage", ["missing", "cut short", "of another torch"])
def test_import_torch_survives_a_library_that_cannot_be_used(tmp_path, damage):
    """A copy of the package, whose library is then damaged."""
    package = tmp_path / "lib" / "python"
    shutil.copytree(PACKAGE, str(package))
    library = tmp_path / "lib" / "libfulldeck_sim.so"
    shutil.copy(LIBRARY, str(library))
    if damage == "missing":
        library.unlink()
    elif damage == "cut short":
        with open(str(library), "r+b") as file:
            file.truncate(os.path.getsize(LIBRARY) // 2)
    else:
        (package / "fulldeck" / "_build.py").write_text("TORCH = '2.1.0'\nPYTHON = {!r}\nCXX11_ABI = True\n".format(
            sys.implementation.cache_tag))
    done = simulated(ABSENT, tmp_path, PYTHONPATH=str(package))
    assert done.code == 0 and "privateuseone False" in done.out, done
    assert done.err.startswith("fulldeck: warning: there are no simulated cards in this process: "), done
    assert "torch.gcu.memory_allocated: there are no simulated cards in this process: " in done.out.splitlines()[-1], done


def test_nothing_is_loaded_where_nothing_is_simulated(tmp_path):
    done = run_python("import sys, torch\n"
                      "assert 'fulldeck.simulator' not in sys.modules and not hasattr(torch, 'gcu')\n"
                      "assert 'libfulldeck_sim' not in open('/proc/self/maps').read()\n"
                      "from fulldeck import simulator\n"
                      "try:\n    simulator.counts()\nexcept simulator.NotThere as error:\n    print(error)")
    assert done.code == 0 and "were not loaded" in done.out, done


def test_a_plugin_of_somebody_elses_is_loaded_and_its_failure_reported(tmp_path):
    done = simulated("import torch\nassert torch.gcu.is_available()\nprint(torch.ones(1, device='gcu').item())", tmp_path,
                     FULLDECK_TORCH_PLUGIN=os.pathsep.join([LIBRARY, str(tmp_path / "libtorch_foo.so")]))
    assert done.code == 0 and done.out == "1.0\n", done
    assert "the torch plugin {} of FULLDECK_TORCH_PLUGIN cannot be used".format(tmp_path / "libtorch_foo.so") in done.err, done



def test_a_rank_of_the_launcher_has_its_card(workspace):
    """No import, nothing on the path: the launcher's hook provides the package, and torch finds its entry point."""
    program = os.path.join(workspace.folder, "rank.py")
    with open(program, "w") as file:
        file.write("import os, torch\nprint('sum', torch.ones(3, device=os.environ['FULLDECK_DEVICE']).sum().item())\n")
    workspace.variables["FULLDECK_SIMULATE"] = "gcu:2"
    workspace.devices = []
    done = workspace.run("--nproc-per-node", 2, program, seconds=200)
    assert done.code == 0 and done.out.count("sum 3.0") == 2, done
