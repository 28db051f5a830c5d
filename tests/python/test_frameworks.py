"""MMEngine and Accelerate as PyPI has them, and scripts written for CUDA, on simulated cards: the scripts are in
tests/scripts and do not use fulldeck. Importing torch and a framework costs seconds per rank, so each test starts ranks
once."""
import importlib.util
import json
import os
import re
import site
import subprocess
import sys

import pytest

from grids import framework_suite
from launching import HERE, variables_of
from python_ranks import run_python
from launcher.test_rank_board import PHASE_FINISHED, Board

SCRIPTS = os.path.join(HERE, "scripts")
SECONDS = 240


def where(package):
    """The folder that contains the package, or None."""
    spec = importlib.util.find_spec(package)
    return os.path.dirname(os.path.dirname(spec.origin)) if spec is not None and spec.origin else None


pytestmark = pytest.mark.skipif(where("torch") is None, reason="this Python has no torch")
needs_mmengine = pytest.mark.skipif(where("mmengine") is None, reason="MMEngine is not installed (scripts/python-packages.txt)")
needs_accelerate = pytest.mark.skipif(where("accelerate") is None, reason="Accelerate is not installed (scripts/python-packages.txt)")


@pytest.fixture
def cards(workspace):
    """Runs see four simulated cards, and a home folder without an Accelerate config."""
    workspace.simulate("gcu:4")
    workspace.variables.update(OMP_NUM_THREADS="1", HF_HOME=os.path.join(workspace.folder, "huggingface"), MPLCONFIGDIR=workspace.folder)
    elsewhere = {where(name) for name in ("mmengine", "accelerate")} - {None} - set(site.getsitepackages())
    if elsewhere:
        workspace.variables["PYTHONPATH"] = os.pathsep.join(sorted(elsewhere))
    return workspace


def run_and_read(workspace, *arguments):
    """A run of two ranks to its end, and its final board: (done, values of rank 0, values of rank 1)."""
    running = workspace.start("--nproc-per-node", 2, *arguments)
    pid = workspace.wait_for_ranks(2)[0]
    board = Board.of_rank(pid, variables_of(pid))
    try:
        return (running.wait(SECONDS),) + tuple(board.loop(rank) for rank in (0, 1))
    finally:
        board.close()


def result(workspace, *path):
    with open(os.path.join(workspace.folder, *path)) as file:
        return json.load(file)


def close(ours, theirs, tolerance):
    return len(ours) == len(theirs) and all(abs(a - b) <= tolerance for a, b in zip(ours, theirs))


CHECKPOINT = """
import io, os, pickle, sys
import numpy, torch
from mmengine.runner.checkpoint import CheckpointLoader, load_checkpoint
from mmengine.logging import HistoryBuffer

class Evil:
    def __init__(self, call):
        self.call = call
    def __reduce__(self):
        return self.call

FILE = "file.{}.pth".format(os.environ["RANK"])

def load(value):
    torch.save({"value": value}, FILE)
    return CheckpointLoader.load_checkpoint(FILE, "cpu")["value"]

back = load(HistoryBuffer([1.0, 2.0], [1, 1]))
assert back.mean() == 1.5 and back.statistics("max") == 2.0
for call in ((getattr, (HistoryBuffer, "__init__")), (getattr, (numpy.ndarray, "tofile")), (os.system, ("true",)), (eval, ("1",))):
    try:
        load(Evil(call))
    except Exception as error:
        assert "eights only" in str(error) or "only min, max" in str(error), error
    else:
        raise SystemExit("loaded: %r" % (call,))
# The number in the names of log files: the rank's card, though no list of visible cards has it.
from mmengine.logging.logger import _get_device_id
assert _get_device_id() == int(os.environ["LOCAL_RANK"]), _get_device_id()
# Outside of MMEngine's loading everything is as torch has it.
try:
    torch.save(HistoryBuffer(), FILE), torch.load(FILE)
except pickle.UnpicklingError:
    print("sound")
"""


