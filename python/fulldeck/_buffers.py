"""Address, size and type of the data in an array or a plain buffer. Accepts any object with Python's buffer protocol:
numpy arrays, bytes, bytearray, array.array, memoryview, ctypes arrays. Does not need numpy."""
import ctypes
import sys

from fulldeck.errors import ArgumentError

# Name: (number in the C interface, bytes).
DATATYPES = {
    "bool": (1, 1), "int8": (2, 1), "uint8": (3, 1), "int16": (4, 2), "uint16": (5, 2), "int32": (6, 4), "uint32": (7, 4),
    "int64": (8, 8), "uint64": (9, 8), "float16": (10, 2), "bfloat16": (11, 2), "float32": (12, 4), "float64": (13, 8),
}
_SIGNED = "bhilqn"
_UNSIGNED = "BHILQNc"
_FLOATS = {"e": "float16", "f": "float32", "d": "float64"}
_OTHER_ORDER = ">!" if sys.byteorder == "little" else "<"


class PyBuffer(ctypes.Structure):
    """Py_buffer of Python's C API."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
                ("strides", ctypes.POINTER(ctypes.c_ssize_t)), ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
                ("internal", ctypes.c_void_p)]


_WRITABLE, _FORMAT, _C_CONTIGUOUS = 0x0001, 0x0004, 0x0020 | 0x0010 | 0x0008
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = [ctypes.POINTER(PyBuffer)]
_release.restype = None


def name_of(dtype):
    """The name of a type that the caller passed: "float32", numpy.float32, numpy.dtype("f4"), "bfloat16"."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    if name == "bool_":
        name = "bool"
    if name not in DATATYPES:
        raise ArgumentError("'{}' is not a type that can be reduced or moved; there are {}".format(
            dtype, ", ".join(DATATYPES)))
    return name


def _name_of_format(text, itemsize, thing):
    letters = text.lstrip("@=<>!") if len(text) > 1 else text
    if len(letters) == 1 and not (text[0] in _OTHER_ORDER and itemsize > 1):
        if letters == "?":
            return "bool"
        if letters in _FLOATS:
            return _FLOATS[letters]
        if letters in _SIGNED or letters in _UNSIGNED:
            return "{}int{}".format("" if letters in _SIGNED else "u", 8 * itemsize)
    if text[0] in _OTHER_ORDER:
        why = "its bytes are in the order of another machine"
    elif letters[:1] == "Z":
        why = "complex numbers cannot be reduced; give a view of it as floats"
    else:
        why = "there is no such type here; give a view of it as bytes if it is only to be moved"
    raise ArgumentError("{} holds elements of the format '{}': {}".format(_describe(thing), text, why))


def _describe(thing):
    return "the {}".format(type(thing).__name__)


class View:
    """One buffer during one call; the object cannot be resized or freed until release(). Fields: address, count
    (elements), name and code of the type, item_bytes, bytes."""

    __slots__ = ("address", "bytes", "count", "name", "code", "item_bytes", "_raw")

    def __init__(self, thing, writable=False, dtype=None, like=None, only_moved=False):
        """`dtype`: the type according to the caller. `like`: another View whose type it must have; plain bytes adopt
        it. `only_moved`: treated as bytes, whatever the type."""
        self._raw = None
        self.name = None if dtype is None else name_of(dtype)
        raw = PyBuffer()
        flags = _FORMAT | _C_CONTIGUOUS | (_WRITABLE if writable else 0)
        try:
            try:
                _get_buffer(thing, raw, flags)
            except ValueError:
                # Types that an extension adds to numpy have no buffer format.
                if getattr(getattr(thing, "dtype", None), "name", None) != "bfloat16" or self.name not in (None, "bfloat16"):
                    raise
                self.name = "bfloat16"
                _get_buffer(thing.view("uint16"), raw, flags)
        except (BufferError, TypeError, ValueError) as error:
            raise ArgumentError("{} is not a {}contiguous buffer: {}".format(
                _describe(thing), "writable, " if writable else "", error)) from error
        self._raw = raw
        try:
            self._set_type(thing, raw, like, only_moved)
        except ArgumentError:
            self.release()
            raise
        self.bytes = raw.len
        self.count = raw.len // self.item_bytes
        self.address = raw.buf or 0

    def _set_type(self, thing, raw, like, only_moved):
        if only_moved:
            self.name = "uint8"
        elif self.name is None:
            self.name = _name_of_format(raw.format.decode() if raw.format else "B", raw.itemsize, thing)
            if like is not None and like.name != self.name:
                if self.name != "uint8":
                    raise ArgumentError("one of the arrays holds {}, the other {}".format(like.name, self.name))
                self.name = like.name
        self.code, self.item_bytes = DATATYPES[self.name]
        if not only_moved and (raw.itemsize not in (1, self.item_bytes) or raw.len % self.item_bytes != 0):
            raise ArgumentError("{} of {} bytes in elements of {} cannot be read as {}".format(
                _describe(thing), raw.len, raw.itemsize, self.name))

    def release(self):
        if self._raw is not None:
            _release(self._raw)
            self._raw = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def overlaps(self, other):
        return self.address < other.address + other.bytes and other.address < self.address + self.bytes


def empty_like(thing, view, shape, count):
    """Memory for `count` elements of the type of `view`: an array of `shape` if `thing` is an array, otherwise a
    bytearray."""
    if hasattr(thing, "dtype") and hasattr(thing, "shape"):
        import numpy

        return numpy.empty(shape, dtype=thing.dtype)
    return bytearray(count * view.item_bytes)
