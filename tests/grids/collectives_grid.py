"""The fault grid of the collectives: real processes that call through the C interface, real faults, and for each cell
the same checks. Did the others end after the fault, and not before? Did all report the same, and name the right rank?
Was the group unusable afterwards? Was nothing left: no process, nothing in /dev/shm?

A cell is a function that returns its measurements, {series: seconds}, and raises if a check failed. A cell does not
check how long the others took, since that depends on the load of the machine: BOUNDS has the promises.
tests/collectives/test_collectives_faults.py runs a part, without bounds; `make collectives-grid`, for an idle machine,
runs all of them, several times, prints the measurements and fails at the bounds."""
import argparse
import collections
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import uuid

from launching import FOREIGN, PROGRAMS, state_of, wait_until

COLLECTIVES_RANK = os.path.join(PROGRAMS, "collectives_rank")
RANKS = 4
# How long a cell waits before something counts as a hang. Not a promise; BOUNDS are.
PATIENCE = 90
PEER_LOST, TIMEOUT, MISMATCH, ABORTED = -3, -4, -5, -6
OPERATIONS = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all",
              "barrier", "message", "mixed")
# float32: in one go, in a few chunks, in many
COUNTS = (100, 600000, 5000000)
WATCHES = ("pidfd", "connection", "both")
DESYNCS = {
    "operation": ("all_reduce", "barrier()"),
    "type": ("all_reduce", "all_reduce(sum, int32 × 1000)"),
    "count": ("all_reduce", "all_reduce(sum, float32 × 999)"),
    "reduction": ("all_reduce", "all_reduce(max, float32 × 1000)"),
    "root": ("broadcast", "broadcast(float32 × 1000, root 1)"),
    "left_out": ("mixed", None),
}


# Timeout of a rank that waits for a stopped one, seconds.
STOP_LIMIT = 1.5
# Prefix of a series, and the seconds within which every survivor returns, as R1 of docs/reliability.md promises.
BOUNDS = {
    "SIGKILL": 1, "segv": 1, "kill": 1, "exit": 1, "left": 1, "different calls": 1, "abort": 1,
    "SIGSTOP": STOP_LIMIT + 1,
}


def bound_of(series):
    """Seconds; None for a series without measurements."""
    return next((seconds for begin, seconds in BOUNDS.items() if series.startswith(begin)), None)


class NotHere(Exception):
    """This machine lacks what the cell needs; the text names it."""


def check(condition, what):
    if not condition:
        raise AssertionError(what)


class Failure:
    """The report of a rank when a call failed."""

    def __init__(self, line):
        match = re.match(r"failed (-?\d+) (\d+) ([\d.]+) (same|other) (.*)$", line)
        check(match, "this is no failure: %r" % line)
        self.code, self.call = int(match.group(1)), int(match.group(2))
        self.at, self.poisoned, self.text = float(match.group(3)), match.group(4) == "same", match.group(5)

    def __repr__(self):
        return "code %d at call %d: %s" % (self.code, self.call, self.text)


class Rank:
    """One process; its lines are read as they arrive."""

    def __init__(self, arguments, prefix=()):
        environment = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
        self.process = subprocess.Popen(list(prefix) + [COLLECTIVES_RANK] + arguments, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                                        universal_newlines=True, errors="replace")
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def lines_of(self, word):
        return [line for line in self.lines if line.split(" ", 1)[0] == word]

    def wait(self):
        """Its exit code, after its last line was read."""
        code = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        return code

    @property
    def pid(self):
        """Of the program itself, even if another program started it."""
        pid = self.process.pid
        with open("/proc/%d/comm" % pid) as comm:
            if comm.read().strip() == "collectives_ran":
                return pid
        with open("/proc/%d/task/%d/children" % (pid, pid)) as children:
            return int(children.read().split()[0])

    def failure(self):
        wait_until(lambda: self.lines_of("failed") or self.process.poll() is not None, "a failure", PATIENCE)
        self.wait()
        lines = self.lines_of("failed")
        check(len(lines) == 1 and not self.lines_of("wrong"), "one failure is to be reported: %r" % self.lines)
        return Failure(lines[0])

    def time_of(self, word):
        return float(self.lines_of(word)[0].split()[1])


