"""Finds the Python process that stands for a rank that is not Python itself: `fulldeck run --no-python bash train.sh`,
whose shell starts `python train.py` as a child. That process is adapted and checked like a rank. Only one process at a
time: a second one that runs concurrently is not adapted, nor is one below another Python process, one with a different
rank or without the rank as an ancestor, or a launcher of ranks.

Called at the first import of a package that is adapted, so that programs without such an import leave the place free.
"""
import os

# The variables that define the rank of a process; a launcher below the rank sets its own.
RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LAUNCHERS = frozenset(("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "accelerate.commands.launch",
                       "accelerate-launch", "deepspeed", "horovodrun", "colossalai", "fulldeck"))
MAX_DEPTH = 32  # processes between the rank and its Python process

_lock_fd = None  # the descriptor of the lock that this process holds as long as it lives


def claim():
    """Whether this process, which is not the rank, is adapted in the rank's place. If so, the adapters treat it as the
    rank."""
    global _lock_fd
    try:
        rank = int(os.environ.get("FULLDECK_RANK_PID", ""))
        path = os.environ["FULLDECK_CRASH_FILE"]  # one per rank, in the run folder
        if _is_launcher() or not _is_rank(rank) or not _is_below(rank):
            return False
        import fcntl

        _lock_fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(_lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(_lock_fd)
            _lock_fd = None
            return False
    except (KeyError, ValueError, OSError, ImportError):  # not a child of a rank, or one whose state cannot be read
        return False
    os.environ["FULLDECK_RANK_PID"] = str(os.getpid())
    _keep_board()
    return True


def _read(pid, name):
    with open("/proc/{}/{}".format(pid, name), "rb") as file:
        return file.read()


def _is_python(pid):
    name = os.path.basename(os.readlink("/proc/{}/exe".format(pid)))
    return name.startswith(("python", "pypy"))


def _is_launcher():
    args = [os.fsdecode(arg) for arg in _read("self", "cmdline").split(b"\0")[1:4]]
    return any(os.path.basename(arg) in LAUNCHERS for arg in args)


def _is_rank(pid):
    given = dict(entry.split(b"=", 1) for entry in _read(pid, "environ").split(b"\0") if b"=" in entry)
    return all(given.get(os.fsencode(name)) == os.environb.get(os.fsencode(name)) for name in RANK)


def _is_below(rank):
    """Whether the rank is an ancestor, and neither it nor any process in between is Python: children of Python are not
    adapted."""
    pid = os.getppid()
    for _ in range(MAX_DEPTH):
        if pid <= 1 or _is_python(pid):
            return False
        if pid == rank:
            return True
        pid = int(_read(pid, "stat").rpartition(b")")[2].split()[1])
    return False


def _keep_board():
    """Like the agent in a rank: processes that this one starts must not write to its board."""
    try:
        os.set_inheritable(int(os.environ.get("FULLDECK_BOARD_FD", "")), False)
    except (ValueError, OSError):
        pass
