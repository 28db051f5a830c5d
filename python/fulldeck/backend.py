"""The backend "fulldeck" of torch.distributed: registers it with torch, and creates its groups through the extension.

torch does this automatically if the package is installed (_fulldeck_autoload.py). If that is disabled
(TORCH_DEVICE_BACKEND_AUTOLOAD=0), `import fulldeck.backend` does the same.

The extension (`_C`) is loaded when the first group is created, and only into the torch that it was built for: the C++
classes that it derives from change with every minor version, and a mismatch would crash silently.
"""
import collections
import os
import sys

from fulldeck import _library
from fulldeck._whole import check_whole

_extension = None
_shutdown_pid = None


class NotUsable(RuntimeError):
    """The package cannot work in this Python; the text has the reason and the fix."""


def register():
    """Registers the name with torch.distributed. Does nothing if it is already registered."""
    import _fulldeck_autoload

    _fulldeck_autoload.register_backend()


class Options:
    """`pg_options` of init_process_group and new_group. Must be the same on all members."""

    def __init__(self, check_finite=False):
        """`check_finite`: reductions of floats check for non-finite results; see nonfinite()."""
        self.check_finite = bool(check_finite)


def create(options, group_options=None):
    """Called by torch to create a group: `options` is torch's _DistributedBackendOptions."""
    if group_options is None:
        group_options = Options()
    if not isinstance(group_options, Options):
        raise TypeError("fulldeck: pg_options must be a fulldeck.backend.Options, and is a {}.".format(
            type(group_options).__name__))
    extension = load_extension()
    _shut_down_at_exit()
    return extension.create_backend(store=options.store, rank=options.group_rank, size=options.group_size,
                                    timeout=options.timeout, group_name=options.group_id,
                                    global_ranks=list(options.global_ranks_in_group),
                                    check_finite=group_options.check_finite)


# Number of calls of a group per path: through shared memory on one node; through shared memory on each node and Gloo
# between nodes; through Gloo between all ranks.
Paths = collections.namedtuple("Paths", "local hierarchical flat")
# A non-finite result: the first rank whose input caused it (-1: an overflow), element, call.
Nonfinite = collections.namedtuple("Nonfinite", "rank element call")


def paths(group=None):
    """Paths of a group of this backend; None: the default group."""
    return Paths(*load_extension().paths(_backend_of(group)))


def describe(group=None):
    """The group in one line: ranks, nodes, how it waits and reduces."""
    return load_extension().describe(_backend_of(group))


def nonfinite(group=None):
    """Nonfinite(rank, element, call) if the last reduction of the group gave a non-finite result, otherwise None.
    Requires Options(check_finite=True)."""
    record = load_extension().nonfinite(_backend_of(group))
    return Nonfinite(*record[1:]) if record[0] else None


def _backend_of(group):
    import torch
    import torch.distributed.distributed_c10d as c10d

    group = c10d._get_default_group() if group is None else group
    return group._get_backend(torch.device("cpu"))


def load_extension():
    """The extension module; raises NotUsable."""
    global _extension
    if _extension is None:
        _check_build()
        try:
            _check_files()
            from fulldeck import _C
        except (ImportError, OSError) as error:
            raise NotUsable("fulldeck: the extension in {} cannot be loaded: {}. {}".format(
                os.path.dirname(os.path.abspath(__file__)), error, _again())) from error
        _extension = _C
    return _extension


def _again():
    return "Install fulldeck again from its sources with this Python: {} -m pip install --force-reinstall SOURCES".format(
        sys.executable or "python")


def minor_of(version):
    """(2, 13) for "2.13.0+cu126"; None if it is unknown."""
    parts = str(version).split("+")[0].split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return None


def _check_build():
    """Compares the recorded build environment with the running one, before anything is loaded."""
    try:
        from fulldeck import _build
    except ImportError as error:
        raise NotUsable("fulldeck: {} holds the package's sources and no build of it. {}".format(
            os.path.dirname(os.path.abspath(__file__)), _again())) from error
    import torch

    if _build.TORCH is None:
        raise NotUsable("fulldeck: this installation was built where there was no torch, and has only "
                        "fulldeck.collectives. {}".format(_again()))
    if sys.implementation.cache_tag != _build.PYTHON:
        raise NotUsable("fulldeck: this installation was built for {} and runs in {}. {}".format(
            _build.PYTHON, sys.implementation.cache_tag, _again()))
    running = str(torch.__version__)
    if minor_of(running) is None or minor_of(running) != minor_of(_build.TORCH):
        raise NotUsable("fulldeck: this installation was built for torch {} and runs in torch {}, whose classes differ. "
                        "{}".format(_build.TORCH, running, _again()))
    abi = getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", _build.CXX11_ABI)
    if bool(abi) != bool(_build.CXX11_ABI):
        raise NotUsable("fulldeck: this installation was built for torch {} with the {} C++ ABI, and the torch {} that runs "
                        "has the other one. {}".format(_build.TORCH, "new" if _build.CXX11_ABI else "old", running, _again()))


def _check_files():
    import importlib.util

    spec = importlib.util.find_spec("fulldeck._C")
    if spec is None:
        raise ImportError("there is no extension for {}".format(sys.implementation.cache_tag))
    check_whole(spec.origin)
    for folder in _library.folders()[:2]:
        for name in os.listdir(folder):
            if name.startswith("libfulldeck_torch.so"):
                check_whole(os.path.join(folder, name))


def _shut_down_at_exit():
    """Once per process. atexit handlers run in reverse order of registration: this one runs before those of everything
    imported or set up before the first group, and after those of the program that may still use the group."""
    global _shutdown_pid
    if _shutdown_pid == os.getpid():
        return
    import atexit

    atexit.register(_at_exit, os.getpid())
    _shutdown_pid = os.getpid()


def _at_exit(pid):
    """Does nothing in a forked child, which has none of its parent's threads."""
    if pid == os.getpid():
        shut_down()
        # A waiting daemon thread may be on its way back into Python now, too late for a running interpreter.
        _extension.let_late_threads_hang()


def shut_down():
    """Ends all groups of this process: waits for their threads and releases every Python object that they hold. Called
    at exit; a second call does nothing."""
    if _extension is not None:
        _extension.shutdown_all()


register()
