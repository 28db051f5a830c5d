"""libfulldeck_collectives.so for ctypes: its location and the signatures of its functions. Mirrors
include/fulldeck/collectives.h line by line; a test compares the two."""
import ctypes
import os
from ctypes import POINTER, c_char_p, c_int, c_int32, c_uint32, c_uint64, c_void_p

from fulldeck._whole import check_whole

FILE_NAMES = ("libfulldeck_collectives.so.0", "libfulldeck_collectives.so")

ANY_SOURCE = -1
REDUCTIONS = {"sum": 1, "avg": 2, "min": 3, "max": 4, "prod": 5, "and": 6, "or": 7, "xor": 8}


class GroupOptions(ctypes.Structure):
    _fields_ = [("struct_bytes", c_uint32), ("rank", c_int32), ("size", c_int32), ("check_finite", c_uint32),
                ("name", c_char_p), ("key", c_char_p), ("timeout_ms", c_uint64)]


class NonfiniteRecord(ctypes.Structure):
    _fields_ = [("struct_bytes", c_uint32), ("rank", c_int32), ("element", c_uint64), ("call", c_uint64)]


FUNCTIONS = {
    "fulldeck_error_text": (c_char_p, []),
    "fulldeck_group_create": (c_int, [POINTER(GroupOptions), POINTER(c_void_p)]),
    "fulldeck_group_destroy": (None, [c_void_p]),
    "fulldeck_group_abort": (None, [c_void_p, c_char_p]),
    "fulldeck_group_status": (c_int, [c_void_p]),
    "fulldeck_group_set_timeout": (c_int, [c_void_p, c_uint64]),
    "fulldeck_all_reduce": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64, c_int, c_int]),
    "fulldeck_reduce": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64, c_int, c_int, c_int]),
    "fulldeck_broadcast": (c_int, [c_void_p, c_void_p, c_uint64, c_int, c_int]),
    "fulldeck_all_gather": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64, c_int]),
    "fulldeck_reduce_scatter": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64, c_int, c_int]),
    "fulldeck_gather": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64, c_int, c_int]),
    "fulldeck_scatter": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64, c_int, c_int]),
    "fulldeck_all_to_all": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64, c_int]),
    "fulldeck_all_to_all_v": (c_int, [c_void_p, c_void_p, POINTER(c_uint64), c_void_p, POINTER(c_uint64), c_int]),
    "fulldeck_barrier": (c_int, [c_void_p]),
    "fulldeck_send": (c_int, [c_void_p, c_void_p, c_uint64, c_int, c_uint64]),
    "fulldeck_receive": (c_int, [c_void_p, c_void_p, c_uint64, c_int, c_uint64, POINTER(c_int)]),
    "fulldeck_allocate": (c_int, [c_void_p, c_uint64, POINTER(c_void_p)]),
    "fulldeck_free": (None, [c_void_p, c_void_p]),
    "fulldeck_nonfinite": (c_int, [c_void_p, POINTER(NonfiniteRecord)]),
}

_loaded = None


def folders():
    """Folders that may contain the library: the package (a wheel), lib/ above lib/python/fulldeck (a build or a
    release), and build/ of the source tree that contains the package."""
    package = os.path.dirname(os.path.abspath(__file__))
    return [package, os.path.dirname(os.path.dirname(package)),
            os.path.join(os.path.dirname(os.path.dirname(package)), "build", "lib")]


def find():
    for folder in folders():
        for name in FILE_NAMES:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    raise OSError("fulldeck: {} is in none of {}. Build it (make build) or install the package again.".format(
        FILE_NAMES[0], ", ".join(folders())))


def load():
    """The library, loaded once per process, with its functions declared."""
    global _loaded
    if _loaded is None:
        path = find()
        try:
            check_whole(path)
            library = ctypes.CDLL(path)
            for name, (result, arguments) in FUNCTIONS.items():
                function = getattr(library, name)
                function.restype = result
                function.argtypes = arguments
        except (OSError, AttributeError) as error:
            raise OSError("fulldeck: {} cannot be used: {}. Build it or install the package again.".format(path, error)) from error
        _loaded = library
    return _loaded
