"""The rank's Python where the rank itself is none: `fulldeck run --no-python bash train.sh`, whose shell starts `python train.py` as a child. That
Python is adapted and checked as the rank is, one at a time: a second one that runs beside it stays as it is, and so does one behind another Python,
one that was given another rank or no ancestor, and a launcher of ranks.

Asked at the first import of a package that is adapted, so that programs which import none leave the place to the next."""
import os

# What says which rank a process is; a launcher below the rank gives its own.
RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LAUNCHERS = frozenset(("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "accelerate.commands.launch",
                       "accelerate-launch", "deepspeed", "horovodrun", "colossalai", "fulldeck"))
MAX_DEPTH = 32  # processes between the rank and its Python

_lock_fd = None  # the descriptor that holds the place as long as this process lives


def claim():
    """Whether this process, which is not the rank, is the one to be adapted in the rank's place. Then it is the rank for the adapters too."""
    global _lock_fd
    try:
        rank = int(os.environ.get("FULLDECK_RANK_PID", ""))
        path = os.environ["FULLDECK_CRASH_FILE"]  # one for each rank, in the run's own folder
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
    except (KeyError, ValueError, OSError, ImportError):  # no rank's child, or one that has nothing to say about it
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
    """Whether the rank is an ancestor, and neither it nor what lies between is a Python, whose children are its own affair."""
    pid = os.getppid()
    for _ in range(MAX_DEPTH):
        if pid <= 1 or _is_python(pid):
            return False
        if pid == rank:
            return True
        pid = int(_read(pid, "stat").rpartition(b")")[2].split()[1])
    return False


def _keep_board():
    """As the agent does in a rank: what this process starts does not write on its board."""
    try:
        os.set_inheritable(int(os.environ.get("FULLDECK_BOARD_FD", "")), False)
    except (ValueError, OSError):
        pass
