"""Which rank a failed run names: the root cause, never a rank that only noticed. Asserts the fields of the event
`run-failed`."""
import os
import signal
import sys

import pytest

from launching import BUILD
from python_ranks import run_python

NONFINITE_TRAINING = os.path.join(BUILD, "tests", "nonfinite_training")
PACKAGE = os.path.join(BUILD, "lib", "python")

# Three ranks of the collectives library, without torch.
GROUP = """
import os, sys
import numpy
from fulldeck import collectives
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
group = collectives.Group.from_environment()
for step in range(10):
    group.all_reduce(numpy.ones(3, dtype=numpy.float32))
"""


def run_group(workspace, size, script):
    workspace.write("train.py", GROUP + script)
    done = workspace.run("--nproc-per-node", size, "train.py", extra={"PYTHONPATH": PACKAGE})
    assert done.code != 0, done
    return done, workspace.event("run-failed")


@pytest.mark.parametrize("ending", ["sys.exit(0)", "group.close()\n    sys.exit(0)", "os._exit(0)"], ids=["exit", "closed", "at once"])
def test_a_rank_that_leaves_with_code_0_while_others_communicate_is_the_root_cause(workspace, ending):
    done, failed = run_group(workspace, 3, """
if rank == 1:
    %s
group.all_reduce(numpy.ones(3, dtype=numpy.float32))
""" % ending)
    assert (failed["root_rank"], failed["reason"]) == (1, "left-early"), done
    assert failed["noticed_by"] != 1 and failed["exit_code"] == 1 == done.code, done
    assert failed["exit_code_source"] == "script"
    assert failed["python"] == sys.executable


@pytest.mark.parametrize("odd", [0, 2])
@pytest.mark.parametrize("call", ["group.broadcast(numpy.ones(3, dtype=numpy.float32), 0)", "group.all_reduce(numpy.ones(4, dtype=numpy.float32))"],
                         ids=["operation", "size"])
def test_the_odd_one_of_a_mismatch_is_the_root_cause(workspace, odd, call):
    done, failed = run_group(workspace, 3, """
if rank == %d:
    %s
else:
    group.all_reduce(numpy.ones(3, dtype=numpy.float32))
""" % (odd, call))
    assert (failed["root_rank"], failed["root_ranks"], failed["reason"]) == (odd, [odd], "different-calls"), done


def test_of_two_ranks_that_differ_both_are_named(workspace):
    done, failed = run_group(workspace, 2, "group.all_reduce(numpy.ones(3 + rank, dtype=numpy.float32))\n")
    assert (failed["root_ranks"], failed["reason"]) == ([0, 1], "different-calls"), done


def test_the_rank_that_gave_a_value_that_is_not_finite_is_the_root_cause(workspace):
    """Every rank stops, and the first to exit is not the root cause."""
    workspace.write("train.py", """
import os, sys, time
from fulldeck import board
rank = int(os.environ["RANK"])
board.ours().set_failure("nonfinite", 2, "step 8: rank 2 gave a gradient that is not finite")
open("reported.%d" % rank, "w").close()
while rank == 2 or not all(os.path.exists("reported.%d" % one) for one in range(3)):
    time.sleep(0.01)
sys.exit(3)
""")
    done = workspace.run("--nproc-per-node", 3, "train.py", extra={"PYTHONPATH": PACKAGE})
    failed = workspace.event("run-failed")
    assert (failed["root_rank"], failed["reason"], failed["exit_code"]) == (2, "nonfinite", 3) and done.code == 3, done


@pytest.mark.skipif(not os.path.exists(NONFINITE_TRAINING), reason="this build has no torch")
@pytest.mark.parametrize("cards", [None, "gcu:3"], ids=["cpu", "gcu"])
def test_the_rank_whose_batch_has_a_nan_is_the_root_cause_in_data_parallel_training(workspace, cards):
    if cards:
        workspace.simulate(cards)
    done = workspace.run("--nproc-per-node", 3, "--no-python", NONFINITE_TRAINING, 1, 4, seconds=300)
    failed = workspace.event("run-failed")
    assert (failed["root_rank"], failed["reason"]) == (1, "nonfinite") and done.code == 1, done
    assert "layer." in done.ours, done
    assert "no NaN was noticed" not in done.out


def test_a_rank_that_fails_by_itself_after_another_has_ended_well_is_the_root_cause(workspace):
    """No rank waited for the one that had finished."""
    done, failed = run_group(workspace, 2, """
group.close()
if rank == 0:
    while not os.path.exists("ended"):
        pass
    raise ValueError("in the evaluation")
open("ended", "w").close()
""")
    assert (failed["root_rank"], failed["reason"]) == (0, "exit-code"), done


# A plain torch script. torch sometimes aborts when Python exits while a Gloo group exists (a thread of the group then
# needs the GIL). So the process exits after Python's exit handlers, as END specifies.
TORCH = """
import atexit, os, sys, torch, torch.distributed as dist
atexit.register(lambda: END)
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(20):
"""
ENDS = "os._exit(0 if rank == 1 else 1)"
# What rank 1 does in step 10 and how its peers handle the failed call; how Python exits; the exit code of the run.
LEAVES = {
    "exit": ("    if rank == 1 and step == 10: sys.exit(0)\n    dist.all_reduce(torch.ones(3))\n", ENDS, 1),
    "peers abort": ("    if rank == 1 and step == 10: sys.exit(0)\n    dist.all_reduce(torch.ones(3))\n",
                    "os._exit(0) if rank == 1 else os.abort()", 128 + signal.SIGABRT),
    "destroy": ("    if rank == 1 and step == 10: dist.destroy_process_group(); sys.exit(0)\n    dist.all_reduce(torch.ones(3))\n", ENDS, 1),
    "finally": ("    if rank == 1 and step == 10: dist.destroy_process_group(); sys.exit(0)\n"
                "    try: dist.all_reduce(torch.ones(3))\n    except RuntimeError: dist.destroy_process_group(); sys.exit(3)\n", "None", 3),
}