def entries_of_shm():
    try:
        return set(os.listdir("/dev/shm"))
    except OSError:
        return set()


@contextlib.contextmanager
def ranks_of(size, watch="pidfd", special=None, of_one=(), prefix_of_one=(), **options):
    """Starts the ranks and yields the list. `of_one`: additional options of rank `special`. Nothing is left
    afterwards."""
    before = entries_of_shm()
    key = uuid.uuid4().hex
    ranks = []
    try:
        for number in range(size):
            arguments = ["rank=%d" % number, "size=%d" % size, "key=" + key]
            arguments += ["%s=%s" % (name, value) for name, value in options.items()]
            arguments.append("watch=" + (watch if watch != "both" else ("pidfd", "connection")[number % 2]))
            ranks.append(Rank(arguments + (list(of_one) if number == special else []),
                              prefix_of_one if number == special else ()))
        yield ranks
    finally:
        for rank in ranks:
            if rank.process.poll() is None:
                with contextlib.suppress(OSError, IndexError):
                    os.kill(rank.pid, signal.SIGKILL)
                rank.process.kill()
            rank.wait()
        with open("/proc/net/unix", errors="replace") as sockets:
            check(key not in sockets.read(), "a socket is left")
    left = {name for name in entries_of_shm() - before if "fulldeck" in name}
    check(not left, "left in /dev/shm: %s" % sorted(left))


def all_ready(ranks, word="ready"):
    wait_until(lambda: all(rank.lines_of(word) for rank in ranks), "%s" % [rank.lines for rank in ranks], PATIENCE)


def seconds_of(failures, since, least=0):
    """Seconds of the slowest rank after the fault. None ended before the fault, or before the `least` seconds that it
    had to wait."""
    first = min(failure.at for failure in failures) - since
    check(first >= least, "the first one ended %.3f s after the fault, before its cause: %r" % (first, failures))
    return max(failure.at for failure in failures) - since


def same_end(failures, code, since, least=0):
    """All ended with the same error, after the fault and permanently. Returns the seconds of the slowest."""
    for failure in failures:
        check(failure.code == code, "the code is to be %d: %r" % (code, failures))
        check(failure.text == failures[0].text, "all are to say the same: %r" % failures)
        check(failure.poisoned, "further calls are to fail alike: %r" % failure)
    return seconds_of(failures, since, least)


# ---- a rank dies

def rank_is_killed(victim, operation, count, watch, delay):
    """At a random moment during consecutive calls."""
    with ranks_of(RANKS, watch, op=operation, count=count) as ranks:
        all_ready(ranks)
        time.sleep(delay)
        since = time.monotonic()
        os.kill(ranks[victim].pid, signal.SIGKILL)
        survivors = [rank for rank in ranks if rank is not ranks[victim]]
        failures = [rank.failure() for rank in survivors]
        # A receive from the dead rank may fail before the group is lost; calls all report the same error.
        if operation in ("message", "mixed"):
            check(all(failure.code == PEER_LOST for failure in failures), "%r" % failures)
            check(any("rank %d" % victim in failure.text for failure in failures), "%r" % failures)
            slowest = seconds_of(failures, since)
        else:
            slowest = same_end(failures, PEER_LOST, since)
            check("rank %d died" % victim in failures[0].text, failures[0].text)
        return {"SIGKILL → survivors out, watched by %s" % watch: slowest}


def rank_dies_by_itself(fault, victim, watch):
    """Before a call that the others wait in."""
    with ranks_of(RANKS, watch, victim, ["fault=" + fault, "at=7", "after=200"], count=1000) as ranks:
        failures = [rank.failure() for rank in ranks if rank is not ranks[victim]]
        slowest = same_end(failures, PEER_LOST, ranks[victim].time_of("accident"))
        check("rank %d died; it has finished call 6, all_reduce" % victim in failures[0].text, failures[0].text)
        return {"%s → survivors out, watched by %s" % (fault, watch): slowest}


