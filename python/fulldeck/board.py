"""Writes the rank board from Python programs: the progress of a rank, for `fulldeck top`, the launcher's progress line
and its diagnosis. Mirrors include/fulldeck/rank_board.h, which defines each value and which thread may write it.

    from fulldeck import board

    mine = board.ours()                # of this process, opened once; without a board, every call does nothing
    mine.phase(board.COMPUTE)
    mine.step(12, total_steps=1000, loss=0.51)

Nothing here raises because of the board, waits, or makes a system call, except open, identity and group_join. A forked
child does not write: calls on its parent's board do nothing there.
"""
import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_uint32, c_uint64, c_void_p

from fulldeck import _library
from fulldeck._whole import check_whole

FILE_NAMES = ("libfulldeck_board.so.0", "libfulldeck_board.so")

AGENT, HOOK, RUNTIME = 1, 2, 4
(STARTING, INIT, LOADING, COMPILING, DATA, COMPUTE, COMMUNICATION, CHECKPOINT, VALIDATION, FINISHED, OTHER_PHASE) = range(1, 12)
GROUPS = 8
(CHECK_GROUP, CHECK_WEIGHTS, CHECK_GRADIENTS, CHECK_LABELS, CHECK_VALIDATION, CHECK_CHILDREN, CHECK_DEVICE, CHECK_FINITE, CHECK_RANDOM,
 CHECK_VISIBILITY, CHECK_DISABLED, CHECK_MODULES) = range(12)
OPERATIONS = {name: number for number, name in enumerate(
    ("barrier", "broadcast", "all_reduce", "reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all", "send", "receive",
     "other", "meeting"), 1)}
DATATYPES = {name: number for number, name in enumerate(
    ("none", "bool", "int8", "uint8", "int16", "int32", "int64", "float8", "float16", "bfloat16", "float32", "float64", "complex64",
     "complex128", "other"))}

FAILURES = {name: number for number, name in enumerate(("other", "peer-lost", "different-calls", "nonfinite", "timeout"), 1)}


class Figures(ctypes.Structure):
    """fulldeck_board_figures."""
    _fields_ = [("struct_bytes", c_uint32), ("has_loss", c_uint32), ("step", c_uint64), ("total_steps", c_uint64), ("epoch", c_uint64),
                ("loss", c_double), ("samples", c_uint64), ("data_ns", c_uint64), ("compute_ns", c_uint64), ("communication_ns", c_uint64),
                ("checkpoint_ns", c_uint64), ("batch_fingerprint", c_uint64), ("parameters_fingerprint", c_uint64), ("reductions", c_uint64),
                ("unreduced_steps", c_uint64), ("repeated_orders", c_uint64)]


class Collective(ctypes.Structure):
    """fulldeck_board_collective."""
    _fields_ = [("struct_bytes", c_uint32), ("operation", c_uint32), ("datatype", c_uint32), ("root", c_int32), ("count", c_uint64),
                ("bytes", c_uint64), ("sequence", c_uint64), ("fingerprint", c_uint64)]


FUNCTIONS = {
    "fulldeck_board_open": (c_int, [POINTER(c_void_p)]),
    "fulldeck_board_error": (c_char_p, []),
    "fulldeck_board_close": (None, [c_void_p]),
    "fulldeck_board_identity": (None, [c_void_p, c_uint32, c_char_p]),
    "fulldeck_board_stack_signal": (None, [c_void_p, c_int]),
    "fulldeck_board_phase": (None, [c_void_p, c_int]),
    "fulldeck_board_step": (c_int, [c_void_p, POINTER(Figures)]),
    "fulldeck_board_memory": (None, [c_void_p, c_uint64, c_uint64]),
    "fulldeck_board_saved": (None, [c_void_p, c_uint64]),
    "fulldeck_board_log_lost": (None, [c_void_p, c_uint64]),
    "fulldeck_board_probed": (None, [c_void_p]),
    "fulldeck_board_card_use": (c_int, [c_void_p]),
    "fulldeck_board_heartbeat": (None, [c_void_p]),
    "fulldeck_board_group_join": (c_int, [c_void_p, c_uint64, c_char_p, c_uint32, c_uint32]),
    "fulldeck_board_group_leave": (None, [c_void_p, c_int]),
    "fulldeck_board_collective_begin": (c_uint64, [c_void_p, c_int, POINTER(Collective)]),
    "fulldeck_board_collective_end": (None, [c_void_p, c_int, c_uint64]),
    "fulldeck_board_observe": (None, [c_void_p, c_int, c_uint32, c_uint64, c_uint64, c_uint64, c_char_p]),
    "fulldeck_board_set_error": (None, [c_void_p, c_char_p]),
    "fulldeck_board_set_failure": (None, [c_void_p, c_uint32, c_int, c_char_p]),
}


def find():
    """The library's file; None if it is in none of the package's library folders."""
    for folder in _library.folders():
        for name in FILE_NAMES:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    return None


class _Nothing:
    """Replaces the library if there is no board: each function does nothing."""

    def __getattr__(self, name):
        if name not in FUNCTIONS:
            raise AttributeError(name)
        return lambda *ignored: -2 if name == "fulldeck_board_group_join" else 0


