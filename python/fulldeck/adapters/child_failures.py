"""Observes the children of the user's script: programs and processes that failed and whose exit status nothing checked,
while the rank itself exits successfully. observing.py has the contract of these checks; silent.py starts them.

Watched are Python programs, shell scripts and the processes of multiprocessing. The script has checked an exit status
when an exception reported it (check=True, check_call, check_output), when it uses the status that call(), wait() or
poll() returns, or when the module that waits, or a function in its call chain, names `returncode` (`exitcode` for
multiprocessing). What it does then is its own decision: a probe may fail. A child that SIGTERM or SIGINT ended was
stopped and did not fail. The same holds for SIGKILL if the script may have sent it; otherwise the kernel sent it to
free memory."""
import dis
import functools
import os
import re
import signal
import sys
import types
import weakref

from fulldeck import board as boards
from fulldeck.adapters import on_import
from fulldeck.adapters.observing import guarded, observe

_children = weakref.WeakKeyDictionary()  # running process -> its command; weak, because a process may keep pipes open
_failed = []               # (command, status)
_owner = os.getpid()
_kills = False             # the script has started one of KILLERS
# Children that may fail: they only query something, or belong to a library that manages them.
PROBE_COMMANDS = ("-c", "-V", "--version", "--help", "pip", "ensurepip", "venv", "torch._inductor", "compile_worker", "resource_tracker", "loky", "spawn_main",
          "forkserver")
# Programs that start another one, whose name follows their own options.
STARTERS = ("env", "nohup", "nice", "ionice", "setsid", "stdbuf", "taskset", "numactl", "time", "timeout", "sudo", "exec", "xvfb-run")
SHELLS = ("sh", "bash", "dash", "zsh")
PROGRAMS = ("python", "pypy", "torchrun", "accelerate", "deepspeed")
STDOUT = -2                # of subprocess
NUMBER = re.compile(r"(0x)?[\da-f.,-]+[smhd]?")  # of timeout, nice, taskset
ENDED = (signal.SIGTERM, signal.SIGINT)
SENT = ENDED + (signal.SIGKILL, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT)
# Once the script has started one of these, it may have sent a SIGKILL.
KILLERS = ("kill", "pkill", "killall", "skill", "fuser")
# A script that hides the errors of a command only queries something.
HIDES = re.compile(r"2>\s*/dev/null|&>\s*/dev/null|>&\s*/dev/null|/dev/null\s+2>&1")
STATUS_NAMES = ("returncode", "exitcode", "check_returncode")
RETURN_STATUS = ("call", "wait", "poll")
CALLERS = 4                # the function that waits, and its callers


def watch_children():
    import subprocess
    on_import("multiprocessing.process", watch_processes)
    popen = subprocess.Popen
    real_init, real_signal = popen.__init__, popen.send_signal

    @functools.wraps(real_init)
    def init(self, args, *arguments, **named):
        real_init(self, args, *arguments, **named)
        started(self, args, *(named.get(name, arguments[place] if len(arguments) > place else None) for name, place in (("stdout", 3), ("stderr", 4))))

    @functools.wraps(real_signal)
    def send_signal(self, *arguments, **named):
        ended_by_us(self)
        return real_signal(self, *arguments, **named)

    def asking(real):
        @functools.wraps(real)
        def ask(self, *arguments, **named):
            try:
                return real(self, *arguments, **named)
            finally:
                seen(self, getattr(self, "returncode", None))
        return ask

    popen.__init__, popen.send_signal, popen.wait, popen.poll = init, send_signal, asking(popen.wait), asking(popen.poll)
    real_system, real_kill, real_killpg = os.system, os.kill, os.killpg

    @functools.wraps(real_system)
    def system(command):
        status = real_system(command)
        system_ended(command, status)
        return status

    @functools.wraps(real_kill)
    def kill(*arguments):
        killed(lambda child, pid: child == pid, arguments)
        return real_kill(*arguments)

    @functools.wraps(real_killpg)
    def killpg(*arguments):
        killed(lambda child, group: os.getpgid(child) == group, arguments)
        return real_killpg(*arguments)

    for replacement in (system, kill, killpg):
        replacement.__module__ = "os"  # as `posix.system` it could not be pickled
        setattr(os, replacement.__name__, replacement)


def watch_processes(process):
    base = process.BaseProcess
    real_start, real_join, real_terminate, real_kill = base.start, base.join, base.terminate, base.kill

    @functools.wraps(real_start)
    def start(self):
        real_start(self)
        started_process(self)

    @functools.wraps(real_join)
    def join(self, *arguments, **named):
        real_join(self, *arguments, **named)
        seen(self._popen, self.exitcode)

    def ending(real):
        @functools.wraps(real)
        def end(self):
            ended_by_us(getattr(self, "_popen", None))
            return real(self)
        return end

    base.start, base.join, base.terminate, base.kill = start, join, ending(real_terminate), ending(real_kill)
    from multiprocessing import util

    # After the joins that multiprocessing does at exit.
    util.Finalize(None, report_children, exitpriority=-100)


def program_of(argv):
    """The argv from the program's name on, without wrappers that only start it: env A=1, nohup, nice -n 5, timeout 60,
    bash of a script."""
    argv = list(argv)
    starts = True
    while argv and starts:
        name = os.path.basename(argv[0])
        starts = name in STARTERS or "=" in name
        if starts:
            del argv[0]
            while argv and (argv[0].startswith("-") or NUMBER.fullmatch(argv[0])):
                del argv[0]
    if argv and os.path.basename(argv[0]) in SHELLS:
        script = next((number for number, arg in enumerate(argv) if number and not arg.startswith("-")), len(argv))
        if not any("c" in arg for arg in argv[1:script] if not arg.startswith("--")):
            return argv[:1] + argv[script:]
    return argv


