"""Collective operations between the processes of one node, on numpy arrays and plain buffers. Without torch; Python
3.8.

    from fulldeck.collectives import Group

    with Group.from_environment() as group:      # RANK and WORLD_SIZE, as `fulldeck run` and torchrun set them
        group.all_reduce(gradients)              # in place
        everyone = group.all_gather(mine)        # shape (size, …)

Buffers must be contiguous: numpy arrays, bytes, bytearray, array.array, memoryview and ctypes arrays. The type is that
of the buffer; `dtype` overrides it: "bfloat16" for an array of uint16, "float32" for bytes. Without `out`, results are
new arrays, or bytearrays if the input is not an array.

All members make the same calls in the same order. Calls release the GIL while they wait and may come from any thread;
Ctrl-C takes effect only after a waiting call returns. Every wait has a timeout. fulldeck.errors lists the exceptions;
the group remains usable only after an ArgumentError. include/fulldeck/collectives.h has the whole contract: order of
sums, timeouts, death of a member.
"""
import atexit
import collections
import ctypes
import os
import threading
import weakref

from fulldeck import _library
from fulldeck._buffers import DATATYPES, View, empty_like, name_of
from fulldeck.errors import (Aborted, ArgumentError, Error, Mismatch, NoMemory, PeerLost, Stranger, TimedOut,  # noqa: F401
                             error_for)

ANY_SOURCE = _library.ANY_SOURCE

Nonfinite = collections.namedtuple("Nonfinite", "rank element call")
Nonfinite.__doc__ = "A result that is not finite: the first rank whose input caused it (-1: an overflow), element, call."

_groups = weakref.WeakSet()


@atexit.register
def _leave_all():
    for group in list(_groups):
        group.close()


