"""Observes the children of the user's script: programs and processes that failed while the rank itself ends well. The contract of these checks is
in observing.py; silent.py starts them."""
import functools
import os
import weakref

from fulldeck import board as boards
from fulldeck.adapters import on_import
from fulldeck.adapters.observing import guarded, observe

_children = weakref.WeakKeyDictionary()  # process that has not been seen to end -> its command; held weakly, since it may keep pipes open
_failed = []               # (command, status)
_owner = os.getpid()
# Children that may fail: they only ask something, or belong to a library that looks after them.
ASKING = ("-c", "pip", "ensurepip", "venv", "torch._inductor", "compile_worker", "resource_tracker", "loky", "spawn_main", "forkserver")


def watch_children():
    import subprocess
    on_import("multiprocessing.process", watch_processes)
    popen = subprocess.Popen
    real_init, real_signal = popen.__init__, popen.send_signal

    @functools.wraps(real_init)
    def init(self, args, *arguments, **named):
        real_init(self, args, *arguments, **named)
        started(self, args, named.get("stderr", arguments[4] if len(arguments) > 4 else None))

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

    # Behind the joins that multiprocessing does at the end.
    util.Finalize(None, report_children, exitpriority=-100)


@guarded
def started(child, args, stderr):
    """Programs in Python and shell scripts, whose errors go where the rank's go: who reads them itself looks at the exit code too."""
    words = args.split() if isinstance(args, str) else [os.fsdecode(word) for word in args] if isinstance(args, (list, tuple)) else []
    if stderr is not None or not words or os.getpid() != _owner:
        return
    if not any(os.path.basename(word).startswith(("python", "torchrun", "accelerate", "deepspeed")) or word.endswith((".py", ".sh")) for word in words[:4]):
        return
    if not any(part in word.split(".") or word == part for word in words[:8] for part in ASKING):
        _children[child] = " ".join(words)


@guarded
def started_process(process):
    if not process.daemon and os.getpid() == _owner:
        _children[process._popen] = process.name


@guarded
def ended_by_us(child):
    if child is not None:
        _children.pop(child, None)


@guarded
def seen(child, status):
    if status is not None and os.getpid() == _owner:
        command = _children.pop(child, None)
        if status and command is not None:
            _failed.append((command, status))


@guarded
def report_children():
    if os.getpid() != _owner:
        return
    for child in list(_children):
        seen(child, child.poll())  # multiprocessing joins those that still run later, and this is called again
    if _failed:
        observe(boards.CHECK_CHILDREN, count=len(_failed), value=_failed[0][1] & (1 << 64) - 1, text=_failed[0][0])
