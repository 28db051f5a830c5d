"""Waits for the first import of a package that fulldeck has adapters for, and only then brings them in: docs/python.md

In a Python below a rank that is none, a shell that starts it, they are asked whether it stands for the rank (wrapped.py).

A rank that never imports one of them pays for one small object on sys.meta_path. The table of what is done then stands in the
package, fulldeck/adapters/__init__.py."""
import os
import sys

# Top-level names; which modules of them are adapted, and how, is the package's own affair. Those of the second table are only
# waited for where their variable asks for something.
PACKAGES = frozenset(("torch", "torch_gcu", "mmengine", "accelerate") + tuple(
    name for name, variable in (("multiprocessing", "FULLDECK_MP_START_METHOD"), ("cv2", "FULLDECK_OPENCV_THREADS"))
    if os.environ.get(variable)))


# The rank itself, and what it forks.
RANK = os.environ.get("FULLDECK_RANK_PID") == str(os.getpid())


class ImportWatcher:
    """A finder that finds nothing: it gives way to the package's own when one of PACKAGES is asked for."""

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
    except ValueError:  # a program that rebuilds the list has done it
        pass


def load_adapters():
    """The package's adapters, started; None, and a line on stderr, where they cannot be had. The program goes on without."""
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
    # A .pth file of site-packages may have imported one already.
    if PACKAGES.isdisjoint(sys.modules):
        sys.meta_path.insert(0, ImportWatcher())
    else:
        load_adapters()
