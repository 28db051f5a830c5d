"""Part of the hang grid; `make hang-grid` and `make hang-quiet` run all of it, many times."""
import os
import signal
import time

import pytest

from grids import hang_grid
from launching import BUILD, HERE, state_of, wait_until

LAST_CALL = 4  # of scripts/spinning_rank.py


def ids_of(run, *ids):
    return [event["id"] for event in run.events(*ids)]


def test_a_launch_that_fails_is_a_hang_that_was_not_named_and_the_others_are_still_made(monkeypatch):
    """Also for the faults that each need their own launch."""
    closed = []

    class Launch:
        running = type("Running", (), {"alive": True})

        def __init__(self, kind):
            self.kind = kind

        def wait_for_steps(self, *unused):
            pass

        def close(self):
            closed.append(self)

    def inject(run, fault, victim):
        result = hang_grid.Result(run.kind, fault, victim)
        if victim == 1:
            raise AssertionError("waited 60 s for: the accident")
        return result

    monkeypatch.setattr(hang_grid, "Run", Launch)
    monkeypatch.setattr(hang_grid, "inject", inject)
    results = []
    hang_grid.run_kind("c", 1, results, 60)
    assert [(result.fault, result.victim) for result in results] == sum(hang_grid.cells("c", 1), [])
    assert [result.victim for result in results if "the accident" in result.trouble] == [1] * len(hang_grid.FAULTS)
    # One launch up to each failure, one per fault that ends its own.
    assert len(set(closed)) == len(closed) == 4 + 8


def test_ranks_in_c_that_hang_are_named_with_their_call_and_the_run_goes_on():
    run = hang_grid.Run("c", ranks=4)
    try:
        run.wait_for_steps(16)
        for fault, victim in (("loop", 0), ("stop", 3)):
            result = hang_grid.inject(run, fault, victim)
            assert result.right and not result.trouble, "%s: %s %s" % (fault, result.difference, result.trouble)
            assert result.seconds < 60 and result.stacks == 4, result.event
            assert result.event["waiting_ranks"] == [rank for rank in range(4) if rank != victim]
            assert result.waiting is None or result.waiting < result.seconds, (result.waiting, result.seconds)
        assert len(run.alarms()) == 2
    finally:
        run.end()


def test_a_rank_in_c_that_skips_a_call_is_named_before_the_run_ends():
    run = hang_grid.Run("c", ranks=4)
    try:
        run.wait_for_steps(16)
        result = hang_grid.inject(run, "skip", 2)
        assert result.right, "%s %s" % (result.difference, result.trouble)
        assert result.event["id"] == "desync" and result.event["last_call"] == "barrier", result.event
        assert result.event["waiting_ranks"] == [0, 1, 3], result.event
    finally:
        run.close()


def test_on_hang_fail_saves_stacks_and_ends_with_a_code_of_its_own():
    run = hang_grid.Run("c", flags=["--on-hang", "fail", "--shutdown-timeout", "2"], ranks=3)
    try:
        run.wait_for_steps(16)
        accident = run.order("deadlock", 1)
        done = run.running.wait(30)
        assert done.code == 90, repr(done)
        assert ids_of(run, "hang", "stacks", "hang-action") == ["hang", "stacks", "hang-action"], repr(done)
        hang, stacks, action = run.events("hang", "stacks", "hang-action")
        assert (hang["awaited_rank"], hang["evidence"], hang["call"], hang["call_number"]) == (1, "deadlocked", accident.call, accident.number), hang
        assert stacks["complete"] == 3 and os.path.basename(stacks["file"]) == "stacks-0.txt", stacks
        assert action["action"] == "fail", action
    finally:
        run.close()


@pytest.mark.parametrize("card,code", [("works", 0), ("rests", 90)])
def test_a_rank_whose_main_thread_spins_is_hung_only_if_its_card_rests(workspace, card, code):
    workspace.simulate("gcu:2")
    workspace.variables["FULLDECK_TEST_LIB"] = os.path.join(BUILD, "lib")
    script = os.path.join(HERE, "scripts", "spinning_rank.py")
    over = os.path.join(workspace.folder, "over")
    running = workspace.start("--on-hang", "fail", "--shutdown-timeout", 2, "--idle-card", "warn", script, card, over)
    if card == "works":
        workspace.wait_for_ranks(2)
        # Of the last call; a rank may also be late for an earlier one.
        wait_until(lambda: [event for event in workspace.events("waiting") if (event["awaited_rank"], event["call_number"]) == (0, LAST_CALL)],
                   "word of the wait\n" + running.err)
        time.sleep(6)  # an idle card would have ended the run by now
        workspace.write("over", "")
    done = running.wait()
    assert done.code == code, done
    assert [(event["awaited_rank"], event["evidence"]) for event in workspace.events("hang")] == ([(0, "spinning")] if card == "rests" else []), done


