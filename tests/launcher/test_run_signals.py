"""Signals: who receives them, how much time ranks have, and how the run ends."""
import fcntl
import os
import pty
import signal
import subprocess
import termios
import time

import pytest

from launching import FULLDECK, PATIENCE, read, wait_until

WAIT = "touch ready-$RANK; exec sleep 60"


def wait_for_files(workspace, *names):
    wait_until(lambda: set(names) <= set(os.listdir(workspace.folder)), "files " + ", ".join(names))


@pytest.mark.parametrize("number,code", [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129),
                                         (signal.SIGQUIT, 131)])
def test_a_signal_stops_the_run_and_the_code_says_which(workspace, number, code):
    running = workspace.start_shell(4, WAIT)
    wait_for_files(workspace, "ready-0", "ready-1", "ready-2", "ready-3")
    running.signal(number)
    done = running.wait(20)
    assert done.code == code, done
    assert "%s received" % signal.Signals(number).name in done.ours
    assert "root cause" not in done.err, "ranks that were asked to end did not fail"


def test_a_signal_in_the_first_moments_is_not_lost(workspace):
    for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.03):
        running = workspace.start_shell(2, "exec sleep 60")
        time.sleep(delay)
        running.signal(signal.SIGTERM)
        done = running.wait(20)
        # Before the launcher is ready, the signal just ends it.
        assert done.code in (143, -signal.SIGTERM), done
        workspace.assert_nothing_left(0 if done.code == 143 else 10)


def test_control_c_on_a_terminal_reaches_each_rank_once(workspace):
    script = "trap 'echo interrupted >> count-$RANK; exit 0' INT; touch ready-$RANK; while :; do sleep 0.05; done"
    leader, follower = pty.openpty()

    def take_the_terminal():
        os.setsid()
        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

    process = subprocess.Popen([FULLDECK, "run", "--devices", "cpu", "--nproc-per-node", "2", "--no-python", "/bin/sh", "-c",
                                script], env=workspace.variables, cwd=workspace.folder, stdin=follower, stdout=follower,
                               stderr=follower, preexec_fn=take_the_terminal)
    os.close(follower)
    wait_for_files(workspace, "ready-0", "ready-1")
    os.write(leader, b"\x03")
    assert process.wait(20 * PATIENCE) == 130
    os.close(leader)
    assert [read(os.path.join(workspace.folder, "count-%d" % rank)) for rank in range(2)] == ["interrupted\n"] * 2


def test_a_second_interrupt_kills_at_once(workspace):
    running = workspace.start_shell(2, "trap '' INT TERM; touch ready-$RANK; while :; do sleep 1; done", "--shutdown-timeout", 6000)
    wait_for_files(workspace, "ready-0", "ready-1")
    running.signal(signal.SIGINT)
    running.wait_for("SIGINT received")
    assert running.alive
    running.signal(signal.SIGINT)
    done = running.wait(20)
    assert done.code == 130, done


def test_under_nohup_a_hangup_is_ignored_by_launcher_and_ranks(workspace):
    running = workspace.start_shell(2, "kill -HUP $$; touch ready-$RANK; while [ ! -e go ]; do sleep 0.02; done",
                                ignored=[signal.SIGHUP])
    wait_for_files(workspace, "ready-0", "ready-1")
    running.signal(signal.SIGHUP)
    workspace.write("go", "")
    done = running.wait(20)
    assert done.code == 0 and "SIGHUP" not in done.err, done


def test_ranks_have_the_grace_time_to_save_when_another_one_fails(workspace):
    running = workspace.start_fault(4, "fault=exit:3", "rank=2", "term=save:500")
    done = running.wait(30)
    assert done.code == 3 and "root cause: rank 2 (" in done.root_cause, done
    assert [rank for rank in range(4) if workspace.note("saved-%d" % rank)] == [0, 1, 3]


def test_ranks_have_the_grace_time_to_save_when_the_user_stops_the_run(workspace):
    running = workspace.start_fault(4, "fault=hang", "rank=2", "term=save:500")
    workspace.fault()
    running.signal(signal.SIGTERM)
    done = running.wait(30)
    assert done.code == 143 and "killing" not in done.ours, done
    assert [rank for rank in range(4) if workspace.note("saved-%d" % rank)] == [0, 1, 2, 3]


