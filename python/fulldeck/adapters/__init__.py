"""Adapts torch and the frameworks when a rank of `fulldeck run` imports them, so that programs written for CUDA train
on the rank's card unchanged. No file changes; `--no-adapt` (FULLDECK_ADAPT=0) disables it. docs/python.md

An adapter is a module with a function adapt(module), called once when the import of `module` has finished, whichever
code imports it and whenever. It returns a short description of what it did, for the one line that is printed per
package, or None if there was nothing to do. It raises NotKnown for an unknown version. None of its exceptions reach the
program.
"""
import importlib
import os
import sys
import threading
import time

# Imported module -> adapters, in this order; names of modules in this package.
TABLE = {
    "torch": ["cuda", "store", "distributed", "data_parallel", "sync_batch_norm", "fingerprints", "silent", "children"],
    "torch_gcu": ["t20"],
    "mmengine": ["mmengine"],
    "accelerate": ["accelerate"],
    "multiprocessing": ["start_method"],
    "cv2": ["opencv"],
}
# The oldest known version; older ones are not adapted, and a line reports it.
OLDEST = {"torch": (2, 0)}
# Modules that may be missing, and that an adapter may then replace.
STAND_INS = {"torch_gcu": "torch_gcu"}


class NotKnown(Exception):
    """The adapter does not know this version, which the text names. It must not have changed anything."""


def say(text):
    """Prints a line of fulldeck in the rank's output. Never raises."""
    try:
        sys.stderr.write("fulldeck: {}\n".format(text))
        sys.stderr.flush()
    except Exception:  # stderr may be closed or absent
        pass


_said = set()


def say_once(text):
    if text not in _said:
        _said.add(text)
        say(text)


def asked(name):
    """Whether a switch in the environment is on: FULLDECK_PLACE=1."""
    return os.environ.get(name, "") not in ("", "0")


class Loader:
    """Replaces the loader in a module's spec until the module is executed, and then restores the real loader, so that
    the module shows no trace of it."""

    def __init__(self, real, finder):
        self.real, self.finder = real, finder

    def __getattr__(self, name):  # get_code, is_package, get_resource_reader …
        return getattr(self.real, name)

    def create_module(self, spec):
        return self.real.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = self.real
        module.__loader__ = self.real
        # An error here is the program's own: the package is half installed, for example.
        self.real.exec_module(module)
        self.finder.imported(module.__name__)


class Finder:
    """Finds what the other finders find, and is notified when the import has finished."""

    def __init__(self):
        self.waiting = {}
        self.lock = threading.RLock()
        self.searching = threading.local()

    def on_import(self, name, function):
        with self.lock:
            self.waiting.setdefault(name, []).append(function)
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            self.imported(name)

    def find_spec(self, name, path=None, target=None):
        if (name not in self.waiting and name not in STAND_INS) or getattr(self.searching, "name", None) == name:
            return None
        self.searching.name = name
        try:
            spec = self.elsewhere(name, path, target)
        finally:
            self.searching.name = None
        if spec is None:
            return self.stand_in(name) if name in STAND_INS else None
        # Namespace packages have no loader, and old loaders (load_module) cannot be wrapped: both are skipped.
        if name in self.waiting and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader, self)
        return spec

    def elsewhere(self, name, path, target):
        """The spec from the other finders."""
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if finder is not self and find is not None else None
            if spec is not None:
                return spec
        return None

    def stand_in(self, name):
        try:
            return importlib.import_module("fulldeck.adapters." + STAND_INS[name]).find()
        except Exception as error:
            say("warning: there is no {} for simulated cards: {}: {}".format(name, type(error).__name__, error))
            return None

    def imported(self, name):
        with self.lock:
            functions = self.waiting.pop(name, [])
        for function in functions:
            try:
                function(sys.modules[name])
            except Exception as error:
                say("warning: {} is not adapted: {}: {}".format(name, type(error).__name__, error))


FINDER = Finder()


def on_import(package, function):
    """Calls function(module) when the import of `package` has finished, or immediately if it already has. Exceptions
    are reported in a line."""
    FINDER.on_import(package, function)


def version_of(module):
    """(2, 13) for "2.13.0+cpu"; a very high version if it is unknown, because versions without a number are source
    builds."""
    try:
        first, second = str(module.__version__).split(".")[:2]
        return int(first), int(second)
    except (AttributeError, ValueError):
        return 1 << 30, 0


# Module -> seconds of CPU time of its adapters; for measurements only.
spent = {}


def adapt(module):
    """Runs the adapters in TABLE for `module`, and reports in one line what they did."""
    name = module.__name__
    if version_of(module) < OLDEST.get(name, (0, 0)):
        say("warning: {} {} is left as it is: versions before {} are not known".format(
            name, getattr(module, "__version__", "of unknown version"), ".".join(map(str, OLDEST[name]))))
        return
    started = time.process_time()
    done = []
    for adapter in TABLE[name]:
        try:
            did = importlib.import_module("fulldeck.adapters." + adapter).adapt(module)
            if did:
                done.append(did)
        except NotKnown as error:
            say("warning: {} is left as it is ({}): {}".format(name, adapter, error))
        except Exception as error:
            say("warning: {} is not adapted ({}): {}: {}".format(name, adapter, type(error).__name__, error))
    spent[name] = time.process_time() - started
    if done and not _child:
        say("adapted {} {}: {}".format(name, getattr(module, "__version__", "of unknown version"), "; ".join(done)))


_child = False


def is_child():
    """Whether a rank spawned this process: it has the rank's card, but is not a rank."""
    return _child


def start(child=False):
    """Called by the hook in the rank's process, at the first import of a package that it knows; and in children that
    the rank spawns."""
    global _child
    _child = child
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
        for package in TABLE:
            on_import(package, adapt)
