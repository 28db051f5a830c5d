"""Waits for the first import of a package that fulldeck has adapters for, and only then loads them: docs/python.md

In a Python process below a rank that is not Python itself (a shell that starts it), wrapped.py decides whether this
process takes the rank's place.

A rank that never imports such a package pays for one small object on sys.meta_path. The table of adapters is in the
package, fulldeck/adapters/__init__.py."""
import os
import sys

# Top-level names; the package decides which of their modules are adapted, and how. Those of the second table are only
# watched if their variable is set.
PACKAGES = frozenset(("torch", "torch_gcu", "mmengine", "accelerate") + tuple(
    name for name, variable in (("multiprocessing", "FULLDECK_MP_START_METHOD"), ("cv2", "FULLDECK_OPENCV_THREADS"))
    if os.environ.get(variable)))


# The rank itself, and its forked children.
RANK = os.environ.get("FULLDECK_RANK_PID") == str(os.getpid())


class ImportWatcher:
    """A finder that finds nothing: when one of PACKAGES is imported, it is replaced by the package's own finder."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in PACKAGES:
            return None
        leave(self)
        package = load_adapters()
        return package.FINDER.find_spec(name, path, target) if package is not None else None


def acts_as_rank():
    import importlib.util

    spec = importlib.util.spec_from_file_location("_fulldeck_hook_wrapped", os.path.join(os.path.dirname(os.path.abspath(__file__)), "wrapped.py"))
    wrapped = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wrapped)
    return wrapped.claim()


def leave(finder):
    try:
        sys.meta_path.remove(finder)
    except ValueError:  # a program that rebuilds the list has removed it
        pass


def load_adapters():
    """The package's adapters, started; None, and a line on stderr, if they cannot be loaded. The program continues
    without them."""
    try:
        import _fulldeck_autoload

        if not RANK and not acts_as_rank():
            return None
        package = _fulldeck_autoload.package("fulldeck.adapters")
        package.start()
        return package
    except Exception as error:
        try:
            sys.stderr.write("fulldeck: warning: programs that were written for CUDA are not adapted in this rank: {}\n".format(error))
        except Exception:  # stderr may be closed or absent
            pass
    return None


def start():
    if os.environ.get("FULLDECK_ADAPT") == "0":
        return
    # A .pth file in site-packages may have imported one already.
    if PACKAGES.isdisjoint(sys.modules):
        sys.meta_path.insert(0, ImportWatcher())
    else:
        load_adapters()
