"""Runs in the background, and the commands that find them: ps, logs, stop."""
import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import termios

from launching import FULLDECK, PATIENCE, wait_until

# Ranks report that they are running, and work until they are released.
WORK = "touch ready-$RANK; while [ ! -e go ]; do sleep 0.02; done; "


def start_in_background(workspace, script):
    """The run's id, once its ranks work."""
    workspace.devices = ["--devices", "cpu", "--detach"]
    done = workspace.run_shell(2, script)
    assert done.code == 0 and "is in the background" in done.err, done
    wait_for_files(workspace, "ready-0", "ready-1")
    return os.path.basename(workspace.run_folder())


def wait_for_files(workspace, *names):
    wait_until(lambda: set(names) <= set(os.listdir(workspace.folder)), "files " + ", ".join(names))


def wait_for_the_end(workspace):
    wait_until(lambda: not workspace.processes(), "everything to end")


def test_a_detached_run_is_listed_followed_and_stopped(workspace):
    run = start_in_background(workspace, WORK + "echo word of $RANK; exec sleep 60")
    listed = workspace.fulldeck("ps")
    assert listed.code == 0 and run in listed.out, listed

    followed = workspace.start_program([FULLDECK, "logs", "-f", run])
    workspace.write("go", "")
    wait_until(lambda: "word of 0" in followed.out and "word of 1" in followed.out, "the log\n" + followed.err)
    assert workspace.fulldeck("stop", run).code == 0
    followed.wait(20)
    wait_for_the_end(workspace)
    assert run not in workspace.fulldeck("ps").out


def test_a_detached_run_lets_go_of_the_session_that_started_it(workspace):
    """Its pipes must be closed too, or `ssh host fulldeck run --detach …` would hang: workspace.run waits for their
    end."""
    run = start_in_background(workspace, WORK + "touch finished-$RANK")
    for pid in workspace.processes():
        with contextlib.suppress(ProcessLookupError):  # the shells' short sleeps come and go
            assert os.getsid(pid) != os.getsid(0)
    for pid in workspace.ranks().values():
        assert os.readlink("/proc/%d/fd/0" % pid) == "/dev/null"
    workspace.write("go", "")
    wait_for_files(workspace, "finished-0", "finished-1")
    wait_for_the_end(workspace)
    assert run in os.listdir(workspace.runs)


def test_a_detached_run_outlives_its_terminal(workspace):
    leader, follower = pty.openpty()

    def take_the_terminal():
        os.setsid()
        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

    process = subprocess.Popen([FULLDECK, "run", "--devices", "cpu", "--nproc-per-node", "2", "--detach", "--no-python",
                                "/bin/sh", "-c", WORK + "touch finished-$RANK"], env=workspace.variables, cwd=workspace.folder,
                               stdin=follower, stdout=follower, stderr=follower, preexec_fn=take_the_terminal)
    os.close(follower)
    assert process.wait(20 * PATIENCE) == 0
    wait_for_files(workspace, "ready-0", "ready-1")
    os.close(leader)
    workspace.write("go", "")
    wait_for_files(workspace, "finished-0", "finished-1")
    wait_for_the_end(workspace)


def test_a_detached_run_that_cannot_start_says_so(workspace):
    workspace.devices = ["--devices", "cpu", "--detach"]
    done = workspace.run("--nproc-per-node", 2, "no-such-script.py")
    assert done.code == 88 and "no-such-script.py" in done.err, done
    workspace.write("broken", "\x7fELF broken", 0o755)
    done = workspace.run("--nproc-per-node", 2, "--no-python", "./broken")
    assert done.code == 88 and "rank 0" in done.err and "broken" in done.err, done


def test_ps_knows_a_run_in_the_foreground_and_forgets_it(workspace):
    running = workspace.start_shell(2, WORK, "--rdzv-id", workspace.name)
    wait_for_files(workspace, "ready-0", "ready-1")
    wait_until(lambda: workspace.name in workspace.fulldeck("ps").out, "the run in the list")
    running.signal(signal.SIGTERM)
    running.wait(20)
    assert workspace.name not in workspace.fulldeck("ps").out


def test_stop_gives_the_ranks_their_grace_time(workspace):
    running = workspace.start_fault(2, "fault=hang", "rank=0", "term=save:500", flags=["--rdzv-id", workspace.name])
    workspace.fault()
    stopped = workspace.fulldeck("stop", workspace.name, seconds=20)
    assert stopped.code == 0, stopped
    assert running.wait(20).code == 143
    assert workspace.note("saved-0") and workspace.note("saved-1")