@pytest.mark.parametrize("kind", ["loop", "child-threads", "child-timeout"])
def test_a_quiet_upload_by_an_event_loop_or_a_child_is_seen_as_one(workspace, kind):
    """Needs the two minutes that src/control/diagnosis/hangs/hang_verdict_test.cc tests."""
    over = os.path.join(workspace.folder, "over")
    running = workspace.start("--nproc-per-node", 2, "--on-hang", "fail", os.path.join(HERE, "scripts", "quiet_upload.py"), kind, over,
                          extra={"PYTHONPATH": os.path.join(BUILD, "lib", "python")})
    workspace.wait_for_ranks(2)
    # There may be an earlier one, of a rank that is late for an earlier call.
    seen = wait_until(lambda: [event for event in workspace.events("waiting") if event["call_number"] == 21], "word of the wait\n" + running.err, 60)
    workspace.write("over", "")
    done = running.wait()
    assert [(event["awaited_rank"], event["io"]) for event in seen] == [(0, True)], done
    assert done.code == 0 and not workspace.events("hang"), done


def test_on_hang_restart_begins_anew_with_all_ranks():
    run = hang_grid.Run("c", flags=["--on-hang", "restart", "--max-restarts", "1", "--shutdown-timeout", "2"], ranks=3)
    try:
        run.wait_for_steps(16)
        run.order("deadlock", 1)
        hang_grid.wait_until(run.alarms, "the alarm\n" + run.running.err[-2000:], 30)
        run.order("end", 0)  # what the second attempt finds
        done = run.running.wait(40)
        assert done.code == 0, repr(done)
        assert ids_of(run, "hang", "stacks", "hang-action") == ["hang", "stacks", "hang-action"], repr(done)
        assert run.events("hang")[0]["awaited_rank"] == 1 and run.events("hang-action")[0]["action"] == "restart"
    finally:
        run.close()


def test_a_rank_that_does_not_come_when_the_group_is_made_is_named():
    run = hang_grid.Run("c", options=["late=1"], ranks=3)
    try:
        hang = hang_grid.wait_until(run.alarms, "the alarm\n" + run.running.err[-2000:], 60)[0]
        assert (hang["awaited_rank"], hang["evidence"], hang["call"], hang["call_number"]) == (1, "stopped", "meeting", 1), hang
        assert hang["waiting_ranks"] == [0, 2] and "last_call" not in hang, hang
        # For its stacks it runs for a moment, which may complete the group and some steps: neither the end of the stall
        # nor a new one.
        hang_grid.wait_until(lambda: run.events("hang-action"), "what is done about it", 30)
        pid = run.events("rank-stopped")[0]["pid"]
        hang_grid.wait_until(lambda: state_of(pid) == "T", "the rank to be stopped again", 30)
        assert not run.events("run-moves-again") and len(run.alarms()) == 1, run.running.err[-3000:]
        os.kill(pid, signal.SIGCONT)
        hang_grid.wait_until(lambda: run.events("run-moves-again"), "the run that moves again\n" + run.running.err[-2000:], 30)
        run.wait_for_steps(16)
        assert len(run.alarms()) == 1
    finally:
        run.end()


def test_a_silent_upload_a_debugger_and_a_slow_first_step_are_only_waiting():
    """Each one lasts longer than the detection of a hang in C takes; --on-hang fail would end the run."""
    run = hang_grid.Run("c", flags=["--on-hang", "fail"], options=["first=3500"], ranks=3)
    try:
        run.wait_for_steps(8, 60)
        accident = run.order("upload:600000", 0)
        hang_grid.wait_until(lambda: [event for event in run.events("waiting") if event["call_number"] == accident.number],
                             "word of the wait\n" + run.running.err[-2000:], 60)
        time.sleep(max(0, accident.moment + 4.5 - time.monotonic()))
        os.kill(accident.pid, signal.SIGUSR1)
        run.wait_for_steps(8, 60)
        events = [event for event in run.events("waiting") if event["call_number"] == accident.number]
        assert [(event["awaited_rank"], event["call"], event["io"], event["system_call"], event["system_call_on"]) for event in events] == [
            (0, accident.call, True, "recvfrom", "socket")], run.events("waiting")
        assert events[0]["waiting_ranks"] == [1, 2] and events[0]["severity"] == "info"
        assert "hang_rank" in events[0]["where"], events[0]
        hang_grid.attach_debugger(run.workspace.ranks()[1], 3.5)
        run.wait_for_steps(8, 60)
        run.order("end", 0)
        done = run.running.wait(60)
        assert done.code == 0 and run.alarms() == [], repr(done)
    finally:
        run.close()


def test_a_plain_script_of_torch_is_watched_through_the_recorder():
    run = hang_grid.Run("gloo", options=["timeout=30"], ranks=3)
    try:
        run.wait_for_steps(8, 120)
        result = hang_grid.inject(run, "mismatch", 1)
        assert result.right and not result.trouble, "%s %s" % (result.difference, result.trouble)
        result = hang_grid.inject(run, "deadlock", 2)
        assert result.right and not result.trouble, "%s %s" % (result.difference, result.trouble)
    finally:
        run.close()
