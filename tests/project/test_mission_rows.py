"""Requirements of fulldeck that need a whole run in Python: CUDA is not touched if it is not available (S0.1), settings
that reach the ranks (S0.6), the summary at the end (S2.7)."""
import json
import os
import re
import shutil

import pytest

from cluster.launch import has_module
from launching import BUILD
from python_ranks import run_python

with_torch = pytest.mark.skipif(not has_module("torch") or not os.path.exists(os.path.join(BUILD, "lib", "libfulldeck_sim.so")),
                                reason="this Python has no torch, or the build no libfulldeck_sim.so")
PATIENCE = 200


def events(workspace):
    with open(os.path.join(workspace.run_folder(), "events.jsonl")) as file:
        return [json.loads(line) for line in file]


# ---- S0.1: no CUDA if it is not available

# Forbidden calls and libraries: the name in a process's memory map, and one of its files.
CALLS = ("_cuda_init", "_cuda_getDeviceCount", "_cuda_setDevice", "_nvml_getDeviceCount", "_cuda_getCurrentRawStream")
LIBRARIES = {"libcuda.so": "libcuda.so.1", "libnvidia-ml.so": "libnvidia-ml.so.1", "libnccl.so": "libnccl.so.2"}

# Without an argument it trains; with one it commits that violation, which the traps must catch.
TRAPPED = """
import ctypes, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def trapped(name):
    def trap(*_, **__):
        raise SystemExit("CUDA was called: " + name)
    return trap


def loaded():
    with open("/proc/self/maps") as maps:
        text = maps.read()
    return [name for name in LIBRARIES if "/" + name in text]


def train():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.cuda.manual_seed_all(1)
    model = DistributedDataParallel(torch.nn.Linear(4, 2).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4).cuda()).pow(2).mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    dist.destroy_process_group()


# A torch that was built for CUDA is linked to NCCL.
of_torch = loaded() if torch.version.cuda else []
for name in CALLS:
    setattr(torch._C, name, trapped(name))
if len(sys.argv) == 1:
    train()
elif sys.argv[1] in CALLS:
    getattr(torch._C, sys.argv[1])(0)
else:
    ctypes.CDLL(sys.argv[1])
found = [name for name in loaded() if name not in of_torch]
if found:
    raise SystemExit("of CUDA is loaded: " + ", ".join(found))
print("no CUDA")
"""


def run_trapped(workspace, ranks, *arguments):
    """A run of TRAPPED in which the loader finds a driver: a request for it succeeds, and is recorded."""
    import _ctypes

    folder = os.path.join(workspace.folder, "driver")
    os.mkdir(folder)
    for name in LIBRARIES.values():
        shutil.copyfile(_ctypes.__file__, os.path.join(folder, name))
    workspace.variables["LD_LIBRARY_PATH"] = folder
    program = workspace.write("trapped.py", "CALLS = %r\nLIBRARIES = %r\n" % (CALLS, list(LIBRARIES)) + TRAPPED)
    return workspace.run("--nproc-per-node", ranks, program, *arguments, seconds=PATIENCE)


@with_torch
def test_a_run_without_nvidia_cards_touches_nothing_of_cuda(workspace):
    workspace.simulate("gcu:2")
    done = run_trapped(workspace, 2)
    assert (done.code, done.out.count("no CUDA")) == (0, 2), done


@with_torch
@pytest.mark.parametrize("violation,expected", [(name, "CUDA was called: " + name) for name in CALLS] +
                         [(file, "of CUDA is loaded: " + name) for name, file in LIBRARIES.items()])
def test_each_trap_catches_what_it_is_for(workspace, violation, expected):
    done = run_trapped(workspace, 1, violation)
    assert done.code == 1 and "no CUDA" not in done.out, done
    assert re.search("^%s$" % re.escape(expected), done.err, re.M), done