@needs_mmengine
def test_mmengines_runner_trains_on_distinct_cards_to_the_loss_of_the_processors(cards):
    """launcher="pytorch", backend nccl, torch.cuda.set_device, MMDistributedDataParallel, SyncBN, AMP, checkpoint and
    resume; and the reports on the rank board meanwhile. A checkpoint restores its log history, and nothing that could
    run code."""
    script = os.path.join(SCRIPTS, "train_mmengine.py")
    reference = subprocess.run([sys.executable, script, ".", "cpu"], cwd=cards.folder, timeout=SECONDS, stdin=subprocess.DEVNULL,
                               env={name: value for name, value in cards.variables.items() if name != "FULLDECK_SIMULATE"},
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert reference.returncode == 0, reference.stdout
    # Then a checkpoint is loaded in the same processes.
    program = cards.write("mmengine_runs.py", "import runpy\nrunpy.run_path({!r}, run_name='__main__')\n".format(script) + CHECKPOINT)
    done, *boards = run_and_read(cards, program, ".", "sync", "plain", "amp", "resume")
    assert done.code == 0 and "sound" in done.out, done
    assert "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1" in done.err, done
    for rank in (0, 1):
        assert "adapted mmengine" in cards.log(rank)
        board = boards[rank]
        assert (board["step"], board["total_steps"], board["epoch"], board["phase"]) == (8, 8, 1, PHASE_FINISHED), board
        assert board["has_loss"] and 0 < board["loss"] < 100 and board["samples"] == 4 * (8 + 4 + 8 + 4), board
        assert board["data_ns"] > 0 and board["compute_ns"] > 0 and board["reductions"] == 24 and board["unreduced_steps"] == 0, board
    assert boards[0]["parameters_fingerprint"] == boards[1]["parameters_fingerprint"] != 0, boards
    assert boards[0]["first_batches"] != boards[1]["first_batches"] and "WARNING" not in done.err, done
    cpu = result(cards, "cpu.0.json")["losses"]
    for case in ("sync", "plain", "amp", "resume"):
        ranks = [result(cards, "{}.{}.json".format(case, rank)) for rank in (0, 1)]
        assert [each["device"] for each in ranks] == ["gcu:0", "gcu:1"], case
        assert [each["comm_device"] for each in ranks] == ["gcu:0", "gcu:1"], case
        assert {(each["wrapper"], each["get_device"]) for each in ranks} == {("MMDistributedDataParallel", "gcu")}, case
        assert ranks[0]["losses"] == ranks[1]["losses"] and ranks[0]["weights"] == ranks[1]["weights"], case
    sync, plain, amp, resume = (result(cards, case + ".0.json") for case in ("sync", "plain", "amp", "resume"))
    assert sync["norm"] == ["SyncBatchNorm"] and close(sync["losses"], cpu, 1e-5), (sync, cpu)
    # Per-rank batch norm gives a different loss, so the one above was synchronized.
    assert plain["norm"] == ["BatchNorm1d"] and not close(plain["losses"], cpu[:4], 1e-2), (plain, cpu)
    assert amp["scaling"] is True and amp["losses"] != sync["losses"] and close(amp["losses"], cpu, 5e-2), (amp, cpu)
    assert close(resume["losses"], sync["losses"][4:], 1e-6) and close(resume["weights"], sync["weights"], 1e-6), (resume, sync)


CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: fp16
num_processes: 4
gpu_ids: 2,3
dynamo_config: {dynamo_backend: 'no', dynamo_mode: max-autotune}
debug: true
"""


@needs_accelerate
def test_accelerate_trains_on_distinct_cards_to_the_loss_of_the_processors(cards):
    """Accumulation, clipping, save_state and load_state; once more with fp16 from a file whose other settings are
    reported when they are ignored."""
    script = os.path.join(SCRIPTS, "train_accelerate.py")
    for name in ("alone", "cards", "half"):
        os.mkdir(os.path.join(cards.folder, name))
    alone = cards.run("--nproc-per-node", 1, "--devices", "cpu", script, "alone", seconds=SECONDS)
    assert alone.code == 0, alone
    done, *boards = run_and_read(cards, script, "cards")
    assert done.code == 0 and "WARNING" not in done.err, done
    for board in boards:  # the optimizer's own steps: every other batch
        assert board["step"] == 12 and board["has_loss"] and 0 < board["loss"] < 100 and board["samples"] == 48, board
        assert board["reductions"] == 12 and board["unreduced_steps"] == 0, board
    expected = result(cards, "alone", "0.json")
    ranks = [result(cards, "cards", "{}.json".format(rank)) for rank in (0, 1)]
    assert [each["device"] for each in ranks] == [each["accelerator_device"] for each in ranks] == ["gcu:0", "gcu:1"]
    assert [each["process"] for each in ranks] == [[0, 2, 0], [1, 2, 1]]
    assert {each["model"] for each in ranks} == {"DistributedDataParallel"}
    for part in ("first", "second", "again"):
        for which in (0, 1):
            assert close(ranks[0][part][which], expected[part][which], 1e-5), (part, ranks[0], expected)
    assert ranks[0]["again"] == ranks[0]["second"], "the state came back as it was saved"

    config = cards.write("accelerate.yaml", CONFIG)
    done = cards.run("--nproc-per-node", 2, "--accelerate-config", config, script, "half", seconds=SECONDS)
    assert done.code == 0, done
    half = result(cards, "half", "1.json")
    assert (half["precision"], half["scaling"], half["dynamo"]) == ("fp16", True, "NO")
    assert half["first"] != ranks[1]["first"] and close(half["first"][0], expected["first"][0], 1e-2)
    for words in ("mixed_precision fp16", "num_processes: 4; this run has 2 ranks", "gpu_ids: 2,3", "dynamo_mode=max-autotune"):
        assert words in done.err, (words, done)


ALONE = """
# As an Accelerate that does not know the card.
state.PartialState._reset_state()
state.PartialState._prepare_backend = lambda self, *ignored: (None, state.DistributedType.NO)
try:
    state.PartialState()
except RuntimeError as error:
    print("refused:", error)
"""
LONE = """
from accelerate import state
made = state.PartialState()
print("process", made.process_index, "of", made.num_processes, made.device, made.distributed_type.value)
""" + ALONE


@needs_accelerate
def test_a_rank_that_accelerate_takes_for_the_only_one_is_refused(cards):
    """A8: each rank would train separately."""
    script = cards.write("lone.py", LONE)
    # The file that Accelerate reads by default is read here too, and that is reported.
    os.makedirs(os.path.join(cards.variables["HF_HOME"], "accelerate"))
    with open(os.path.join(cards.variables["HF_HOME"], "accelerate", "default_config.yaml"), "w") as file:
        file.write("distributed_type: 'NO'\nmixed_precision: bf16\nnum_processes: 1\n")
    done = cards.run("--nproc-per-node", 2, "--devices", "cpu", script, seconds=SECONDS)
    assert done.code == 0 and "default file" in done.err and "mixed_precision bf16" in done.err, done
    assert sorted(line.split("process ", 1)[1] for line in done.out.splitlines() if "] process " in line) == [
        "0 of 2 cpu:0 MULTI_CPU", "1 of 2 cpu:0 MULTI_CPU"], done
    assert done.out.count("Accelerate takes this rank for process 0 of 1, and it is rank") == 2, done


@needs_accelerate
def test_a_file_of_accelerates_that_cannot_be_read_ends_the_run(cards):
    bad = cards.write("bad.yaml", "distributed_type: MULTI_GPU\nno_such_key: 1\nnum_processes: 2\n")
    done = cards.run("--nproc-per-node", 1, "--accelerate-config", bad, cards.write("lone.py", LONE), seconds=SECONDS)
    assert done.code != 0 and "no_such_key" in done.err and "process" not in done.out, done


def test_fsdp2_trains_on_distinct_cards_to_the_loss_of_the_processors(cards):
    """The smallest cell of `make framework-suite`, both devices in one launch."""
    done = cards.run("--nproc-per-node", 2, framework_suite.FSDP, "--backend", "nccl", "--device", "cpu", "cuda", "--steps", "8", seconds=SECONDS)
    assert done.code == 0, done
    found = re.findall(r"rank (\d) losses (.*)", done.out)
    for rank in "01":
        cpu, card = ([float.fromhex(value) for value in values.split()] for number, values in found if number == rank)
        assert close(cpu, card, 2e-5) and len(card) == 8, (rank, cpu, card)
        assert "rank {0} on gcu:{0}\n".format(rank) in done.out, done


BF16 = """
compute_environment: LOCAL_MACHINE
distributed_type: {}
mixed_precision: bf16
num_processes: 2
"""
# Each framework's name for several cards of a kind.
SEVERAL = {"npu": "MULTI_NPU", "mlu": "MULTI_MLU", "musa": "MULTI_MUSA", "sdaa": "MULTI_SDAA", "hpu": "MULTI_HPU", "gcu": "MULTI_GPU"}

BOTH = """
import os, runpy, sys
sys.argv = ["train_mmengine.py", ".", "sync", "amp"]
runpy.run_path(os.path.join({scripts!r}, sys.argv[0]), run_name="__main__")
sys.argv = ["train_accelerate.py", "half"]
runpy.run_path(os.path.join({scripts!r}, sys.argv[0]), run_name="__main__")
from accelerate import state
state.AcceleratorState._reset_state(True)
""".format(scripts=SCRIPTS)


def check_kind(workspace, kind):
    """MMEngine's Runner and Accelerate, one after the other, on two simulated cards of a kind that they support by
    name: each rank on its card, synchronized batch norm, loss scaling, the precision of --accelerate-config, and
    rejection of a rank that Accelerate treats as the only one (A8)."""
    workspace.simulate(kind + ":2")
    os.mkdir(os.path.join(workspace.folder, "half"))
    config = workspace.write("accelerate.yaml", BF16.format(SEVERAL[kind]))
    program = workspace.write("both.py", BOTH + ALONE)
    done = workspace.run("--nproc-per-node", 2, "--accelerate-config", config, program, seconds=SECONDS)
    assert done.code == 0, done
    assert "is not adapted" not in done.err and "left as it is" not in done.err, done
    # torch's own list of defaults has "fake" for some kinds, which communicates nothing.
    assert len(re.findall(r"rank [01]/2, backend fulldeck \(", done.err)) >= 2, done
    for case in ("sync", "amp"):
        ranks = [result(workspace, "{}.{}.json".format(case, rank)) for rank in (0, 1)]
        assert [each["device"] for each in ranks] == [each["comm_device"] for each in ranks] == [kind + ":0", kind + ":1"], ranks
        assert {(each["wrapper"], each["get_device"]) for each in ranks} == {("MMDistributedDataParallel", kind)}, ranks
        assert ranks[0]["norm"] == ["SyncBatchNorm"] and ranks[0]["losses"] == ranks[1]["losses"], ranks
        assert ranks[0]["weights"] == ranks[1]["weights"] and ranks[0]["scaling"] is (True if case == "amp" else None), ranks
    half = [result(workspace, "half", "{}.json".format(rank)) for rank in (0, 1)]
    assert [each["device"] for each in half] == [each["accelerator_device"] for each in half] == [kind + ":0", kind + ":1"], half
    assert [each["process"] for each in half] == [[0, 2, 0], [1, 2, 1]], half
    assert {(each["precision"], each["model"]) for each in half} == {("bf16", "DistributedDataParallel")}, half
    assert half[0]["again"] == half[0]["second"], half
    assert len(re.findall(r"\] refused: .*process 0 of 1", done.out)) == 2, done
    return [result(workspace, case + ".0.json") for case in ("sync", "amp")] + half


@needs_mmengine
@needs_accelerate
def test_mmengine_and_accelerate_train_on_cards_that_they_have_names_for(cards):
    """tests/long/test_framework_kinds.py has the other kinds."""
    check_kind(cards, "npu")


# The part of the vendor's software that the frameworks query. torch reserves the name xpu, so no simulated card can
# have it.
OWN = """
import os, sys, types
import torch
kind = os.environ["FULLDECK_DEVICE"].split(":")[0]
if kind == "xpu":
    torch.xpu._is_compiled = torch.xpu.is_available = lambda: True
    torch.xpu.device_count, torch.xpu.set_device = lambda: 2, lambda device: None
else:
    torch.utils.rename_privateuse1_backend(kind)
    cards = types.ModuleType("torch." + kind)
    cards.is_available, cards.device_count, cards.set_device = lambda: True, lambda: 2, lambda device: None
    torch._register_device_module(kind, cards)
    sys.modules["torch_" + kind] = types.ModuleType("torch_" + kind)
    sys.modules["torch_" + kind].__spec__ = __import__("importlib.machinery").machinery.ModuleSpec("torch_" + kind, None)

from fulldeck import adapters
said = []
adapters.say = said.append
adapters.start()
from fulldeck.adapters import card
assert card.is_foreign() and card.has_vendor_module()
from accelerate import state
from mmengine.device import get_device
assert get_device() == kind, get_device()
assert "ACCELERATE_TORCH_DEVICE" not in os.environ and os.environ["ACCELERATE_MIXED_PRECISION"] == "bf16"
assert not [line for line in said if "not adapted" in line or "left as it is" in line], said
torch.distributed.init_process_group = lambda **unused: None
""" + ALONE


@needs_mmengine
@needs_accelerate
def test_the_frameworks_own_way_stays_where_the_vendors_software_is_installed(cards):
    """tests/long/test_framework_kinds.py has the other kinds."""
    check_own_way(cards, "xpu")


def check_own_way(cards, kind):
    config = cards.write("accelerate.yaml", BF16.format("MULTI_" + kind.upper()))
    done = run_python(OWN, folder=cards.folder, FULLDECK_DEVICE=kind + ":1", FULLDECK_ACCELERATE_CONFIG=config, RANK="1", LOCAL_RANK="1",
                      WORLD_SIZE="2", TORCH_DEVICE_BACKEND_AUTOLOAD="0", HF_HOME=cards.folder, FULLDECK_PROBE="0")
    assert done.code == 0 and "refused: fulldeck: Accelerate takes this rank for process 0 of 1" in done.out, done


UNKNOWN = """
import mmengine
print("mmengine is", mmengine.__version__)
"""


def test_an_unknown_version_is_left_as_it_is(cards):
    """A stand-in with the package's name and an unsupported version."""
    folder = os.path.join(cards.folder, "other", "mmengine")
    os.makedirs(folder)
    with open(os.path.join(folder, "__init__.py"), "w") as file:
        file.write("import torch\n__version__ = '2.0.0'\n")
    done = cards.run("--nproc-per-node", 1, cards.write("unknown.py", UNKNOWN), seconds=SECONDS,
                     extra={"PYTHONPATH": os.path.dirname(folder)})
    assert done.code == 0 and "mmengine is 2.0.0" in done.out, done
    assert "mmengine is left as it is" in done.err and "this is MMEngine 2.0.0, and 0.7 to 0.10 are known" in done.err, done
