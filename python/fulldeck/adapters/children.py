"""Processes that a rank starts with multiprocessing. Forked children are adapted like the rank. Children of the methods
spawn and forkserver start with a fresh Python: the data that such a child reads first loads the adapters into it, so
that it has the rank's card too. A program that starts its own ranks, although the launcher has already started several,
is rejected."""
import functools
import inspect
import os

from fulldeck.adapters import on_import

# Runs in the child before any code of the program; a failure in it must not make the child fail.
CODE = """
try:
    import sys
    if {path!r} not in sys.path:
        sys.path.append({path!r})
    import _fulldeck_autoload
    _fulldeck_autoload.package("fulldeck.adapters").start(child=True)
except Exception as error:
    try:
        sys.stderr.write("fulldeck: warning: a child of this rank is not adapted: {{}}\\n".format(error))
    except Exception:
        pass
"""


class Start:
    """Pickles to a call that starts the adapters when it is unpickled."""

    def __reduce__(self):
        return exec, (CODE.format(path=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))), {})


def adapt(torch):
    on_import("multiprocessing.spawn", follow)
    on_import("torch.multiprocessing.spawn", refuse_ranks)
    return None


def follow(spawn):
    real = spawn.get_preparation_data

    @functools.wraps(real)
    def get_preparation_data(*arguments, **named):
        data = real(*arguments, **named)
        data["fulldeck"] = Start()  # the child ignores keys that it does not know
        return data

    spawn.get_preparation_data = get_preparation_data


def refuse_ranks(spawn):
    import torch

    real = spawn.start_processes
    signature = inspect.signature(real)

    @functools.wraps(real)
    def start_processes(*arguments, **named):
        call = signature.bind(*arguments, **named)
        call.apply_defaults()
        wanted, started = call.arguments.get("nprocs", 1), os.environ.get("WORLD_SIZE", "1")
        if isinstance(wanted, int) and wanted > 1 and started not in ("", "1") and os.environ.get("FULLDECK_RANK_PID") == str(os.getpid()):
            raise RuntimeError(
                "fulldeck: the program starts {0} processes of its own (torch.multiprocessing.spawn), and the launcher started {1} ranks: that "
                "would be {0} in each. Let it start them itself (fulldeck run --nproc-per-node 1), or let the launcher do it: call the function "
                "once, with LOCAL_RANK from the environment. If they are no ranks: --no-adapt.".format(wanted, started))
        return real(*arguments, **named)

    spawn.start_processes = start_processes
    if getattr(torch.multiprocessing, "start_processes", None) is real:
        torch.multiprocessing.start_processes = start_processes