CHOICE = """
import types
from fulldeck.adapters import card, distributed

listed = ["gloo", "nccl", "eccl", "fulldeck"]
vendors = {"cpu": "gloo", "gcu": "eccl"}
Backend = types.SimpleNamespace(backend_list=listed, default_device_backend_map=vendors)
torch = types.SimpleNamespace(distributed=types.SimpleNamespace(Backend=Backend, distributed_c10d=types.SimpleNamespace(Backend=Backend)))
card.has_cuda = lambda: False
card.kind = lambda: "gcu"
card.name = lambda: "gcu:0"
lacking = None
distributed._why_ours_is_not_usable = lambda: lacking

# The vendor's, with Gloo for the host, where the vendor registered one and the program's cannot work, or names none.
for asked in (None, "nccl", "gloo", "cpu:gloo,cuda:nccl", "no_such"):
    assert distributed.choose(torch, asked)[0] == "cpu:gloo,gcu:eccl", asked
# The program's own where it can.
for asked in ("eccl", "cpu:gloo,gcu:eccl", "fulldeck"):
    assert distributed.choose(torch, asked)[0] == asked
# Ours where the vendor has none, or ours was registered for the card.
for vendors["gcu"] in ("fulldeck", None):
    assert distributed.choose(torch, "nccl")[0] == "fulldeck"
# Without ours: an error that names the card; on the CPU Gloo.
lacking = "no library"
try:
    distributed.choose(torch, "nccl")
except RuntimeError as error:
    assert "gcu:0" in str(error) and "no library" in str(error)
else:
    raise SystemExit("chose something")
card.kind = lambda: None
assert distributed.choose(torch, "nccl")[0] == "gloo"
# NVIDIA cards: what the program says.
card.has_cuda = lambda: True
assert distributed.choose(torch, "nccl")[0] == "nccl"
print("ok")
"""


def test_the_vendors_library_is_chosen_where_there_is_one():
    done = run_python(CHOICE)
    assert (done.code, done.out) == (0, "ok\n"), done


# ---- S0.6: settings that reach the ranks

def test_start_method_and_opencv_threads_reach_the_ranks_and_the_program_wins(workspace):
    workspace.write("cv2.py", "number = 64\n\n\ndef setNumThreads(n):\n    global number\n    number = n\n\n\ndef getNumThreads():\n    return number\n")
    program = workspace.write("settings.py", "import multiprocessing, sys\nimport cv2\nif len(sys.argv) > 1:\n"
                          "    multiprocessing.set_start_method(sys.argv[1])\nprint(multiprocessing.get_start_method(), cv2.getNumThreads())\n")
    done = workspace.run("--nproc-per-node", 2, "--mp-start-method", "spawn", "--opencv-threads", 3, program)
    assert done.code == 0 and done.out.count("spawn 3") == 2, done
    done = workspace.run("--nproc-per-node", 1, "--mp-start-method", "spawn", "--opencv-threads", 0, program, "forkserver")
    assert done.code == 0 and done.out.count("forkserver 0") == 1, done
    for wrong in (["--mp-start-method", "thread"], ["--opencv-threads", "many"], ["--no-adapt", "--opencv-threads", "1"]):
        assert workspace.run(*(wrong + [program])).code == 2


@pytest.mark.skipif(not has_module("cv2"), reason="this Python has no OpenCV")
def test_the_real_opencv_takes_the_threads(workspace):
    program = workspace.write("settings.py", "import cv2\nprint('threads', cv2.getNumThreads())\n")
    done = workspace.run("--nproc-per-node", 1, "--opencv-threads", 1, program)
    assert done.code == 0 and "threads 1" in done.out, done


# ---- S2.7: the progress of a run

LOOP = """
import sys, time
from fulldeck import board

mine = board.ours()
reported = mine.figures
for step in range(1, int(sys.argv[1]) + 1):
    time.sleep(0.25)
    reported.step = step
    reported.samples += 8
    reported.data_ns += 10
    reported.compute_ns += 70
    reported.communication_ns += 20
    mine.tell()
"""


def test_every_run_that_reports_steps_ends_with_a_summary(workspace):
    program = workspace.write("loop.py", LOOP)
    done = workspace.run("--nproc-per-node", 2, program, 12)
    assert done.code == 0, done
    summary, = [event for event in events(workspace) if event["id"] == "run-summary"]
    assert (summary["steps"], summary["ranks"], summary["global_batch"]) == (12, 2, 16), summary
    assert 0 < summary["steps_per_second"] <= 4.5
    assert abs(summary["samples_per_second"] / summary["steps_per_second"] - 16) < 4
    assert (summary["data_percent"], summary["compute_percent"], summary["communication_percent"]) == (10, 70, 20)
    assert summary["message"] in done.err


def test_a_run_without_steps_has_no_summary(workspace):
    assert workspace.run_shell(2, "exit 0").code == 0
    assert not [event for event in events(workspace) if event["id"] == "run-summary"]
