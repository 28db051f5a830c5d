"""Runs in every Python that finds this folder on PYTHONPATH: the ranks that `fulldeck run` starts. docs/rank-agent.md

It takes its folder off the path again, puts the package fulldeck that was built with it behind everything else on the path,
leaves Python's own crash report (faulthandler) in the rank's crash file, offers Python's stacks for when the rank is asked what it
does, and then lets the sitecustomize that Python would
have found without us run in its place. It never raises, and it leaves exceptions, streams and signals of the program alone.
"""
import os
import sys

# Parts of fulldeck that want to be in a Python rank: names of modules in this folder, each with a function start() that
# takes no argument and returns quickly. They are called in this order, in the rank process and in a Python that a rank
# which is none starts, before the program and any sitecustomize of its own run. One that fails is reported in a line and left out.
ADAPTERS = ["adapters"]


def attempt(what, step, *arguments):
    """Runs one of our own steps; its failure is a line on stderr and nothing more."""
    try:
        step(*arguments)
    except Exception as error:
        try:
            sys.stderr.write("fulldeck: warning: {}: {}: {}\n".format(what, type(error).__name__, error))
        except Exception:  # stderr may be closed or absent
            pass


def remove_from_path(folder):
    """Takes `folder` off sys.path and off PYTHONPATH, so that neither the program nor its children see it."""
    sys.path[:] = [entry for entry in sys.path if not isinstance(entry, str) or os.path.abspath(entry) != folder]
    sys.path_importer_cache.pop(folder, None)
    entries = os.environ.get("PYTHONPATH")
    if entries is None:
        return
    kept = [entry for entry in entries.split(os.pathsep) if not entry or os.path.abspath(entry) != folder]
    if kept:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        del os.environ["PYTHONPATH"]


def offer_package(folder):
    """The package is found where no other of that name is: on PYTHONPATH it would hide the one that the user installed."""
    if os.path.isdir(os.path.join(folder, "fulldeck")) and folder not in sys.path:
        sys.path.append(folder)


def report_crashes():
    """Python's stacks go behind the native one, which the agent writes first. A faulthandler of the user's stays."""
    path = os.environ.get("FULLDECK_CRASH_FILE")
    if not path:
        return
    import faulthandler

    if not faulthandler.is_enabled():
        faulthandler.enable(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600), all_threads=True)


def register_stack_dump():
    """Gives the agent the function that writes Python's stacks, for when it is asked for those of all threads (docs/rank-agent.md).
    faulthandler hands it to sigaction, where the agent, if it has the signal, takes it while the variable is set."""
    if not os.environ.get("FULLDECK_STACK_FILE"):
        return
    import _signal  # not signal, which takes milliseconds

    number = _signal.SIGRTMAX - 5
    with open("/proc/self/status", "rb") as status:
        caught = int(status.read().partition(b"\nSigCgt:")[2].split(None, 1)[0], 16)
    if not caught >> (number - 1) & 1:  # without the agent nobody would answer, and the signal is the program's
        return
    import faulthandler

    # The agent opens this descriptor for the time of each dump; a number that hardly any program reaches.
    descriptor = 979
    os.putenv("FULLDECK_PYTHON_STACKS", str(descriptor))
    try:
        faulthandler.register(number, descriptor, all_threads=True, chain=False)
    finally:
        os.unsetenv("FULLDECK_PYTHON_STACKS")


def start_adapter(folder, name):
    # Not importlib.util, which brings a third of the standard library along.
    from importlib.machinery import ModuleSpec, SourceFileLoader

    # Under a name that no module of the user's has.
    path = os.path.join(folder, name + ".py")
    loader = SourceFileLoader("_fulldeck_hook_" + name, path)
    module = sys.modules[loader.name] = type(sys)(loader.name)
    module.__file__, module.__loader__, module.__spec__ = path, loader, ModuleSpec(loader.name, loader, origin=path)
    loader.exec_module(module)
    module.start()


def enter(folder):
    attempt("cannot leave Python's path", remove_from_path, folder)
    attempt("the package fulldeck cannot be imported", offer_package, os.path.join(os.path.dirname(folder), "python"))
    if os.environ.get("FULLDECK_RANK_PID") == str(os.getpid()):
        attempt("no Python stack will be shown if this rank crashes", report_crashes)
        attempt("its Python stacks will not be shown when it hangs", register_stack_dump)
    # Also in the first Python below a rank that is none: one that is started by a Python has no hook.
    if os.environ.get("FULLDECK_RANK_PID"):
        for name in ADAPTERS:
            attempt(name + " does not work in this rank", start_adapter, folder, name)


enter(os.path.dirname(os.path.abspath(__file__)))

# The next one on the path takes our name and our place; what it raises, and that there is none, is Python's to handle as
# if we had not been here.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402,F401