def test_after_the_grace_time_what_is_left_is_killed(workspace):
    running = workspace.start_fault(4, "fault=exit:3", "rank=2", "term=ignore", flags=["--shutdown-timeout", "1"])
    done = running.wait(30)
    assert done.code == 3 and "3 ranks are still there" in done.ours, done
    assert running.ended - workspace.fault()[0] > 0.9


def test_the_grace_time_can_come_from_torchs_variable(workspace):
    running = workspace.start_fault(2, "fault=exit:3", "rank=0", "term=ignore", extra={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"})
    assert running.wait(20).code == 3


CATCHER = """
import os, signal, subprocess, time
worker = subprocess.Popen(["sleep", "60"])
def checkpoint(number, frame):
    open("saved-%s-%d" % (os.environ["RANK"], number), "w").close()
signal.signal(signal.SIGUSR1, checkpoint)
signal.signal(signal.SIGUSR2, checkpoint)
open("ready-" + os.environ["RANK"], "w").close()
while not os.path.exists("go"):
    time.sleep(0.02)
assert worker.poll() is None, "the worker died of the signal"
worker.kill()
"""


def test_user_signals_reach_the_ranks_that_catch_them_and_kill_nobody(workspace):
    workspace.write("train.py", CATCHER)
    workspace.write("either.sh", '#!/bin/sh\nif [ $RANK = 1 ]; then touch ready-1; while [ ! -e go ]; do sleep 0.02; done; exit 0; '
                             'fi\nexec "$PYTHON_EXEC" train.py\n', 0o755)
    running = workspace.start("--nproc-per-node", 3, "./either.sh")
    wait_for_files(workspace, "ready-0", "ready-1", "ready-2")
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        running.signal(number)
        wait_for_files(workspace, "saved-0-%d" % number, "saved-2-%d" % number)
    running.wait_for("SIGUSR1 was not passed on to rank 1")
    running.signal(signal.SIGUSR1)
    running.wait_for("SIGUSR2 was not passed on to rank 1")
    workspace.write("go", "")
    done = running.wait(20)
    assert done.code == 0, done
    assert done.ours.count("SIGUSR1 was not passed on") == 1, "one warning is enough"


def test_a_user_signal_can_be_made_to_stop_the_run(workspace):
    running = workspace.start_shell(2, WAIT, "--signals-to-handle", "SIGTERM,SIGUSR1")
    wait_for_files(workspace, "ready-0", "ready-1")
    running.signal(signal.SIGUSR1)
    assert running.wait(20).code == 128 + signal.SIGUSR1


def test_a_rank_that_is_stopped_and_continued_is_signaled_both_times(workspace):
    running = workspace.start_shell(2, WAIT)
    wait_for_files(workspace, "ready-0", "ready-1")
    pid = workspace.ranks()[1]
    os.kill(pid, signal.SIGSTOP)
    running.wait_for("rank 1 (host processors, pid %d) was stopped by SIGSTOP" % pid)
    os.kill(pid, signal.SIGCONT)
    running.wait_for("rank 1 (host processors, pid %d) runs again" % pid)
    running.signal(signal.SIGTERM)
    assert running.wait(20).code == 143


def test_what_ranks_leave_running_at_a_good_end_is_ended_and_said(workspace):
    done = workspace.run_shell(2, "setsid sh -c 'echo $$ > up-$RANK.new; mv up-$RANK.new up-$RANK; exec sleep 6000' & "
                              "while [ ! -e up-$RANK ]; do sleep 0.01; done")
    assert done.code == 0, done
    left = {int(read(os.path.join(workspace.folder, "up-%d" % rank))) for rank in range(2)}
    # A shell that is exiting may still be listed too.
    events = workspace.events("processes-left")
    assert len(events) == 1 and left <= set(events[0]["pids"]), (left, events, done)


def test_a_rank_that_ends_well_while_others_work_is_no_reason_to_stop(workspace):
    running = workspace.start_shell(2, "[ $RANK = 0 ] && exit 0; while [ ! -e go ]; do sleep 0.02; done; touch finished")
    wait_until(lambda: set(workspace.ranks()) == {1}, "rank 0 to end and rank 1 to stay")
    workspace.write("go", "")
    assert running.wait(20).code == 0
    assert os.path.exists(os.path.join(workspace.folder, "finished"))
