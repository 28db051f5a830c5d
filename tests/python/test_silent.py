"""Silent errors of trainings: tests/silent/__init__.py has the codes and where each is injected. Importing torch costs
seconds per rank, so a launch covers several codes."""
import ast
import os
import re

import pytest

from cluster.launch import has_module
from launching import BUILD, HERE, free_port, wait_until

from silent import ROWS

SILENT = os.path.join(HERE, "silent")
SECONDS = 200

# What the catalog of failures calls silent, and what is silent in the loop; D9 (stubs and hand-written vendor modules)
# is the doctor's.
SILENT_ROWS = "A7 A8 A9 B6 B8 B9 C1 C6 F2 F6 F7 G2 G5 J1 J2 J3 J4 J5 J6".split()

with_torch = pytest.mark.skipif(not has_module("torch"), reason="this Python has no torch")


def named(done):
    """The codes named in warnings, once per warning."""
    return sorted(re.findall(r"fulldeck: WARNING: ([A-Z]\d+): ", done.err))


def test_every_row_has_a_case_that_is_collected_and_injects_something():
    """A case is a test function that pytest collects, without a mark that always skips it, that names its code, and
    that asserts, itself or in a function it calls."""
    assert sorted(ROWS) == SILENT_ROWS
    for row, (_, tests) in ROWS.items():
        assert tests, row
        for test in tests:
            file, _, name = test.partition("::")
            with open(os.path.join(HERE, file)) as opened:
                source = opened.read()
            functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
            found = [function for function in functions if function.name == name]
            assert len(found) == 1 and name.startswith("test_"), (row, test)
            first = min(node.lineno for node in [found[0]] + found[0].decorator_list)
            text = "\n".join(source.splitlines()[first - 1:found[0].end_lineno])
            assert re.search(r"\b%s\b" % row, text), "%s does not name %s" % (test, row)
            marks = [ast.dump(mark) for mark in found[0].decorator_list]
            assert not any("'skip'" in mark or "'xfail'" in mark for mark in marks), (row, test)
            called = {node.id for node in ast.walk(found[0]) if isinstance(node, ast.Name)}
            checks = found + [function for function in functions if function.name in called]
            assert any(isinstance(node, ast.Assert) for check in checks for node in ast.walk(check)), (row, test)


@with_torch
@pytest.mark.skipif(not os.path.exists(os.path.join(BUILD, "lib", "libfulldeck_sim.so")), reason="the build has no libfulldeck_sim.so")
def test_what_is_wrong_before_the_first_step_is_refused_or_said(workspace):
    workspace.simulate("gcu:2")
    done = workspace.run("--nproc-per-node", 2, "--idle-card", "off", os.path.join(SILENT, "starts.py"), seconds=SECONDS)
    assert done.code == 0, done
    for rank in (0, 1):
        for row, words in (("A9", "the launcher started 2 ranks, and the program asks for a group of 8: it would wait for ranks that nobody started. "),
                           ("G5", "the launcher started 2 ranks, and the program asks for a group of 8: it would wait for ranks that nobody started. "),
                           ("A7", "the launcher started 2 ranks, and the program asks for a group of 1. "),
                           ("B6", "DistributedDataParallel is refused: 2 of 2 parameters are not on gcu:{0}, the device of rank {0}.".format(rank))):
            assert "[{}] {} was refused: fulldeck: {}".format(rank, row, words) in done.out, (row, done)
        assert ("WARNING: B9: the program has set CUDA_VISIBLE_DEVICES={0}; the launcher had set CUDA_VISIBLE_DEVICES=-1,-1. "
                "This rank has LOCAL_RANK={0} and the card gcu:{0}: ".format(rank)) in workspace.log(rank), done
    # B8 of a card that torch does not call cuda: the message has no code.
    assert "the program chose gcu:0 with set_device, and this rank's card is gcu:1: two ranks may share a card" in workspace.log(1), done
    assert "two ranks may share" not in workspace.log(0), done


@with_torch
@pytest.mark.parametrize("faults", [[], ["J1", "J2", "G5"], ["J3", "J4"], ["J5"]], ids=lambda faults: "_".join(faults) or "sound")
def test_the_first_steps_show_what_is_wrong(workspace, faults):
    """The correct counterparts of these scripts give no warning."""
    done = workspace.run("--nproc-per-node", 2, os.path.join(SILENT, "training.py"), *faults, seconds=SECONDS, extra={"OMP_NUM_THREADS": "1"})
    assert done.code == 0 and done.out.count("] trained") == 2, done
    assert named(done) == sorted(faults), done
    if not faults:
        assert "warning" not in done.err.lower(), done
    # A note that the random state is equal (G5) is not a warning.
    found = [event for event in workspace.events("silent-error") if event["severity"] == "warning"]
    assert sorted((event["code"], event["ranks"]) for event in found) == sorted((row, [0] if row == "J5" else [0, 1]) for row in faults), found
    # No field has the number of reductions; the number of steps at the time of the report depends on the machine.
    assert ("J4" in faults) == (re.search(r"J4: .*\(\d+ steps, 12 reductions\)", done.err) is not None), done


@with_torch
def test_ranks_of_several_hosts_compare_what_no_launcher_sees(workspace):
    """Two launchers as two nodes with one rank each: J1 and J3 from rank 0, through the store; the rest from each
    launcher."""
    port = free_port()
    hosts = [workspace.start("--nproc-per-node", 1, "--nnodes", 2, "--node-rank", number, "--rdzv-endpoint", "127.0.0.1:{}".format(port), "--rdzv-id",
                         workspace.name, os.path.join(SILENT, "training.py"), "J1", "J2", "J3", extra={"OMP_NUM_THREADS": "1"}) for number in (0, 1)]
    first, second = [host.wait(SECONDS) for host in hosts]
    assert (first.code, second.code) == (0, 0), (first, second)
    assert (named(first), named(second)) == (["J1", "J2", "J3"], ["J2"]), (first, second)
    # With several nodes, the ranks themselves report it, without an event.
    assert "[0] fulldeck: WARNING: J1: the first ranks of all 2 hosts trained their first 3 steps on the same batches" in first.err, first
    assert "[0] fulldeck: WARNING: J3: the parameters differ between the hosts after step 10: all of them." in first.err, first


ALONE = """
import os, time
from fulldeck import board
rank = int(os.environ["RANK"])
mine = board.ours()
# Rank 1 begins where the others stand already, however late they are.
while rank == 1 and not (os.path.exists("stands.0") and os.path.exists("stands.2")):
    time.sleep(0.01)
step = 0
while not os.path.exists("over"):
    time.sleep(0.1)
    if rank == 1 or step < 5:
        step += 1
        mine.step(step, total_steps=1000, loss=0.5, samples=4 * step)
    else:
        open("stands.%d" % rank, "w").close()
"""


def test_a_rank_that_works_alone_is_named_while_it_does(workspace):
    running = workspace.start("--nproc-per-node", 3, workspace.write("alone.py", ALONE))
    workspace.wait_for_ranks(3)
    warning, = wait_until(lambda: workspace.events("silent-error"), "the warning\n" + running.err, 60)
    assert (warning["code"], warning["ranks"]) == ("J5", [1]) and set(workspace.ranks()) == {0, 1, 2}, warning
    workspace.write("over", "")
    done = running.wait(SECONDS)
    assert done.code == 0 and named(done) == ["J5"], done
    assert re.search(r"J5: only rank 1 trains: it is at step \d+, and the others stand, the furthest at step 5 since \d+ steps", done.err), done
