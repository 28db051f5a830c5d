"""A supervisor that is blocked by a debugger or inside the kernel blocks neither the launcher nor the ranks."""
import ctypes
import os
import signal
import time

from launching import children_of, read, state_of, wait_until

ATTACH, WALL = 16, 0x40000000


def is_pending(pid, number):
    """Whether that signal is pending for the process."""
    sets = [int(line.split()[1], 16) for line in read("/proc/%d/status" % pid).splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(each >> (number - 1) & 1 for each in sets)


def test_a_supervisor_in_a_debugger_is_killed_at_the_second_signal(workspace):
    running = workspace.start_shell(2, "sleep 1000", "--shutdown-timeout", "1")
    workspace.wait_for_ranks(2)
    supervisor = wait_until(lambda: children_of(running.pid), "the supervisor")[0]
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(ATTACH, supervisor, None, None) == 0, os.strerror(ctypes.get_errno())
    wait_until(lambda: state_of(supervisor) == "t", "the supervisor to be held")
    for number in (signal.SIGTERM, signal.SIGINT):
        running.signal(number)
        # Of two simultaneous signals the kernel delivers the one with the lower number first.
        wait_until(lambda number=number: is_pending(supervisor, number) or not running.alive, "the launcher to pass it on")
    deadline = time.monotonic() + 60
    while running.alive and time.monotonic() < deadline:
        try:
            os.waitpid(supervisor, os.WNOHANG | WALL)  # its parent is notified of its exit after the tracer
        except ChildProcessError:
            pass
        time.sleep(0.01)
    assert running.wait(10).code == 130
    workspace.assert_nothing_left(5)