def is_watched(argv):
    """A Python program or a shell script. Other children are often queries: which, diff, pgrep, git, test."""
    argv = program_of(argv)
    name = os.path.basename(argv[0]) if argv else ""
    if name in SHELLS:
        return len(argv) > 1 and not argv[1].startswith("-")
    return ((name.startswith(PROGRAMS) or name.endswith((".py", ".sh")))
            and not any(part in arg.split(".") or arg == part for arg in argv[:8] for part in PROBE_COMMANDS))


def argv_of(args):
    """Of a command; not if its errors are hidden, because then it is only a query."""
    global _kills
    if isinstance(args, str):
        argv = [] if HIDES.search(args) else args.split()
        _kills = _kills or any(arg in KILLERS for arg in args.split())
    else:
        argv = [os.fsdecode(arg) for arg in args] if isinstance(args, (list, tuple)) else []
        _kills = _kills or any(os.path.basename(arg) in KILLERS for arg in argv[:3])
    return argv


@guarded
def started(child, args, stdout, stderr):
    """A script that reads a child's errors itself also checks its exit status, but a log file is for readers; asyncio
    waits in its own way."""
    if _package(_outside(sys._getframe(), "fulldeck")) == "asyncio":
        return
    argv = argv_of(args)
    to_log = stderr is not None and (stderr is stdout or stderr == STDOUT) and is_log(stdout)
    if (stderr is None or to_log) and os.getpid() == _owner and is_watched(argv):
        _children[child] = " ".join(argv)


def is_log(file):
    """Whether the script opened it only for writing."""
    return hasattr(file, "fileno") and getattr(file, "readable", lambda: True)() is False


@guarded
def system_ended(command, status):
    argv = argv_of(os.fsdecode(command))
    status = -(status & 127) if status & 127 else status >> 8
    if status and os.getpid() == _owner and is_watched(argv) and not was_ended(status, argv) and not is_status_used(sys._getframe()):
        _failed.append((" ".join(argv), status))


@guarded
def started_process(process):
    if not process.daemon and os.getpid() == _owner:
        _children[process._popen] = process.name


@guarded
def ended_by_us(child):
    if child is not None:
        _children.pop(child, None)


@guarded
def killed(is_meant, arguments):
    """The script itself sends a signal to the children for which is_meant() returns true."""
    for child in list(_children) if len(arguments) == 2 and arguments[1] in SENT else ():
        try:
            if is_meant(child.pid, arguments[0]):
                ended_by_us(child)
        except OSError:  # it has exited
            continue


@guarded
def seen(child, status):
    if status is not None and os.getpid() == _owner:
        command = _children.pop(child, None)
        if status and command is not None and not was_ended(status, command.split()) and not is_status_used(sys._getframe()):
            _failed.append((command, status))


def was_ended(status, argv):
    number = -status if status < 0 else status - 128
    return number in ENDED or (number == signal.SIGKILL and (_kills or "timeout" in [os.path.basename(arg) for arg in argv]))


def is_status_used(frame):
    """Whether the script learns the exit status of the child for which this frame's callers wait."""
    frame = _outside(frame, "fulldeck")
    waits = "wait"  # the function that the script called
    while frame is not None and _package(frame) in ("subprocess", "multiprocessing"):
        waits = frame.f_code.co_name
        if waits in ("check_call", "check_output") or (waits == "run" and frame.f_locals.get("check")):
            return True
        frame = frame.f_back
    if frame is None:  # the caller has returned and did not wait
        return False
    return (waits in RETURN_STATUS and _uses_value(frame)) or _names_status(frame)


def _package(frame):
    return (frame.f_globals.get("__name__") or "").partition(".")[0]


def _outside(frame, package):
    while frame is not None and _package(frame) == package:
        frame = frame.f_back
    return frame


def _uses_value(frame):
    """Whether the frame uses the value of its current call, other than to test for None, which only means that the
    child is running."""
    following = [each for each in dis.get_instructions(frame.f_code) if each.offset > frame.f_lasti and each.opname != "CACHE"][:2]
    names = [each.opname for each in following]
    if names[0] == "RETURN_VALUE" and frame.f_back is not None:
        return _uses_value(frame.f_back)
    asks = names[0].endswith(("_NONE", "_NOT_NONE")) or (
        names[0] == "LOAD_CONST" and following[0].argval is None and names[1:] in (["IS_OP"], ["COMPARE_OP"]))
    return names[0] != "POP_TOP" and not asks


def _names_status(frame):
    """Whether the exit status is named in the frame's module, or in one of its callers."""
    codes = []
    for value in list(frame.f_globals.values()):
        for part in list(vars(value).values()) if isinstance(value, type) else [value]:
            if isinstance(part, types.FunctionType) and part.__module__ == frame.f_globals.get("__name__"):
                codes.append(part.__code__)
    for _ in range(CALLERS):
        if frame is not None:
            codes.append(frame.f_code)
            frame = frame.f_back
    return any(map(_names_status_in, codes))


def _names_status_in(code):
    return any(name in code.co_names for name in STATUS_NAMES) or any(
        _names_status_in(part) for part in code.co_consts if isinstance(part, types.CodeType))


@guarded
def report_children():
    if os.getpid() != _owner:
        return
    for child in list(_children):
        seen(child, child.poll())  # multiprocessing joins those that still run later, and then calls this again
    if _failed:
        observe(boards.CHECK_CHILDREN, count=len(_failed), value=_failed[0][1] & (1 << 64) - 1, text=_failed[0][0])
