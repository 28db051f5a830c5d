"""Runs in every Python process that finds this folder on PYTHONPATH: the ranks that `fulldeck run` starts.
docs/rank-agent.md

It removes its folder from the path, appends the package fulldeck that was built with it to the end of the path, directs
Python's crash report (faulthandler) to the rank's crash file, and registers the writer of Python stacks for requests
during the run. Then it runs the sitecustomize that Python would have found otherwise. It never raises, and it does not
change exceptions, streams or signals of the program.
"""
import os
import sys

# Parts of fulldeck for Python ranks: names of modules in this folder, each with a function start() that takes no
# argument and returns quickly. They are called in this order, before the program and any sitecustomize of its own, in
# the rank process and in a Python process that a rank that is not Python starts. A failure is reported in one line, and
# the part is skipped.
ADAPTERS = ["adapters"]


def attempt(what, step, *arguments):
    """Runs one step of the hook; a failure is only a line on stderr."""
    try:
        step(*arguments)
    except Exception as error:
        try:
            sys.stderr.write("fulldeck: warning: {}: {}: {}\n".format(what, type(error).__name__, error))
        except Exception:  # stderr may be closed or absent
            pass


def remove_from_path(folder):
    """Removes `folder` from sys.path and from PYTHONPATH, so that neither the program nor its children see it."""
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
    """The package comes last on sys.path, so that an installed one takes precedence; on PYTHONPATH it would hide it."""
    if os.path.isdir(os.path.join(folder, "fulldeck")) and folder not in sys.path:
        sys.path.append(folder)


def report_crashes():
    """Python's stacks are appended to the native one, which the agent writes first. A faulthandler that the user
    enabled is kept."""
    path = os.environ.get("FULLDECK_CRASH_FILE")
    if not path:
        return
    import faulthandler

    if not faulthandler.is_enabled():
        faulthandler.enable(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600), all_threads=True)


def register_stack_dump():
    """Registers the handler that writes Python's stacks when those of all threads are requested (docs/rank-agent.md).
    faulthandler passes it to sigaction, where the agent, if it owns the signal, intercepts it while the variable is
    set."""
    if not os.environ.get("FULLDECK_STACK_FILE"):
        return
    import _signal  # not signal, whose import takes milliseconds

    number = _signal.SIGRTMAX - 5
    with open("/proc/self/status", "rb") as status:
        caught = int(status.read().partition(b"\nSigCgt:")[2].split(None, 1)[0], 16)
    if not caught >> (number - 1) & 1:  # without the agent nothing would respond, and the signal belongs to the program
        return
    import faulthandler

    # The agent opens this descriptor only during each dump; hardly any program uses this number.
    descriptor = 979
    os.putenv("FULLDECK_PYTHON_STACKS", str(descriptor))
    try:
        faulthandler.register(number, descriptor, all_threads=True, chain=False)
    finally:
        os.unsetenv("FULLDECK_PYTHON_STACKS")


def start_adapter(folder, name):
    # Not importlib.util, which imports a third of the standard library.
    from importlib.machinery import ModuleSpec, SourceFileLoader

    # Under a name that no user module has.
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
    # Also in the first Python process below a rank that is not Python; a child of a Python process has no hook.
    if os.environ.get("FULLDECK_RANK_PID"):
        for name in ADAPTERS:
            attempt(name + " does not work in this rank", start_adapter, folder, name)


enter(os.path.dirname(os.path.abspath(__file__)))

# The next sitecustomize on the path takes over the name. Exceptions from it, or its absence, are handled by Python as
# if this one did not exist.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402,F401
