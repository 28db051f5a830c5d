"""Reports the collectives of the program's own torch.distributed groups on the rank board, for the launcher's hang
detection: docs/hangs.md

torch records every collective call (its "flight recorder", on by default; for Gloo and NCCL, including the calls of
DistributedDataParallel). One daemon thread reads its counters ten to twenty times per second, depending on the cost
(about 150 µs between the steps of a training, including the wake-up), and reports the number of the last completed call
and of the current one to the board. So the board's total time in calls is a sampled value, which is enough to find the
rank that waits least over some seconds. Only when a call has lasted for a second does it read the record itself, once,
to identify the call. It needs the GIL, but not the main thread, which may be stuck in C++.

Groups of the backend `fulldeck` report to the board themselves and are not in torch's record."""
import atexit
import functools
import glob
import hashlib
import json
import os
import re
import sys
import threading
import time

from fulldeck import board
from fulldeck.adapters import say

POLL_INTERVAL = 0.05    # seconds between two polls
MAX_POLL_INTERVAL = 0.1    # upper limit
MAX_OVERHEAD = 0.001   # share of the time that polls may cost
DETAIL_DELAY = 1.0   # duration of a call, in seconds, before its details are read
MAX_NAME_LOOKUPS = 20      # polls of a group whose name is in no record yet
SLOW_POLL_INTERVAL = 1.0      # seconds between two polls of what changes rarely
THREAD = "fulldeck_record"  # the kernel keeps 15 characters; must match src/control/diagnosis/hangs/thread_wait.cc

# Between the steps of a training the caches are cold, and every extra line of code costs time: one search instead of
# parsing the JSON.
STATUS = re.compile(rb'"(\d+)":\{"last_completed_collective":"(-?\d+)","last_enqueued_collective":"(-?\d+)"')

# Messages of Gloo, NCCL and the store when a connection ends; their exceptions are plain RuntimeErrors.
PEER_LOST = re.compile(r"gloo/transport|Connection (closed|reset) by peer|Broken pipe|Socket Timeout|ncclRemoteError|NCCL error: remote")

# Counters and records of all backends except NCCL; those of NCCL.
SOURCES = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
# Operations whose sizes must match on all ranks of a group; of the others, only the operation must match.
SAME_SIZES = frozenset(("all_reduce", "broadcast", "barrier", "reduce", "all_gather", "reduce_scatter"))
OPERATIONS = {
    "allreduce": "all_reduce", "all_reduce": "all_reduce", "allreduce_coalesced": "all_reduce", "broadcast": "broadcast",
    "reduce": "reduce", "allgather": "all_gather", "all_gather": "all_gather", "all_gather_base": "all_gather",
    "_all_gather_base": "all_gather", "_allgather_base": "all_gather", "gather": "gather", "scatter": "scatter",
    "reduce_scatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter", "alltoall": "all_to_all", "all_to_all": "all_to_all",
    "barrier": "barrier", "send": "send", "recv": "receive", "receive": "receive"}
DATATYPES = {
    "Float": ("float32", 4), "Double": ("float64", 8), "Half": ("float16", 2), "BFloat16": ("bfloat16", 2), "Long": ("int64", 8),
    "Int": ("int32", 4), "Short": ("int16", 2), "Char": ("int8", 1), "Byte": ("uint8", 1), "Bool": ("bool", 1),
    "ComplexFloat": ("complex64", 8), "ComplexDouble": ("complex128", 16)}


