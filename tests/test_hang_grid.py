"""Part of the hang grid; `make hang-grid` and `make hang-quiet` run all of it, many times."""
import os
import re
import signal
import time

import hang_grid


def test_ranks_in_c_that_hang_are_named_with_their_call_and_the_run_goes_on():
    run = hang_grid.Run("c", ranks=4)
    try:
        run.wait_for_steps(16)
        for fault, victim in (("loop", 0), ("stop", 3)):
            result = hang_grid.inject(run, fault, victim)
            assert result.right and not result.trouble, "%s: %s %s" % (fault, result.line, result.trouble)
            assert result.seconds < 12 and result.stacks == 4, result.line
        assert len(run.alarms()) == 2
    finally:
        run.end()


def test_a_rank_in_c_that_skips_a_call_is_named_before_the_run_ends():
    run = hang_grid.Run("c", ranks=4)
    try:
        run.wait_for_steps(16)
        result = hang_grid.inject(run, "skip", 2)
        assert result.right, "%s %s" % (result.line, result.trouble)
        assert re.search(r"DESYNC: rank 2 \(.* is in barrier #\d+ .* while ranks 0, 1, 3 are in all_reduce #\d+", result.line), result.line
    finally:
        run.close()


def test_on_hang_fail_saves_stacks_and_ends_with_a_code_of_its_own():
    run = hang_grid.Run("c", flags=["--on-hang", "fail", "--shutdown-timeout", "2"], ranks=3)
    try:
        run.wait_for_steps(16)
        run.order("deadlock", 1)
        done = run.running.wait(30)
        assert done.code == 90, repr(done)
        said = done.ours
        assert said.index("HANG: rank 1 (") < said.index("stacks of 3 of 3 ranks") < said.index("as --on-hang fail asks"), repr(done)
    finally:
        run.close()


def test_on_hang_restart_begins_anew_with_all_ranks():
    run = hang_grid.Run("c", flags=["--on-hang", "restart", "--max-restarts", "1", "--shutdown-timeout", "2"], ranks=3)
    try:
        run.wait_for_steps(16)
        run.order("deadlock", 1)
        hang_grid.wait_until(run.alarms, "the alarm\n" + run.running.err[-2000:], 30)
        run.order("end", 0)  # what the second attempt finds
        done = run.running.wait(40)
        assert done.code == 0 and len(run.alarms()) == 1, repr(done)
        said = [done.ours.index(words) for words in ("HANG: rank 1 (", "stacks of 3 of 3 ranks", "as --on-hang restart asks", "restart 1 of 1 in")]
        assert said == sorted(said), repr(done)
    finally:
        run.close()


def test_a_rank_that_does_not_come_when_the_group_is_made_is_named():
    run = hang_grid.Run("c", options=["late=1"], ranks=3)
    try:
        _, _, line = hang_grid.wait_until(run.alarms, "the alarm\n" + run.running.err[-2000:], 60)[0]
        assert re.search(r"HANG: rank 1 \(.* is stopped by a signal; ranks 0, 2 have waited .* in meeting #1 of group world for it, "
                         r"it has not come there", line), line
        # For its stacks it runs for a moment, which may make the group and some steps: no end of the stall, and no new one.
        moves = re.compile("the run moves again")
        hang_grid.wait_until(lambda: run.lines(hang_grid.STACKS), "stacks", 30)
        time.sleep(4)
        assert not run.lines(moves) and len(run.alarms()) == 1, run.running.err[-3000:]
        os.kill(int(re.search(r"pid (\d+)", line).group(1)), signal.SIGCONT)
        hang_grid.wait_until(lambda: run.lines(moves), "the run that moves again\n" + run.running.err[-2000:], 30)
        run.wait_for_steps(16)
        assert len(run.alarms()) == 1
    finally:
        run.end()


def test_a_plain_script_of_torch_is_watched_through_the_recorder():
    run = hang_grid.Run("gloo", options=["timeout=5"], ranks=3)
    try:
        run.wait_for_steps(8, 120)
        result = hang_grid.inject(run, "mismatch", 1)
        assert result.right and not result.trouble, "%s %s" % (result.line, result.trouble)
    finally:
        run.close()