def rank_leaves(victim, watch):
    with ranks_of(RANKS, watch, victim, ["fault=leave", "at=3", "after=100"], count=1000) as ranks:
        failures = [rank.failure() for rank in ranks if rank is not ranks[victim]]
        slowest = same_end(failures, PEER_LOST, ranks[victim].time_of("accident"))
        check("rank %d left the group; it has finished call 2" % victim in failures[0].text, failures[0].text)
        return {"left → others out": slowest}


def rank_of_another_pid_namespace_is_killed(victim):
    """As in a container: its pid is not visible to the others, nor theirs to it."""
    prefix = ["unshare", "--pid", "--fork", "--kill-child"]
    probe = subprocess.run(prefix + ["true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if probe.returncode != 0:
        raise NotHere("unshare --pid is not allowed here")
    with ranks_of(RANKS, special=victim, prefix_of_one=prefix, count=10000) as ranks:
        all_ready(ranks)
        since = time.monotonic()
        os.kill(ranks[victim].pid, signal.SIGKILL)
        slowest = same_end([rank.failure() for rank in ranks if rank is not ranks[victim]], PEER_LOST, since)
        return {"SIGKILL in another pid namespace → survivors out": slowest}


# ---- a rank is late

def rank_is_stopped(victim, operation, count, watch, delay):
    """In a call that one more rank has not made yet. Only that rank has the short timeout, so that a rank that is
    merely slow is not taken for a stopped one before the fault."""
    last = (victim + 1) % RANKS
    with ranks_of(RANKS, watch, last, ["hold=2", "call_timeout=%d" % (STOP_LIMIT * 1000)], op=operation, count=count) as ranks:
        all_ready([ranks[last]], "holding")
        for rank in ranks:
            if rank is not ranks[last]:
                all_ready([rank], "calling")
                wait_until(lambda: state_of(rank.pid) == "S", "it to wait in call 2: %r" % rank.lines, PATIENCE)
        time.sleep(delay)
        since = time.monotonic()
        pid = ranks[victim].pid
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state_of(pid) == "T", "rank %d to stop" % victim, PATIENCE)
        os.kill(ranks[last].pid, signal.SIGUSR1)
        return stop_is_reported(ranks, victim, since, STOP_LIMIT)


def rank_is_stopped_among_calls(victim, operation, count, watch, delay):
    """At a random moment, also between two calls. All ranks have the short timeout in all calls, so the machine must be
    idle."""
    with ranks_of(RANKS, watch, op=operation, count=count, call_timeout=int(STOP_LIMIT * 1000)) as ranks:
        # A rank that is stopped before its first call is in no call: the report would correctly say so, without naming
        # a call.
        all_ready(ranks, "calling")
        time.sleep(delay)
        since = time.monotonic()
        os.kill(ranks[victim].pid, signal.SIGSTOP)
        # In a call that started before the fault, the others may already have waited for a while.
        return stop_is_reported(ranks, victim, since)


def stop_is_reported(ranks, victim, since, least=0):
    """The others time out, and report that it is stopped and where each rank is; it gets the same report later."""
    pid = ranks[victim].pid
    failures = [rank.failure() for rank in ranks if rank is not ranks[victim]]
    slowest = same_end(failures, TIMEOUT, since, least)
    text = failures[0].text
    # On a busy machine others may be late as well.
    check("waited %.1f s for rank" % STOP_LIMIT in text, text)
    check(re.findall(r"rank (\d+) [^|]*\(pid (\d+), stopped \(SIGSTOP\)\)", text) == [(str(victim), str(pid))], text)
    for number in range(RANKS):
        check(re.search(r"\| +rank %d (is in|has finished) call \d+, " % number, text), text)
    continued = time.monotonic()
    os.kill(pid, signal.SIGCONT)
    its = ranks[victim].failure()
    check(its.at >= continued, "it was stopped until %f: %r" % (continued, its))
    same_end(failures + [its], TIMEOUT, since)
    return {"SIGSTOP → time-out of %.1f s reported" % STOP_LIMIT: slowest}


def rank_makes_no_call(victim, watch):
    """The others have the short timeout only in that call, which they make once it is certain that this one does
    not."""
    with ranks_of(RANKS, watch, victim, ["fault=hang", "at=3"], count=1000, hold=3, call_timeout=1000) as ranks:
        others = [rank for rank in ranks if rank is not ranks[victim]]
        all_ready(others, "holding")
        all_ready([ranks[victim]], "accident")
        for rank in others:
            os.kill(rank.pid, signal.SIGUSR1)
        failures = [rank.failure() for rank in others]
        same_end(failures, TIMEOUT, ranks[victim].time_of("accident"), 1)
        check("rank %d has finished call 2, all_reduce(sum, float32 × 1000) (pid %d, " % (victim, ranks[victim].pid)
              in failures[0].text, failures[0].text)
        return {}


# ---- mismatched calls

def ranks_differ(kind, victim):
    operation, call = DESYNCS[kind]
    with ranks_of(RANKS, "pidfd", victim, ["fault=" + kind, "at=4"], op=operation, count=1000, calls=20) as ranks:
        failures = [rank.failure() for rank in ranks]
        slowest = same_end(failures, MISMATCH, ranks[victim].time_of("accident"))
        text = failures[0].text
        # A rank that skips its fourth call makes its fifth instead.
        expected = [5 if not call and number == victim else 4 for number in range(RANKS)]
        check([failure.call for failure in failures] == expected, "%r" % failures)
        check("as call 4: " in text, text)
        if call:
            check("rank %d: %s" % (victim, call) in text, text)
        else:
            check("rank %d: " % victim in text, text)
        return {"different calls → reported to all": slowest}


def one_thread_aborts(victim, operation, count):
    """While its own call and those of the others are in progress."""
    with ranks_of(RANKS, "pidfd", victim, ["fault=abort", "at=5"], op=operation, count=count) as ranks:
        failures = [rank.failure() for rank in ranks]
        slowest = same_end(failures, ABORTED, ranks[victim].time_of("aborting"))
        check("was aborted by rank %d: collectives_rank was told to" % victim in failures[0].text, failures[0].text)
        return {"abort → all out": slowest}


# ---- nothing is left

def many_groups(groups, watch):
    with ranks_of(2, watch, groups=groups, calls=12, count=3000) as ranks:
        for rank in ranks:
            code = rank.process.wait(600)
            rank.wait()
            check(code == 0 and rank.lines_of("descriptors"), "%r" % rank.lines)
            _, first, last = rank.lines_of("descriptors")[0].split()
            check(first == last, "%s descriptors after 10 groups, %s after %d" % (first, last, groups))
        return {}


def calls_go_well(operation, count, watch):
    """Without a fault: all values are correct, and the order of leaving causes no error."""
    with ranks_of(RANKS, watch, op=operation, count=count, calls=30) as ranks:
        for rank in ranks:
            check(rank.wait() == 0 and rank.lines_of("calls"), "%r" % rank.lines)
        return {}


def more_than_4_gib(size=2, number_of_bytes=(1 << 32) + 12345):
    with open("/proc/meminfo") as meminfo:
        free = int(re.search(r"MemAvailable: +(\d+) kB", meminfo.read()).group(1)) * 1024
    needed = size * number_of_bytes + (1 << 30)
    if free < needed:
        raise NotHere("%d GiB of memory are needed and %d free" % (needed >> 30, free >> 30))
    with ranks_of(size, large=number_of_bytes, timeout=600000) as ranks:
        for rank in ranks:
            code = rank.process.wait(1200)
            rank.wait()
            check(code == 0 and rank.lines_of("calls"), "%r" % rank.lines)
        return {"4 GiB: " + ranks[0].lines_of("large")[0]: 0}


def all_cells(repeats, only, seed):
    draws = random.Random(seed)
    cells = []

    def add(name, cell, *arguments):
        if only in name:
            cells.append((name, cell, arguments))

    for _ in range(repeats):
        for operation in OPERATIONS:
            for count in COUNTS:
                for watch in WATCHES:
                    victim = draws.randrange(RANKS)
                    add("kill %s × %d, %s" % (operation, count, watch), rank_is_killed, victim, operation, count, watch,
                        draws.uniform(0, 0.3))
                if operation != "message":
                    add("stop %s × %d" % (operation, count), draws.choice((rank_is_stopped, rank_is_stopped_among_calls)),
                        draws.randrange(RANKS), operation if operation != "mixed" else "all_to_all", count,
                        draws.choice(WATCHES), draws.uniform(0, 0.3))
        for watch in WATCHES:
            for fault in ("kill", "segv", "exit"):
                add("%s by itself, %s" % (fault, watch), rank_dies_by_itself, fault, draws.randrange(RANKS), watch)
            add("leave, %s" % watch, rank_leaves, draws.randrange(RANKS), watch)
            add("no call, %s" % watch, rank_makes_no_call, draws.randrange(RANKS), watch)
        for kind in DESYNCS:
            add("desync: " + kind, ranks_differ, kind, draws.randrange(RANKS))
        for operation, count in (("all_reduce", 5000000), ("barrier", 0), ("all_to_all", 100)):
            add("abort in %s" % operation, one_thread_aborts, draws.randrange(RANKS), operation, count)
        add("another pid namespace", rank_of_another_pid_namespace_is_killed, draws.randrange(RANKS))
        for operation in OPERATIONS:
            add("no fault, " + operation, calls_go_well, operation, draws.choice(COUNTS[:2]), draws.choice(WATCHES))
    for watch in WATCHES:
        add("1000 groups, " + watch, many_groups, 1000, watch)
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="times that each cell is run")
    parser.add_argument("--only", default="", help="only cells whose name holds this text")
    parser.add_argument("--seed", type=int, default=0, help="of victims, moments and order")
    parser.add_argument("--large", action="store_true", help="only calls of more than 4 GiB; needs 10 GiB of free memory")
    arguments = parser.parse_args()
    cells = all_cells(arguments.repeats, arguments.only, arguments.seed)
    if arguments.large:
        cells = [("more than 4 GiB", more_than_4_gib, ())]
    random.Random(arguments.seed).shuffle(cells)
    figures = collections.defaultdict(list)
    failed, skipped, passed = [], {}, 0
    for number, (name, cell, details) in enumerate(cells, 1):
        try:
            for series, seconds in cell(*details).items():
                figures[series].append(seconds)
            passed += 1
        except NotHere as reason:
            skipped[name] = str(reason)
        except Exception:  # whatever it was, the grid continues and counts it
            failed.append(name)
            print("FAILED: %s %r\n%s" % (name, details, traceback.format_exc()), file=sys.stderr)
        if sys.stderr.isatty():
            print("\r%d of %d cells, %d failed " % (number, len(cells), len(failed)), end="", file=sys.stderr)
    print("%-60s %6s %9s %9s %9s" % ("", "times", "median s", "most s", "bound s"))
    late = []
    for series in sorted(figures):
        values, bound = sorted(figures[series]), bound_of(series)
        print("%-60s %6d %9.4f %9.4f %9s" % (series, len(values), values[len(values) // 2], values[-1], "–" if bound is None else "%.1f" % bound))
        late += [series] if bound is not None and values[-1] > bound else []
    for name in sorted(skipped):
        print("SKIPPED: %s: %s" % (name, skipped[name]))
    for name in sorted(set(failed)):
        print("FAILED: %s, %d times" % (name, failed.count(name)))
    for series in late:
        print("TOO LATE: %s" % series)
    print("%d cells passed, %d failed, %d kinds skipped, %d series later than their bound" % (passed, len(failed), len(skipped), len(late)))
    return 1 if failed or late or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