def _load(path):
    check_whole(path)
    library = ctypes.CDLL(path)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Board:
    """This rank's record, or a stub without a board: see `is_open` and `why_not`. `figures` keeps the last reported
    values. The fastest way to report every step is to set its fields and call tell(). Its fingerprints count for one
    step only."""

    def __init__(self):
        self._library, self._handle = _Nothing(), c_void_p()
        self.why_not = ""
        self.steps_reported = False  # by the program itself; the adapters then do not report steps
        self.figures = Figures(struct_bytes=ctypes.sizeof(Figures))
        self._figures = byref(self.figures)
        try:
            path = find()
            if not os.environ.get("FULLDECK_BOARD_FD"):
                self.why_not = "this program was not started by fulldeck run"
            elif path is None:
                self.why_not = "{} is in none of {}".format(FILE_NAMES[0], ", ".join(_library.folders()))
            else:
                library = _load(path)
                if library.fulldeck_board_open(byref(self._handle)) == 0:
                    self._library = library
                else:
                    self.why_not = library.fulldeck_board_error().decode("utf-8", "replace")
        except (OSError, AttributeError) as error:  # a library of a different version, or a truncated one
            self.why_not = str(error)
        self._step = self._library.fulldeck_board_step
        self._phase = self._library.fulldeck_board_phase

    @property
    def is_open(self):
        return bool(self._handle)

    def close(self):
        handle, self._handle = self._handle, c_void_p()
        self._library.fulldeck_board_close(handle)
        self._library = _Nothing()
        self._step, self._phase = self._library.fulldeck_board_step, self._library.fulldeck_board_phase

    def identity(self, loaded, program=None):
        self._library.fulldeck_board_identity(self._handle, loaded, _bytes(program))

    # ---- thread: the loop's

    def phase(self, phase):
        self._phase(self._handle, phase)

    def tell(self):
        """A step was done: writes the values in `figures`."""
        self._step(self._handle, self._figures)
        self.figures.batch_fingerprint = self.figures.parameters_fingerprint = 0

    def step(self, step, loss=None, **fields):
        """A step was done. `fields` are those of Figures; fields that are not passed keep their last value."""
        self.steps_reported = True
        figures = self.figures
        figures.step = step
        figures.has_loss = loss is not None
        if loss is not None:
            figures.loss = loss
        for name, value in fields.items():
            setattr(figures, name, value)
        self.tell()

    def memory(self, bytes_now, bytes_peak):
        self._library.fulldeck_board_memory(self._handle, bytes_now, bytes_peak)

    def saved(self, file):
        """`file`: a number that identifies the file; not 0."""
        self._library.fulldeck_board_saved(self._handle, file)

    # ---- thread: one other

    def heartbeat(self):
        self._library.fulldeck_board_heartbeat(self._handle)

    # ---- thread: one per group

    def group_join(self, group, name, size, rank):
        """The slot; negative if none is free, and calls with it do nothing."""
        return self._library.fulldeck_board_group_join(self._handle, group, _bytes(name), size, rank)

    def group_leave(self, slot):
        self._library.fulldeck_board_group_leave(self._handle, slot)

    def collective_begin(self, slot, operation, datatype="none", count=0, bytes=0, root=-1, sequence=0, fingerprint=0):
        """The call's number, for collective_end; 0 if nothing was written. Unknown names are reported as "other"."""
        call = Collective(ctypes.sizeof(Collective), OPERATIONS.get(operation, OPERATIONS["other"]),
                          DATATYPES.get(datatype, DATATYPES["other"]), root, count, bytes, sequence, fingerprint)
        return self._library.fulldeck_board_collective_begin(self._handle, slot, byref(call))

    def collective_end(self, slot, sequence):
        self._library.fulldeck_board_collective_end(self._handle, slot, sequence)

    # ---- thread: one per check

    def observe(self, check, state=0, value=0, count=0, step=0, text=None):
        """What this rank observed of the user's script; `check` is one of CHECK_…, whose values fulldeck/rank_board.h
        explains."""
        self._library.fulldeck_board_observe(self._handle, check, state, value, count, step, _bytes(text))

    # ---- thread: any

    def probed(self):
        """A probe of fulldeck on the rank's card has ended: earlier work on the card is not the program's."""
        self._library.fulldeck_board_probed(self._handle)

    def set_error(self, text):
        self._library.fulldeck_board_set_error(self._handle, _bytes(text))

    def set_failure(self, kind, culprit, text):
        """`kind`: a name of FAILURES. `culprit`: RANK of the rank that caused it, possibly this one; None: unknown."""
        self._library.fulldeck_board_set_failure(self._handle, FAILURES[kind], -1 if culprit is None else culprit, _bytes(text))


def _bytes(text):
    return None if text is None else str(text).encode("utf-8", "replace").replace(b"\0", b"?")


_ours = None


def ours():
    """The board of this process, opened at the first call and kept open until the process ends."""
    global _ours
    if _ours is None:
        _ours = Board()
    return _ours