def number_of(text):
    """Not 0, and the same on all ranks."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") | 1


def counters(text):
    """(key of the group, number of the last completed call, number of the last started call) of each group."""
    found = STATUS.findall(text)
    if found or b"last_enqueued_collective" not in text:
        return found
    return [(key, status["last_completed_collective"], status["last_enqueued_collective"])
            for key, status in json.loads(text)["pg_status"].items()]


def is_communication(error):
    """Whether an exception comes from a call of torch.distributed, or of a backend of it, that lost a peer."""
    if "fulldeck: " in str(error):  # a fulldeck group has reported it, and knows which peer
        return False
    if type(error).__name__ in ("DistBackendError", "DistNetworkError", "DistStoreError"):
        return True
    return isinstance(error, RuntimeError) and PEER_LOST.search(str(error)) is not None


def name_thread():
    """Sets the kernel's name of this thread. By this name the launcher ignores the thread's waits: docs/hangs.md"""
    try:
        with open("/proc/self/task/{}/comm".format(threading.get_native_id()), "w") as file:
            file.write(THREAD)
    except (OSError, AttributeError):  # Python before 3.8 has no get_native_id: a deadlock is then reported as a sleep
        pass


def wait_for_gloo(seconds):
    """Waits until Gloo's threads have released the tensors of their last calls: a thread that needs the GIL while
    Python exits aborts the process."""
    end = time.monotonic() + seconds
    quiet = 0
    while quiet < 3 and time.monotonic() < end:
        states = states_of_gloo_threads()
        if not states:
            return
        quiet = quiet + 1 if set(states) == {"S"} else 0
        time.sleep(0.005)


def states_of_gloo_threads():
    states = []
    for path in glob.glob("/proc/self/task/*/stat"):
        try:
            with open(path) as file:
                text = file.read()
        except OSError:
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        if name.startswith("pt_gloo"):
            states.append(rest.split()[0])
    return states


class Group:
    """One group, with its last reported counters."""

    def __init__(self):
        self.slot = None      # on the board; None: its name is not known yet
        self.name = None
        self.gone = False     # the program has destroyed it
        self.tries = 0
        self.enqueued = self.completed = 0
        self.reported = (0, 0)    # current call, completed calls
        self.since = 0.0      # time of the last change of the counters (time.monotonic)
        self.detailed = 0     # the call whose details were reported


class Recorder:
    def __init__(self, c10d, native):
        self.c10d = c10d
        self.board = board.ours()
        self.sources = [(name, getattr(native, name)) for name in SOURCES if hasattr(native, name)]
        self.groups = {}
        self.failure = None  # why it ended
        self.lost_peer = False  # a call of a group failed: afterwards the groups' entries on the board do not change
        self.next_slow_poll = 0.0  # time of the next poll of what changes rarely
        self.stopping = threading.Lock()
        self.stopping.acquire()
        self.poll_lock = threading.Lock()  # polls are serialized: the thread's, and those of code that destroys a group
        self.thread = threading.Thread(target=self.run, name="fulldeck_recorder", daemon=True)

    def start(self):
        if self.board.is_open and not self.sources:
            say("note: this torch has no record of its collectives: a hang in them is seen by what the ranks' threads do only")
        if self.board.is_open and self.sources:
            # Before Python exits: a thread that needs the GIL then is ended in the middle of C++ code.
            atexit.register(self.end)
            self.thread.start()

    def end(self):
        self.report_failure()
        self.stopping.release()
        self.thread.join(2.0)
        if not self.thread.is_alive():
            self.quietly()
        wait_for_gloo(1.0)

    def run(self):
        name_thread()
        pause = POLL_INTERVAL
        while not self.stopping.acquire(timeout=pause):
            begin = time.thread_time()
            if not self.quietly():
                say("warning: which collective of torch this rank is in is no longer recorded, so that a hang there is named later or not at "
                    "all: {}".format(self.failure))
                return
            wanted = min(max(POLL_INTERVAL, (time.thread_time() - begin) / MAX_OVERHEAD), MAX_POLL_INTERVAL)
            pause += (wanted - pause) / 8

    def report_failure(self):
        """Reports a failed call of a group: a peer is lost, and the error does not name it. Returns True if there is
        such an error: the exception that ends the program, or the one that is being handled."""
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)
        while error is not None and not is_communication(error):
            error = error.__cause__ or error.__context__
        if error is not None and not self.lost_peer:
            self.report_last_calls()
            self.lost_peer = True
            self.board.set_failure("peer-lost", None, "{}: {}".format(type(error).__name__, error))
        return self.lost_peer

    def report_last_calls(self):
        """Reports the last call of each group, also if it completed shortly after it started: after a failed run the
        launcher compares them."""
        try:
            self.quietly()
            with self.poll_lock:
                for (name, key), group in self.groups.items():
                    number, completed = group.reported
                    if group.slot is None or group.gone or number in (0, group.detailed):
                        continue
                    call = self.call(dict(self.sources)[name], key, number)
                    if call is not None:
                        group.detailed = number
                        operation, datatype, count, size, fingerprint = call
                        self.board.collective_begin(group.slot, operation, datatype, count, size, sequence=number, fingerprint=fingerprint)
                        self.board.collective_end(group.slot, completed)
        except Exception as error:  # as in quietly
            self.failure = "{}: {}".format(type(error).__name__, error)

    def quietly(self):
        try:
            with self.poll_lock:
                self.look()
            return True
        except Exception as error:  # a record with a different format: nothing is reported, and nothing may break
            self.failure = "{}: {}".format(type(error).__name__, error)
            return False

    def look(self):
        now = time.monotonic()
        if now >= self.next_slow_poll:
            self.next_slow_poll = now + SLOW_POLL_INTERVAL
            self.leave_destroyed()
            self.board.heartbeat()
        for name, dump in self.sources:
            for key, completed, enqueued in counters(dump(False, False)):
                self.poll_group(name, dump, int(key), max(0, int(enqueued)), max(0, int(completed)), now)

    def leave(self, process_group=None):
        """The program is about to destroy one group, or all of them. Reports it on the board before any peer can
        notice, because a rank whose peer left names that peer. A rank that cleans up after a failed call does not
        leave; it reports the failure."""
        try:
            self.quietly()  # groups that were created, used and destroyed between two polls
            if self.report_failure():
                return
            name = self.c10d._world.pg_names.get(process_group)
            everything = process_group is None or process_group == self.c10d.GroupMember.WORLD
            with self.poll_lock:
                for group in self.groups.values():
                    if group.name is not None and not group.gone and (everything or group.name == name):
                        group.gone = True
                        self.board.group_leave(group.slot)
        except Exception:  # a torch with a different format: the thread detects that within a second
            pass

    def leave_destroyed(self):
        if self.lost_peer:
            return
        names = set(self.c10d._world.pg_names.values())
        for group in self.groups.values():
            if group.name is not None and group.name not in names and not group.gone:
                self.board.group_leave(group.slot)
                group.gone = True

    def poll_group(self, name, dump, key, enqueued, completed, now):
        group = self.groups.get((name, key))
        if group is None:
            group = self.groups[(name, key)] = Group()
        if (enqueued, completed) != (group.enqueued, group.completed):
            group.enqueued, group.completed, group.since = enqueued, completed, now
        if enqueued == 0 or group.gone:
            return
        if group.slot is None:
            self.join(group, dump, key)
            if group.slot is None:
                return
        # This rank waits for the oldest of several pending calls.
        under_way = completed + 1 if enqueued > completed else completed
        stuck = enqueued > completed and now - group.since >= DETAIL_DELAY and group.detailed != under_way
        if (under_way, completed) != group.reported or stuck:
            call = self.call(dump, key, under_way) if stuck else None
            if call is not None:
                group.detailed = under_way
            operation, datatype, count, size, fingerprint = call or ("other", "other", 0, 0, 1)
            if under_way != group.reported[0] or stuck:
                self.board.collective_begin(group.slot, operation, datatype, count, size, sequence=under_way, fingerprint=fingerprint)
            self.board.collective_end(group.slot, completed)
            group.reported = (under_way, completed)

    def join(self, group, dump, key):
        group.tries += 1
        if group.tries > MAX_NAME_LOOKUPS:
            return
        found = None
        for found in re.finditer(rb'"pg_id":%d,"process_group":\["((?:[^"\\]|\\.)*)"' % key, dump(True, False)):
            pass
        if found is None:
            return
        name = found.group(1).decode("utf-8", "replace")
        world = self.c10d._world
        for candidate, its_name in list(world.pg_names.items()):
            if its_name != name:
                continue
            ranks = world.pg_group_ranks[candidate]
            mine = ranks.get(self.c10d.get_rank(), 0)
            group.name = name
            group.slot = self.board.group_join(number_of("c10d/{}/{}".format(name, sorted(ranks))),
                                               "c10d " + ("world" if name == "0" else name), len(ranks), mine)
            return

    @staticmethod
    def call(dump, key, number):
        """(operation, datatype, count, bytes, fingerprint) of a call in the record; None if the record no longer has
        it."""
        for entry in reversed(json.loads(dump(True, False)).get("entries") or []):
            if str(entry.get("pg_id")) != str(key) or entry.get("collective_seq_id") != number or entry.get("is_p2p"):
                continue
            name = entry.get("profiling_name", "").rpartition(":")[2]
            operation = OPERATIONS.get(name, "other")
            types, sizes = entry.get("input_dtypes") or [], entry.get("input_sizes") or []
            datatype, width = DATATYPES.get(types[0], ("other", 0)) if types else ("none", 0)
            count = 0
            for size in sizes:
                product = 1
                for extent in size:
                    product *= extent
                count += product
            same = (name, types, sizes) if operation in SAME_SIZES else name
            return operation, datatype, count, count * width, number_of(repr(same))
        return None


class Rendezvous:
    """Reports the time in init_process_group as a call of a separate group, because ranks wait for missing ones there
    too."""

    def __init__(self):
        self.board = board.ours()
        self.slot = -1

    def __enter__(self):
        try:
            size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
            self.slot = self.board.group_join(number_of("c10d/meeting"), "c10d world", size, rank)
            self.board.collective_begin(self.slot, "meeting", sequence=1)
        except (KeyError, ValueError):
            pass
        return self

    def __exit__(self, *unused):
        if self.slot >= 0:
            self.board.collective_end(self.slot, 1)


def _watch_leaving(c10d, recorder):
    """Reports that a rank destroys a group before its peers can notice."""
    real = c10d.destroy_process_group

    @functools.wraps(real)
    def destroy_process_group(group=None):
        recorder.leave(group)
        return real(group)

    c10d.destroy_process_group = destroy_process_group
    torch_distributed = sys.modules.get("torch.distributed")
    if getattr(torch_distributed, "destroy_process_group", None) is real:
        torch_distributed.destroy_process_group = destroy_process_group


_started = None


def start(c10d):
    """Called when a program has created its first group."""
    global _started
    if _started is not None:
        return
    try:
        from torch._C import _distributed_c10d as native

        _started = Recorder(c10d, native)
        _started.start()
        _watch_leaving(c10d, _started)
    except Exception as error:  # this version of torch has no record
        say("warning: the collectives of torch are not recorded on this rank: {}: {}".format(type(error).__name__, error))