@pytest.mark.parametrize("ending", sorted(LEAVES))
def test_in_plain_torch_too(workspace, ending):
    pytest.importorskip("torch")
    loop, end, code = LEAVES[ending]
    workspace.write("train.py", TORCH.replace("END", end) + loop)
    done = workspace.run("--nproc-per-node", 3, "train.py", seconds=300)
    failed = workspace.event("run-failed")
    assert (failed["root_rank"], failed["reason"]) == (1, "left-early") and done.code == code, done


@pytest.mark.parametrize("other,size,roots", [("torch.ones(8)", 3, [1]), ("torch.ones(4, dtype=torch.float64)", 3, [1]),
                                              ("torch.ones(8)", 2, [0, 1])], ids=["longer", "wider", "of two"])
def test_the_odd_one_of_a_mismatch_is_named_where_gloo_aborts_a_rank_for_it(workspace, other, size, roots):
    pytest.importorskip("torch")
    workspace.write("train.py", """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(20):
    dist.all_reduce(torch.ones(4))
if dist.get_rank() == 1:
    time.sleep(3)  # the calls of the others are on the board by then; a rank that Gloo aborts at once cannot report its own
dist.all_reduce(%s if dist.get_rank() == 1 else torch.ones(4))
""" % other)
    done = workspace.run("--nproc-per-node", size, "--shutdown-timeout", 1, "train.py", seconds=300)
    failed = workspace.event("run-failed")
    assert (failed["root_ranks"], failed["reason"]) == (roots, "different-calls"), done


# What rank 1 does instead of the last call, for which its peers' Gloo times out after 5 s. It raises and exits slowly,
# or it sleeps.
LATE = {"raises": "atexit.register(time.sleep, 60); raise ValueError('bad sample 123')", "sleeps": "time.sleep(60)"}


@pytest.mark.parametrize("late", sorted(LATE))
def test_the_rank_that_others_waited_for_until_their_time_out_is_the_root_cause(workspace, late):
    pytest.importorskip("torch")
    workspace.write("train.py", """
import atexit, datetime, time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
for step in range(20):
    dist.all_reduce(torch.ones(3))
if dist.get_rank() == 1:
    %s
dist.all_reduce(torch.ones(3))
""" % LATE[late])
    done = workspace.run("--nproc-per-node", 3, "--shutdown-timeout", 1, "train.py", seconds=300)
    failed = workspace.event("run-failed")
    assert (failed["root_rank"], failed["reason"]) == (1, "not-arrived") and failed["noticed_by"] != 1, done
    assert not workspace.events("run-moves-again"), done
    if late == "raises":
        assert "ValueError: bad sample 123" in done.ours, done


def test_the_report_begins_with_the_last_line_and_the_users_own_frames(workspace):
    workspace.write("train.py", """
import json
def load(path):
    return json.load(open(path))
load("/data/no such folder/train.json")
""")
    done = workspace.run("--nproc-per-node", 1, "train.py")
    failed = workspace.event("run-failed")
    assert (failed["failure_code"], failed["reason"]) == ("F1", "exit-code"), done
    lines = [line.split("fulldeck: ", 1)[1] for line in done.ours.splitlines()]
    begin = next(number for number, line in enumerate(lines) if line.startswith("root cause: "))
    assert "/data/no such folder/train.json" in lines[begin + 1], done
    assert "train.py:4 in load" in lines[begin + 2] and "train.py:5" in lines[begin + 3], done
    known = next(line for line in lines if "known failure F1" in line)
    assert "/data/no such folder/train.json" in known
    assert any(sys.executable in line for line in lines[begin:begin + 12]), done


@pytest.mark.parametrize("code,line", [(86, True), (1, False)])
def test_an_exit_code_of_the_scripts_own_is_marked_as_such(workspace, code, line):
    done = workspace.run_shell(1, "exit %d" % code)
    assert done.code == code
    finished = workspace.event("run-finished")
    assert (finished["exit_code"], finished["exit_code_source"]) == (code, "script")
    assert ("is the script's own" in done.ours) == line, done


def test_a_verdict_of_ours_is_marked_as_such(workspace):
    done = workspace.run_shell(1, "exit 1", "--max-restarts", 5)
    assert done.code == 82, done
    assert (workspace.event("run-finished")["exit_code"], workspace.event("run-finished")["exit_code_source"]) == (82, "fulldeck")


def test_which_exceptions_are_those_of_a_lost_peer():
    done = run_python("""
from fulldeck.adapters.recorder import is_communication
class DistBackendError(RuntimeError):
    pass
assert is_communication(DistBackendError("NCCL error"))
assert is_communication(RuntimeError("[gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer"))
# Our own backend has reported it already, with the peer.
assert not is_communication(DistBackendError("fulldeck: all_reduce in group 'world': rank 1 is gone"))
assert not is_communication(ValueError("Connection reset by peer"))
assert not is_communication(RuntimeError("out of memory"))
""")
    assert done.code == 0, done