class Group:
    """This process's membership of a group. Every member creates it, each with its own rank, within the timeout."""

    def __init__(self, rank, size, name="world", key=None, timeout=None, check_finite=False):
        """`key`: the same on all members and in no other group; None: derived from the launcher's variables. `timeout`:
        seconds, or a timedelta, for creating the group and for every call; None: 30 minutes. `check_finite`: see
        nonfinite()."""
        self._handle = None
        self._closed = False
        self._calls = 0
        self._allocations = 0
        self._idle = threading.Condition()
        self._pid = os.getpid()
        self._library = _library.load()
        self.rank, self.size, self.name = int(rank), int(size), str(name)
        options = _library.GroupOptions(
            struct_bytes=ctypes.sizeof(_library.GroupOptions), rank=_int32(rank, "rank"), size=_int32(size, "size"),
            check_finite=1 if check_finite else 0, name=_text(name, "name"), key=None if key is None else _text(key, "key"),
            timeout_ms=0 if timeout is None else _milliseconds(timeout))
        handle = ctypes.c_void_p()
        self._check(self._library.fulldeck_group_create(options, handle))
        self._handle = handle.value
        _groups.add(self)

    @classmethod
    def from_environment(cls, local=False, **options):
        """The group of all ranks of the run (RANK, WORLD_SIZE), or with `local` of those on this node (LOCAL_RANK,
        LOCAL_WORLD_SIZE). `options` are those of the class."""
        names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE") if local else ("RANK", "WORLD_SIZE")
        values = []
        for name in names:
            try:
                values.append(int(os.environ[name]))
            except (KeyError, ValueError):
                raise ArgumentError("{} is {} in the environment. Start the program with `fulldeck run` or torchrun, "
                                    "or give rank and size: Group(rank, size, key=…)".format(
                                        name, repr(os.environ[name][:80]) if name in os.environ else "not")) from None
        here = os.environ.get("LOCAL_WORLD_SIZE", "")
        if not local and here.isdigit() and int(here) != values[1]:
            raise ArgumentError("{} of the {} ranks run on this host, and a group has its members on one host. "
                                "local=True makes the group of this host's ranks.".format(here, values[1]))
        return cls(values[0], values[1], **options)

    # ---- collectives ----

    def all_reduce(self, array, op="sum", out=None, dtype=None):
        """Every member gets the reduction of all members' arrays, in place or in `out`. Returns it."""
        if out is None:
            with View(array, True, dtype) as view:
                self._call("fulldeck_all_reduce", view.address, view.address, view.count, view.code, _reduction(op))
            return array
        with View(array, False, dtype) as source, View(out, True, dtype, source) as result:
            _same_size(result, source.count, "out")
            _same_or_disjoint(source, result)
            self._call("fulldeck_all_reduce", source.address, result.address, source.count, source.code, _reduction(op))
        return out

    def reduce(self, array, root=0, op="sum", out=None, dtype=None):
        """Only `root` gets the reduction, in place or in `out`; returns it there, and None elsewhere."""
        if self.rank != root:
            with View(array, False, dtype) as source:
                self._call("fulldeck_reduce", source.address, None, source.count, source.code, _reduction(op), _int32(root, "root"))
            return None
        target = array if out is None else out
        with View(array, out is None, dtype) as source, View(target, True, dtype, source) as result:
            _same_size(result, source.count, "out")
            _same_or_disjoint(source, result)
            self._call("fulldeck_reduce", source.address, result.address, source.count, source.code, _reduction(op),
                       _int32(root, "root"))
        return target

    def broadcast(self, array, root=0, dtype=None):
        """Every member's array is overwritten with that of `root`. Returns it."""
        with View(array, self.rank != root, dtype) as view:
            self._call("fulldeck_broadcast", view.address, view.count, view.code, _int32(root, "root"))
        return array

    def all_gather(self, array, out=None, dtype=None):
        """Every member gets all members' arrays, in rank order: shape (size, …)."""
        with View(array, False, dtype) as source:
            if out is None:
                out = empty_like(array, source, (self.size,) + getattr(array, "shape", ()), source.count * self.size)
            with View(out, True, dtype, source) as result:
                _same_size(result, source.count * self.size, "out")
                self._own_chunk_or_disjoint(source, result)
                self._call("fulldeck_all_gather", source.address, result.address, source.count, source.code)
        return out

    def reduce_scatter(self, array, op="sum", out=None, dtype=None):
        """The arrays hold `size` chunks each; every member gets the reduction of the chunks with its own number. An
        array of shape (size, …) yields a chunk of shape (…), one of (n × size, …) a chunk of (n, …)."""
        with View(array, False, dtype) as source:
            count = self._chunk(source, "array")
            if out is None:
                out = empty_like(array, source, self._chunk_shape(array, count), count)
            with View(out, True, dtype, source) as result:
                _same_size(result, count, "out")
                self._own_chunk_or_disjoint(result, source)
                self._call("fulldeck_reduce_scatter", source.address, result.address, count, source.code, _reduction(op))
        return out

    def gather(self, array, root=0, out=None, dtype=None):
        """Only `root` gets all members' arrays, shape (size, …); returns them there, and None elsewhere."""
        with View(array, False, dtype) as source:
            if self.rank != root:
                self._call("fulldeck_gather", source.address, None, source.count, source.code, _int32(root, "root"))
                return None
            if out is None:
                out = empty_like(array, source, (self.size,) + getattr(array, "shape", ()), source.count * self.size)
            with View(out, True, dtype, source) as result:
                _same_size(result, source.count * self.size, "out")
                self._own_chunk_or_disjoint(source, result)
                self._call("fulldeck_gather", source.address, result.address, source.count, source.code, _int32(root, "root"))
        return out

    def scatter(self, array, root=0, out=None, dtype=None):
        """Each member gets its chunk of the array of `root`, split as in reduce_scatter. `array` is used on `root`
        only; the others pass None and must pass `out`."""
        if self.rank != root:
            if out is None:
                raise ArgumentError("scatter needs 'out' on every rank but the root, which alone knows the size")
            with View(out, True, dtype) as result:
                self._call("fulldeck_scatter", None, result.address, result.count, result.code, _int32(root, "root"))
            return out
        with View(array, False, dtype) as source:
            count = self._chunk(source, "array")
            if out is None:
                out = empty_like(array, source, self._chunk_shape(array, count), count)
            with View(out, True, dtype, source) as result:
                _same_size(result, count, "out")
                self._own_chunk_or_disjoint(result, source)
                self._call("fulldeck_scatter", source.address, result.address, count, source.code, _int32(root, "root"))
        return out

    def all_to_all(self, array, out=None, dtype=None):
        """Chunk r of the array goes to rank r; the result holds the chunks from all ranks, in rank order. Not in
        place."""
        with View(array, False, dtype) as source:
            count = self._chunk(source, "array")
            if out is None:
                out = empty_like(array, source, getattr(array, "shape", ()), source.count)
            with View(out, True, dtype, source) as result:
                _same_size(result, source.count, "out")
                _disjoint(source, result)
                self._call("fulldeck_all_to_all", source.address, result.address, count, source.code)
        return out

    def all_to_all_v(self, array, input_counts, output_counts, out=None, dtype=None):
        """Like all_to_all, with chunks of any size: input_counts[r] elements go to rank r, output_counts[r] come from
        it."""
        given, taken = self._counts(input_counts, "input_counts"), self._counts(output_counts, "output_counts")
        with View(array, False, dtype) as source:
            _same_size(source, sum(given), "array")
            if out is None:
                out = empty_like(array, source, (sum(taken),), sum(taken))
            with View(out, True, dtype, source) as result:
                _same_size(result, sum(taken), "out")
                _disjoint(source, result)
                self._call("fulldeck_all_to_all_v", source.address, given, result.address, taken, source.code)
        return out

    def barrier(self):
        """Returns when every member has called it."""
        self._call("fulldeck_barrier")

    # ---- point to point ----

    def send(self, array, to, tag=0):
        """Returns when the array may be reused, which can be before it is received."""
        with View(array, only_moved=True) as view:
            self._call("fulldeck_send", view.address, view.bytes, _int32(to, "to"), _uint64(tag, "tag"))

    def receive(self, array, source=ANY_SOURCE, tag=0):
        """Fills the array with the next message of this sender and tag, which must have exactly its size. Returns the
        sender."""
        came_from = ctypes.c_int(-1)
        with View(array, True, only_moved=True) as view:
            self._call("fulldeck_receive", view.address, view.bytes, _int32(source, "source"), _uint64(tag, "tag"), came_from)
        return came_from.value

    # ---- shared memory ----

    def allocate(self, shape, dtype="float32"):
        """A numpy array in memory that the other members can access: an in-place all_reduce on such arrays of every
        member copies nothing. Its contents are undefined. "bfloat16" yields an array of uint16. The memory is freed
        when the array and all views of it are gone; a group that was closed before is left then."""
        import numpy

        name = name_of(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(length < 0 for length in shape):
            raise ArgumentError("an array of shape {} cannot be made".format(shape))
        count = 1
        for length in shape:
            count *= int(length)
        out = ctypes.c_void_p()
        self._call("fulldeck_allocate", _uint64(max(1, count * DATATYPES[name][1]), "the size of the array"), out)
        memory = (ctypes.c_char * (count * DATATYPES[name][1])).from_address(out.value)
        memory.allocation = _Allocation(self, out.value)
        return numpy.frombuffer(memory, dtype="uint16" if name == "bfloat16" else name, count=count).reshape(shape)

    # ---- the group itself ----

    def nonfinite(self):
        """Nonfinite(rank, element, call) if the last reduction gave a non-finite result, otherwise None. Requires
        check_finite."""
        record = _library.NonfiniteRecord(ctypes.sizeof(_library.NonfiniteRecord))
        with self._entered() as handle:
            found = self._library.fulldeck_nonfinite(handle, record)
        if found < 0:
            self._check(found)
        return Nonfinite(record.rank, record.element, record.call) if found else None

    def check(self):
        """Raises the error that the group failed with, if any. Also checks for dead members; does not wait."""
        self._call("fulldeck_group_status")

    def set_timeout(self, timeout):
        """Seconds, or a timedelta; for calls that start afterwards."""
        self._call("fulldeck_group_set_timeout", _milliseconds(timeout))

    def abort(self, reason):
        """Ends every waiting and every later call of the group on all members with Aborted and this reason.
        Thread-safe."""
        with self._entered() as handle:
            self._library.fulldeck_group_abort(handle, _text(reason, "reason"))

    @property
    def closed(self):
        return self._closed

    def close(self):
        """Leaves the group: members that still wait for this one get PeerLost. Pending calls of other threads in this
        process are aborted first. A second call does nothing."""
        if self._is_parents():
            self._closed = True
            return
        with self._idle:
            if self._closed or self._handle is None:
                return
            self._closed = True
            busy = self._calls > 0
        if busy:
            self._library.fulldeck_group_abort(self._handle, b"the group was closed while a call was under way")
            with self._idle:
                self._idle.wait_for(lambda: self._calls == 0)
        self._leave_if_unused()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __repr__(self):
        return "<fulldeck group '{}': rank {} of {}{}>".format(self.name, self.rank, self.size, ", closed" if self._closed else "")

    # ---- internal ----

    def _entered(self):
        return _Entered(self)

    def _call(self, name, *arguments):
        with _Entered(self) as handle:
            self._check(getattr(self._library, name)(handle, *arguments))

    def _check(self, code):
        if code != 0:
            raise error_for(code, (self._library.fulldeck_error_text() or b"").decode("utf-8", "replace"))

    def _is_parents(self):
        """A forked child has no groups, and a lock that another thread held during the fork stays locked there."""
        return os.getpid() != self._pid

    def _leave_if_unused(self):
        with self._idle:
            handle = self._handle
            if not self._closed or self._allocations > 0 or self._calls > 0 or handle is None:
                return
            self._handle = None
        self._library.fulldeck_group_destroy(handle)

    def _freed(self, address):
        if self._is_parents():
            return
        with self._idle:
            self._allocations -= 1
            handle = self._handle
        if handle is not None:
            self._library.fulldeck_free(handle, address)
        self._leave_if_unused()

    def _chunk(self, view, what):
        if view.count % self.size != 0:
            raise ArgumentError("{} has {} elements, which do not make {} equal parts".format(what, view.count, self.size))
        return view.count // self.size

    def _chunk_shape(self, array, count):
        shape = getattr(array, "shape", ())
        if shape and shape[0] == self.size:
            return shape[1:]
        if shape and shape[0] % self.size == 0:
            return (shape[0] // self.size,) + shape[1:]
        return (count,)

    def _counts(self, counts, what):
        counts = [int(count) for count in counts]
        if len(counts) != self.size or any(count < 0 or count >= 2**63 for count in counts):
            raise ArgumentError("{} must hold {} numbers, one a rank, none of them negative".format(what, self.size))
        return (ctypes.c_uint64 * self.size)(*counts)

    def _own_chunk_or_disjoint(self, part, whole):
        """`part` may be this rank's own place in `whole`."""
        if part.overlaps(whole) and part.address != whole.address + self.rank * part.bytes:
            raise ArgumentError("the two arrays overlap; only this rank's own part of the larger one may be the other")


class _Entered:
    """One call of a group: makes close() wait until it is over."""

    __slots__ = ("_group",)

    def __init__(self, group):
        self._group = group

    def __enter__(self):
        group = self._group
        if group._is_parents():
            raise ArgumentError("the group '{}' is of the process that this one was forked from; make one here".format(
                group.name))
        with group._idle:
            if group._closed or group._handle is None:
                raise ArgumentError("the group '{}' was closed".format(group.name))
            group._calls += 1
        return group._handle

    def __exit__(self, *_):
        group = self._group
        with group._idle:
            group._calls -= 1
            if group._calls == 0:
                group._idle.notify_all()


class _Allocation:
    """Shared memory that lives as long as Python objects refer to it."""

    def __init__(self, group, address):
        self._group, self._address = group, address
        with group._idle:
            group._allocations += 1

    def __del__(self):
        self._group._freed(self._address)


def _same_size(view, count, what):
    if view.count != count:
        raise ArgumentError("'{}' has {} elements, and {} are needed".format(what, view.count, count))


def _same_or_disjoint(one, other):
    if one.address != other.address:
        _disjoint(one, other)


def _disjoint(one, other):
    if one.overlaps(other):
        raise ArgumentError("input and output overlap")


def _reduction(op):
    try:
        return _library.REDUCTIONS[op]
    except (KeyError, TypeError):
        raise ArgumentError("'{}' is not a reduction; there are {}".format(op, ", ".join(_library.REDUCTIONS))) from None


def _int32(value, what):
    number = int(value)
    if number != value or not -2**31 <= number < 2**31:
        raise ArgumentError("{} is {}, which is not a number of 32 bits".format(what, value))
    return number


def _uint64(value, what):
    number = int(value)
    if number != value or not 0 <= number < 2**64:
        raise ArgumentError("{} is {}, which is not a number of 64 bits without a sign".format(what, value))
    return number


def _text(value, what):
    data = str(value).encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ArgumentError("{} has a zero byte in it".format(what))
    return data


def _milliseconds(timeout):
    seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else float(timeout)
    if not 0 < seconds < 2**53:
        raise ArgumentError("a time-out of {} s cannot be kept; it must be more than 0".format(seconds))
    return max(1, int(round(seconds * 1000)))
