"""The promises of reliability, measured on an idle machine; each one fails at its promised value.

    promises.py [--only R1,Q4] [--kinds c] [--scale 1.0] [--loaded --output FILE]
    promises.py --table            writes the table of docs/reliability.md from docs/evidence/promises.json

First it measures the machine's own floor: how late a parent learns that a child was killed, and how idle the CPUs are.
If the machine is busy before or after a promise, the promise is not recorded, since the values would reflect the other
load. --loaded measures anyway, writes only to --output, and marks its rows. Rows name a commit, so the tree must be
clean. Results are merged into docs/evidence/promises.json by id and series, so that promises can be measured one at a
time. That file is the only source of the values that docs/reliability.md quotes (tests/project/test_promises.py). A row
with fewer runs than its promise requires has the verdict "too few runs"; one that this machine or build cannot measure
has "not measured here" with the reason. Exit code 0: every requested promise was measured, and is kept; 1: one is not;
2: one was not recorded."""
import argparse
import collections
import contextlib
import functools
import io
import json
import math
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import launching
from launching import BUILD, TOP, wait_until

RESULTS = os.path.join(TOP, "docs", "evidence", "promises.json")
DOCUMENT = os.path.join(TOP, "docs", "reliability.md")
BEGIN, END = "<!-- written by tests/grids/promises.py --table -->", "<!-- end -->"
RANKS = 8

# A series of a promise. `statistic` of its values must be at most `limit`; with fewer than `least` values nothing is
# proven. With `faults`, the values are counts of what must not happen: 0 in at least `least` tries. `kind`: of the
# ranks, if --kinds can select. `seconds`: the minimum duration.
Series = collections.namedtuple("Series", "id name promise statistic limit unit least kind seconds", defaults=(None, 0))

SERIES = [
    Series("R1", "rank dies: launcher knows", "launcher knows within 100 ms", "p99", 100, "ms", 100),
    Series("R1", "rank dies: survivors out of their collective", "every survivor out within 1 s", "max", 1000, "ms", 100),
    Series("R1", "rank dies: verdict, launcher gone", "verdict within 2 s", "max", 2000, "ms", 100),
    Series("R2", "SIGSTOP: named", "named \"stopped\" within 250 ms", "p99", 250, "ms", 100),
    # By the limits of src/control/diagnosis/hangs/hang_verdict.h and the pause of src/control/launcher/hang_watch.h:
    # 2.65 s of waiting and up to 0.25 s until the next poll; torch's flight recorder reports a call up to 0.1 s late.
    # So 3 s include the polls.
    Series("R3", "stopped, deadlocked, spinning, mismatched in a C program: verdict", "verdict within 3 s: 2.65 s of waiting, a look every 0.25 s",
           "p99", 3000, "ms", 100, "c"),
    Series("R3", "asleep in a C program: verdict", "verdict within 12 s: 10 s asleep are the evidence, at most 2 s to tell",
           "max", 12000, "ms", 20, "c"),
    Series("R3", "hang in a C program: line of who waits for whom", "within 3 s: 2.65 s of waiting, a look every 0.25 s",
           "max", 3000, "ms", 20, "c"),
    Series("R3", "stopped, deadlocked, mismatched in a plain torch script: verdict", "verdict within 3 s: 2.65 s of waiting, a look every 0.25 s",
           "p99", 3000, "ms", 100, "gloo"),
    Series("R3", "spinning in a plain torch script: verdict", "verdict within 11 s: 10 s in the same functions are the evidence",
           "max", 11000, "ms", 20, "gloo"),
    Series("R3", "asleep in a plain torch script: verdict", "verdict within 12 s: 10 s asleep are the evidence, at most 2 s to tell",
           "max", 12000, "ms", 20, "gloo"),
    Series("R3", "hang in a plain torch script: line of who waits for whom", "within 3 s: 2.65 s of waiting, a look every 0.25 s",
           "max", 3000, "ms", 40, "gloo"),
    Series("R4", "crash or stop: wrong rank named", "exactly the right rank, always", "faults", 0, "faults", 200, "c"),
    Series("R4", "hang in a C program: wrong rank or call named", "right in at least 99 %", "share", 1, "%", 100, "c"),
    Series("R4", "hang in a plain torch script: wrong rank or call named", "right in at least 99 %", "share", 1, "%", 100, "gloo"),
    Series("R5", "stacks of 8 ranks", "8 of 8 within 2 s", "max", 2000, "ms", 100),
    Series("R6", "restart: fault until trained and saved again, over a clean start", "at most 1.5 times a clean start", "p50", 1.5, "times", 20),
    Series("R6", "restart: checkpoint intervals lost", "at most one", "max", 1, "intervals", 20),
    Series("R7", "launcher killed: last survivor gone", "0 survivors within 1 s, the port free", "max", 1000, "ms", 40),
    Series("R7", "both processes of the launcher killed: last rank gone", "within 1 s; what ranks started, and the cgroup, by `fulldeck stop`",
           "max", 1000, "ms", 10),
    Series("R8", "out of memory: not named with limit and peak", "named, with limit and peak (cgroup v1; `make cgroup-v2` for v2)", "faults", 0, "faults", 10),
    Series("R9", "ports held, stolen, 100 launches at once", "0 failures", "faults", 0, "faults", 300),
    Series("R10", "link down or deaf: both sides ended", "both sides name the link within 5 s", "max", 5000, "ms", 20),
    Series("R10", "5 % of the packets lost: alarms", "no alarm", "faults", 0, "faults", 10),
    Series("R11", "unkillable rank: launcher gone after the grace time", "within the grace time + 2 s, the pid named", "max", 2000, "ms", 20),
    Series("C1", "kill at every operation of a save: bad loads", "0 bad loads, the newest complete one found", "faults", 0, "faults", 300),
    Series("C2", "disk full, EIO, short write: harm", "training goes on, the last good file untouched", "faults", 0, "faults", 100),
    Series("C3", "truncations and flipped bits: accepted", "0 accepted", "faults", 0, "faults", 20000),
    Series("C4", "stall of a save, over a memcpy of the state", "at most 1.2 times", "p50", 1.2, "times", 5),
    Series("C5", "saved by 8, loaded by 1-7 and 16: other bits", "bit-identical", "faults", 0, "faults", 9),
    Series("C6", "retention while saves fail: no verified checkpoint", "never fewer than one", "faults", 0, "faults", 100),
    Series("S1", "NaN in a gradient: not named before the step", "rank, tensor and step named", "faults", 0, "faults", 100),
    Series("S2", "flipped parameter bit: not named", "the rank named within 100 steps", "faults", 0, "faults", 100),
    Series("S3", "rank 1.3 times slower (C program): steps until named", "named within 20 steps", "max", 20, "steps", 10),
    Series("S3", "clean steps: ranks called slow", "0 in 10,000 steps", "faults", 0, "faults", 10000),
    Series("Q1", "clean collectives: alarms", "0 in a million", "faults", 0, "faults", 1000000),
    Series("Q2", "a record on the board", "at most 1 µs", "max", 1000, "ns", 1),
    Series("Q3", "random faults: not handled, or other bits", "0 in an hour", "faults", 0, "faults", 500, seconds=3600),
    Series("Q4", "crash loop: not ended after 3 cycles with its code", "always", "faults", 0, "faults", 10),
]
IDS = list(dict.fromkeys(series.id for series in SERIES))
KINDS = ("c", "gloo")
NOT_HERE = "not measured here"
VERDICTS = ("kept", "not kept", "too few runs", NOT_HERE)


class NotHere(Exception):
    """This machine or build lacks what the promise needs; the text names it."""


# ---- measurements and verdicts, as pure functions

def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def judge(series, values, tries=None, **facts):
    """The row of a series: n, p50, p99, max and the verdict. For faults and shares, `values` are the faults found in
    `tries` tries. A value of None never arrived: it is later than all others, statistics that it determines are None,
    and one is enough to break the promise. `facts`: additional fields of the row, such as seconds."""
    missed = 0
    if series.statistic in ("faults", "share"):
        found = sum(values)
        row = {"n": tries, "p50": None, "p99": None, "max": found}
        figure = found if series.statistic == "faults" else 100.0 * found / max(1, tries)
    else:
        tries, missed = len(values), sum(value is None for value in values)
        reached = [math.inf if value is None else value for value in values]
        row = {"n": tries, "p50": quantile(reached, .5), "p99": quantile(reached, .99), "max": max(reached)} if values else {
            "n": 0, "p50": None, "p99": None, "max": None}
        figure = row[series.statistic]
    if missed or (figure is not None and figure > series.limit):
        verdict = "not kept"
    elif tries < series.least or facts.get("seconds", 0) < series.seconds:
        verdict = "too few runs"
    else:
        verdict = "kept"
    rounded = {name: None if value == math.inf else round(value, 3) if isinstance(value, float) else value for name, value in row.items()}
    return dict({"id": series.id, "series": series.name, "promise": series.promise, "limit": series.limit, "unit": series.unit,
                 "statistic": series.statistic}, verdict=verdict, **rounded, **({"missed": missed} if missed else {}), **facts)


def not_here(series, reason):
    """The row of a series that could not be measured. It replaces an older one, which that machine or build can no
    longer measure."""
    return dict(judge(series, [], 0), max=None, verdict=NOT_HERE, reason=reason)


def merge(old, new):
    """Rows of `new` replace those of the same id and series; the order is that of SERIES."""
    rows = {(row["id"], row["series"]): row for row in old}
    rows.update({(row["id"], row["series"]): row for row in new})
    order = {(series.id, series.name): number for number, series in enumerate(SERIES)}
    return sorted((row for key, row in rows.items() if key in order), key=lambda row: order[(row["id"], row["series"])])


def as_text(value, unit, absent):
    if value is None:
        return absent
    return "%s %s" % (("%.2f" if isinstance(value, float) and value < 100 else "%.0f") % value, unit)


def table(rows):
    """The table of docs/reliability.md: every promise, measured or not."""
    found = {(row["id"], row["series"]): row for row in rows}
    lines = ["| id | what | promise | n | p50 | p99 | max | verdict |", "|---|---|---|---|---|---|---|---|"]
    for series in SERIES:
        row = found.get((series.id, series.name))
        figures = ["–"] * 4 + ["not measured"]
        if row and row["verdict"] == NOT_HERE:
            figures[-1] = NOT_HERE
        elif row:
            # A promise may require more runs than it did when the row was measured.
            few = row["n"] < series.least or row.get("seconds", 0) < series.seconds
            verdict = "too few runs" if row["verdict"] == "kept" and few else row["verdict"]
            absent = "never" if row.get("missed") else "–"
            figures = [str(row["n"])] + [as_text(row[name], series.unit, absent) for name in ("p50", "p99", "max")] + [verdict]
        lines.append("| %s |" % " | ".join([series.id, series.name, series.promise] + figures))
    return "\n".join(lines) + "\n"


def read_results(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return json.load(file)["results"]


def write_whole(path, text):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path + ".new", path)


def write_results(path, rows):
    write_whole(path, json.dumps({"results": rows}, indent=1, ensure_ascii=False) + "\n")


def write_table(document, rows):
    with open(document, encoding="utf-8") as file:
        text = file.read()
    before, rest = text.split(BEGIN)
    write_whole(document, before + BEGIN + "\n" + table(rows) + END + rest.split(END)[1])


# ---- the machine

def idle_share(seconds=3.0):
    """Of all CPUs, from /proc/stat."""
    def now():
        fields = [int(word) for word in launching.read("/proc/stat").split("\n")[0].split()[1:]]
        return fields[3] + fields[4], sum(fields[:8])
    first = now()
    time.sleep(seconds)
    second = now()
    return (second[0] - first[0]) / max(1, second[1] - first[1])


def floor(times=100):
    """Milliseconds from kill -9 of a child until its parent knows."""
    found = []
    for _ in range(times):
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
        began = time.monotonic()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found.append(1e3 * (time.monotonic() - began))
    return found


def machine():
    """The properties that measurements depend on; nothing that identifies the machine."""
    found = floor()
    return {"cores": os.cpu_count(), "kernel": ".".join(platform.release().split(".")[:2]), "machine": platform.machine(),
            "floor_kill_to_wait_ms": {"p50": round(quantile(found, .5), 3), "p99": round(quantile(found, .99), 3)}}


def why_not_idle():
    """Why this machine is not suitable for measurements now; empty if it is."""
    share = idle_share()
    if share < 0.9:
        return "the CPUs are idle for %.0f %% of the time only" % (100 * share)
    slowest = quantile(floor(), .99)
    if slowest > 20:
        return "a parent learns of a killed child after %.0f ms (p99)" % slowest
    return None


# ---- measurements. Each function returns {series name: (values, tries)}, tries only for faults and shares, or (values,
# tries, facts) as judge takes them, or a NotHere for a single series without measurements.

@contextlib.contextmanager
def own_workspace():
    folder = tempfile.mkdtemp(prefix="promise-")
    workspace = launching.Workspace(folder)
    try:
        yield workspace
    finally:
        workspace.clean_up()
        launching.remove(folder)


class Tries:
    """Counts failures, and prints them."""

    def __init__(self):
        self.made = self.bad = 0

    def run(self, function, *arguments):
        """The function's result; None if it raises."""
        self.made += 1
        try:
            with own_workspace() as workspace:
                return function(workspace, *arguments)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            self.bad += 1
            print("    %s: %s" % (getattr(function, "__name__", "cell"), str(error)[-3000:]), file=sys.stderr, flush=True)
            return None


def milliseconds(values):
    return [None if value is None else 1e3 * value for value in values]


def first_notified(notes):
    """Seconds of time.monotonic, as the ranks recorded them. The time of a file has the resolution of the kernel's
    tick, 4 ms."""
    times = [note.split()[0] for note in notes if note.split()]
    if not times or not all(each.isdigit() for each in times):
        raise AssertionError("the survivors are to note when they had their SIGTERM: %s" % notes)
    return min(int(each) for each in times) / 1e9


def known_after(workspace, fault, rank, phase):
    """Seconds from the fault until the first survivor has its SIGTERM: the launcher knew before."""
    from grids import fault_grid
    fault_grid.rank_dies(workspace, fault, rank, phase, ["term=save:0"])
    return first_notified([workspace.note("saved-%d" % survivor) for survivor in range(RANKS)]) - workspace.fault()[0]


def crashes(scale):
    from grids import fault_grid
    cells = [(fault, rank, phase) for fault in fault_grid.FAULTS for rank in (0, 1, 4, 7) for phase in fault_grid.PHASES]
    tries, verdicts, known = Tries(), [], []
    for _ in range(max(1, round(2 * scale))):
        for cell in cells:
            gone = tries.run(fault_grid.rank_dies, *cell)
            verdicts += gone.values() if gone else []
            # Before the collective there is no rank to stop yet; at the end they may have finished.
            if cell[2] in ("collective", "checkpoint"):
                known.append(tries.run(known_after, *cell))
                known.append(tries.run(known_after, *cell))
    return tries, verdicts, known


def measure_r1(scale):
    from grids import collectives_grid
    tries, verdicts, known = crashes(scale)
    if tries.bad:
        raise AssertionError("%d of %d cells failed" % (tries.bad, tries.made))
    out = []
    draws = random.Random(1)
    collectives_grid.RANKS = RANKS
    for number in range(max(1, round(100 * scale))):
        operation = collectives_grid.OPERATIONS[number % len(collectives_grid.OPERATIONS)]
        out += collectives_grid.rank_is_killed(draws.randrange(RANKS), operation, draws.choice(collectives_grid.COUNTS),
                                               draws.choice(collectives_grid.WATCHES), draws.uniform(0, .3)).values()
    return {"rank dies: launcher knows": (milliseconds(known), None), "rank dies: verdict, launcher gone": (milliseconds(verdicts), None),
            "rank dies: survivors out of their collective": (milliseconds(out), None)}


def stops(scale):
    from grids import fault_grid
    tries, values = Tries(), []
    for _ in range(max(1, round(7 * scale))):
        for rank in (0, 1, 4, 7):
            for phase in fault_grid.PHASES:
                named = tries.run(fault_grid.rank_stops, rank, phase)
                values += named.values() if named else []
    return tries, values


def measure_r2(scale):
    tries, values = stops(scale)
    if tries.bad:
        raise AssertionError("%d of %d cells failed" % (tries.bad, tries.made))
    return {"SIGSTOP: named": (milliseconds(values), None)}


@functools.lru_cache(None)
def hangs(kind, scale):
    """R3 and R4 examine the same hangs, which take 11 (c) and 27 minutes (gloo): they are run once per process."""
    from grids import hang_grid
    results = []
    with contextlib.redirect_stdout(sys.stderr):
        hang_grid.run_kind(kind, max(1, math.ceil(7 * scale)), results, 3600)
    return results


PROGRAMS = {"c": "a C program", "gloo": "a plain torch script"}


def hang_times(results, kinds=KINDS):
    """R3's values for hangs. A hang that was never named counts, and so does a missing line about which rank waits for
    which, if the evidence takes 10 s; with other evidence the verdict may come without that line."""
    times = {series.name: [] for series in SERIES if series.id == "R3" and series.kind in kinds}
    for result in results:
        where = PROGRAMS[result.kind]
        late = result.fault == "sleep" or (result.kind, result.fault) == ("gloo", "loop")
        at_once = "stopped, deadlocked, spinning, mismatched" if result.kind == "c" else "stopped, deadlocked, mismatched"
        what = "asleep" if result.fault == "sleep" else "spinning" if late else at_once
        times["%s in %s: verdict" % (what, where)].append(result.seconds)
        if late or result.waiting is not None:
            times["hang in %s: line of who waits for whom" % where].append(result.waiting)
    return {name: (milliseconds(values), None) for name, values in times.items()}


def measure_r3(scale, kinds=KINDS):
    return hang_times([result for kind in kinds for result in hangs(kind, scale)], kinds)


def measure_r4(scale, kinds=KINDS):
    figures = {}
    for kind in kinds:
        hung = hangs(kind, scale)
        figures["hang in %s: wrong rank or call named" % PROGRAMS[kind]] = ([sum(not result.right for result in hung)], len(hung))
    if "c" in kinds:  # as the ranks of that grid are
        crashed, _, _ = crashes(scale)
        stopped, _ = stops(scale)
        figures["crash or stop: wrong rank named"] = ([crashed.bad + stopped.bad], crashed.made + stopped.made)
    return figures


def measure_r5(scale):
    values = []
    with own_workspace() as workspace:
        running = workspace.start_fault(RANKS, "fault=hang", "rank=1")
        workspace.fault()
        workspace.wait_for_registered_ranks(RANKS)
        for _ in range(max(1, round(100 * scale))):
            began = time.monotonic()
            done = workspace.fulldeck("stacks", "--json")
            stacks = json.loads(done.out)["ranks"] if done.code == 0 else []
            if len(stacks) != RANKS or not all(rank["complete"] for rank in stacks):
                raise AssertionError("the stacks of all %d ranks are to be complete: %r" % (RANKS, done))
            values.append(time.monotonic() - began)
        running.signal(signal.SIGTERM)
        running.wait()
    return {"stacks of 8 ranks": (milliseconds(values), None)}


def intervals_lost(reached, resumed):
    """Checkpoint intervals, at most: a rank dies less than one after the step that its run has saved, `reached`."""
    from grids import chaos
    return 1 + (reached - resumed) / chaos.SAVE_EVERY


def resumed_step(text):
    """The messages of examples/train.cc on stderr."""
    found = re.findall(r"example-train: begins at step (\d+)$", text, re.MULTILINE)
    if len(found) != 1:
        raise AssertionError("the program is to say once which step it begins at: " + text[-2000:])
    return int(found[0])


def restart(workspace):
    """(clean start, fault until trained again, intervals lost), both until the first checkpoint of the attempt
    exists."""
    from grids import chaos
    folder = os.path.join(workspace.folder, "checkpoints")
    began = time.monotonic()
    running = workspace.start("--nproc-per-node", RANKS, "--max-restarts", 1, "--no-python", chaos.PROGRAM, "--checkpoints", folder,
                          "--save-every", chaos.SAVE_EVERY, "--steps", 100000000)
    wait_until(lambda: chaos.newest_step(folder) > 0, "the first checkpoint\n" + running.err[-2000:])
    clean = time.monotonic() - began
    saved = chaos.newest_step(folder)
    killed = time.monotonic()
    os.kill(workspace.ranks()[RANKS // 2], signal.SIGKILL)
    wait_until(lambda: workspace.events("restart"), "the restart\n" + running.err[-2000:])
    # A save that was in progress when the rank died may have become durable.
    reached = max(saved, chaos.newest_step(folder))
    wait_until(lambda: chaos.newest_step(folder) > reached, "a checkpoint of the second attempt\n" + running.err[-2000:])
    again = time.monotonic() - killed
    running.signal(signal.SIGTERM)
    running.wait()
    return clean, again, intervals_lost(reached, resumed_step(workspace.log(0, attempt=1)))


def measure_r6(scale):
    from grids import chaos
    if not os.path.exists(chaos.PROGRAM):
        raise NotHere("this build has no torch")
    tries = Tries()
    found = [tries.run(restart) for _ in range(max(1, round(20 * scale)))]
    if tries.bad:
        raise AssertionError("%d of %d restarts failed" % (tries.bad, tries.made))
    clean = quantile([one[0] for one in found], .5)
    return {"restart: fault until trained and saved again, over a clean start": ([one[1] / clean for one in found], None),
            "restart: checkpoint intervals lost": ([one[2] for one in found], None)}


def measure_r7(scale):
    from grids import fault_grid
    tries, values = Tries(), []
    for _ in range(max(1, round(10 * scale))):
        for victim in ("front", "supervisor"):
            for while_stopping in (False, True):
                gone = tries.run(fault_grid.launcher_is_killed, victim, while_stopping)
                values += gone.values() if gone else []
    both = []
    try:
        for _ in range(max(1, round(10 * scale))):
            gone = tries.run(fault_grid.both_are_killed)
            both += gone.values() if gone else []
        of_both = (milliseconds(both), None)
    except fault_grid.NotHere as reason:
        of_both = NotHere(str(reason))
    if tries.bad:
        raise AssertionError("%d of %d cells failed" % (tries.bad, tries.made))
    return {"launcher killed: last survivor gone": (milliseconds(values), None),
            "both processes of the launcher killed: last rank gone": of_both}


def repeated(name, function, times, scale, weight=1):
    """A cell that only has to pass. `weight`: number of tries per call."""
    from grids import fault_grid
    tries = Tries()
    try:
        for _ in range(max(1, round(times * scale))):
            tries.run(function)
    except fault_grid.NotHere as reason:
        raise NotHere(str(reason))
    return {name: ([tries.bad], tries.made * weight)}


def measure_r8(scale):
    from grids import fault_grid
    return repeated("out of memory: not named with limit and peak", fault_grid.out_of_memory, 10, scale)


def measure_r9(scale):
    from grids import fault_grid
    name = "ports held, stolen, 100 launches at once"
    found = [repeated(name, fault_grid.port_is_held, 10, scale), repeated(name, fault_grid.port_cannot_be_stolen, 10, scale),
             repeated(name, fault_grid.many_at_once, 3, scale, weight=100)]
    return {name: ([sum(one[name][0]) for one in found], sum(one[name][1] for one in found))}


def measure_r10(scale):
    from cluster import host_cells, hosts
    reason = hosts.why_not()
    if reason:
        raise NotHere(reason)
    links = [cell for cell in host_cells.cells() if "link" in cell.words]
    values, alarms, tries = [], 0, max(1, round(10 * scale))

    def on_two_nodes(function):
        two = hosts.TwoHosts()
        folder = tempfile.mkdtemp(prefix="promise-")
        try:
            return function(two, folder)
        finally:
            two.remove()
            launching.remove(folder)

    for _ in range(max(1, round(5 * scale))):
        for cell in links:
            outcome = on_two_nodes(lambda two, folder, cell=cell: host_cells.try_cell(cell, two, folder, 29514, slack=30))
            if outcome.troubles:
                raise AssertionError("%s: %s" % (cell.name, "\n".join(outcome.troubles)[-3000:]))
            values.append(outcome.seconds)
    for _ in range(tries):
        alarms += bool(on_two_nodes(lambda two, folder: host_cells.try_losses(two, folder, 29514, seconds=20)).troubles)
    return {"link down or deaf: both sides ended": (milliseconds(values), None), "5 % of the packets lost: alarms": ([alarms], tries)}


def measure_r11(scale):
    from grids import fault_grid
    tries, values = Tries(), []
    try:
        for number in range(max(1, round(20 * scale))):
            took = tries.run(fault_grid.rank_cannot_be_killed, bool(number % 2))
            values += took.values() if took else []
    except fault_grid.NotHere as reason:
        raise NotHere(str(reason))
    if tries.bad:
        raise AssertionError("%d of %d cells failed" % (tries.bad, tries.made))
    grace = 1000  # milliseconds, --shutdown-timeout of the cell
    return {"unkillable rank: launcher gone after the grace time": ([value - grace for value in milliseconds(values)], None)}


def gtest(binary, pattern, variables=None):
    """(failed tests, injected faults) of the C++ tests whose names match: each one records the number of faults it
    injected, as "tries"."""
    path = os.path.join(BUILD, "tests", binary)
    if not os.path.exists(path):
        raise NotHere("this build has no " + binary)
    with tempfile.TemporaryDirectory(prefix="promise-") as folder:
        output = os.path.join(folder, "report.json")
        subprocess.run([path, "--gtest_brief=1", "--gtest_filter=" + pattern, "--gtest_output=json:" + output],
                       env=dict(os.environ, **(variables or {})), stdout=sys.stderr, timeout=3600)
        with open(output) as file:
            report = json.load(file)
    return report["failures"] + report.get("errors", 0), recorded_tries(report)


def recorded_tries(report):
    """From a JSON report of gtest. Tests that inject nothing record nothing."""
    tests = [test for suite in report["testsuites"] for test in suite["testsuite"]]
    tries = sum(int(test.get("tries", 0)) for test in tests)
    if not tries:
        raise AssertionError("%d tests match, and none recorded an injected fault" % len(tests))
    return tries


def by_tests(name, binary, pattern, variables=None):
    def measure(scale):
        del scale
        failed, tries = gtest(binary, pattern, variables)
        return {name: ([failed], tries)}
    return measure


def measure_c4(scale):
    path = os.path.join(BUILD, "bench", "checkpoint_bench")
    if not os.path.exists(path):
        raise NotHere("checkpoint_bench is not built: cmake --build build --target torch_benches")
    values = []
    for _ in range(max(1, round(5 * scale))):
        with tempfile.TemporaryDirectory(prefix="promise-") as folder:
            figures = subprocess.run([path, folder, "3", "6"], check=True, stdout=subprocess.PIPE, universal_newlines=True, timeout=1200).stdout
            values.append(float(re.search(r"stall / plain memcpy\s+([\d.]+)", figures).group(1)))
    return {"stall of a save, over a memcpy of the state": (values, None)}


def measure_s3(scale):
    from grids import hang_grid
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        slow = hang_grid.slow_ranks("c", 0.6, 4, max(1, round(12 * scale)), 1200)
        made, alarms, *_, false = hang_grid.quiet("c", round(10000 * scale), 1200, False, False, 0.03, 4)
    print(printed.getvalue(), file=sys.stderr)
    if any(one[0] != one[1] for one in slow):
        raise AssertionError("another rank, or none, was named slow: %s" % slow)
    return {"rank 1.3 times slower (C program): steps until named": ([one[3] for one in slow], None),
            "clean steps: ranks called slow": ([len(false) + len(alarms)], made)}


def measure_q1(scale):
    from grids import hang_grid
    wanted, calls, alarms = round(1000000 * scale), 0, []
    # Under 4 × load, steps take many times longer: half of a million calls would take hours. The rest is measured
    # without load.
    for loaded, share, seconds in ((True, .5, 600 * scale), (False, 1, 4 * 3600)):
        steps = math.ceil((wanted * share - calls) / 2)  # two calls each
        made, raised, *_ = hang_grid.quiet("c", steps, seconds, loaded)
        calls += 2 * made
        alarms += raised
    for line in alarms:
        print("    " + line, file=sys.stderr)
    return {"clean collectives: alarms": ([len(alarms)], calls)}


def measure_q2(scale):
    del scale
    path = os.path.join(BUILD, "bench", "measure_board")
    figures = subprocess.run([path], check=True, stdout=subprocess.PIPE, universal_newlines=True, timeout=600).stdout
    values = []
    for line in figures.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3 and re.match(r"`fulldeck_board_(step|phase|heartbeat|collective)", cells[1]):
            values += [float(re.match(r"[\d.]+", cell).group(0)) for cell in cells[2:4]]
    if not values:
        raise AssertionError("measure_board printed no figures: " + figures)
    return {"a record on the board": (values, None)}


def measure_q3(scale):
    from grids import chaos
    if not os.path.exists(chaos.PROGRAM):
        raise NotHere("this build has no torch")
    series = chaos.Chaos(random.SystemRandom().randrange(1 << 31), list(chaos.KINDS))
    print("    seed %d" % series.seed, file=sys.stderr)
    began = time.monotonic()
    with contextlib.redirect_stdout(sys.stderr):
        series.run(3600 * scale)
    facts = {"seed": series.seed, "seconds": round(time.monotonic() - began)}
    if series.skipped and not series.failed:
        raise NotHere("; ".join("%s: %s" % each for each in sorted(series.skipped.items())))
    return {"random faults: not handled, or other bits": ([len(series.failed)], sum(series.handled.values()) + len(series.failed), facts)}


def measure_q4(scale):
    from grids import fault_grid
    return repeated("crash loop: not ended after 3 cycles with its code", fault_grid.crash_loop, 10, scale)


ALL_KILLS = {"FULLDECK_CHECKPOINT_KILLS": "all"}
MEASURES = {
    "R1": measure_r1, "R2": measure_r2, "R3": measure_r3, "R4": measure_r4, "R5": measure_r5, "R6": measure_r6, "R7": measure_r7,
    "R8": measure_r8, "R9": measure_r9, "R10": measure_r10, "R11": measure_r11,
    "C1": by_tests("kill at every operation of a save: bad loads", "checkpoint_test", "*CheckpointDeath*:CheckpointKill*", ALL_KILLS),
    "C2": by_tests("disk full, EIO, short write: harm", "checkpoint_test",
                   "Checkpoint.AnErrorAtAnyOperation*:Checkpoint.ShortWrites*:BackgroundSaver*"),
    "C3": by_tests("truncations and flipped bits: accepted", "checkpoint_test", "Damaged*", {"FULLDECK_CHECKPOINT_DAMAGES": "10000"}),
    "C4": measure_c4,
    "C5": by_tests("saved by 8, loaded by 1-7 and 16: other bits", "training_test", "CheckpointRanks.SavedByEight*"),
    "C6": by_tests("retention while saves fail: no verified checkpoint", "checkpoint_test", "Store.NeverHasFewer*:Retention*"),
    "S1": by_tests("NaN in a gradient: not named before the step", "training_test", "*NamesRankTensorAndStep*",
                   {"FULLDECK_NONFINITE_GRADIENTS": "500"}),
    "S2": by_tests("flipped parameter bit: not named", "training_test", "*NamesTheRankOfAFlippedBit*", {"FULLDECK_FLIPPED_BITS": "500"}),
    "S3": measure_s3, "Q1": measure_q1, "Q2": measure_q2, "Q3": measure_q3, "Q4": measure_q4,
}


def git(top, *arguments):
    return subprocess.run(("git", "-C", top) + arguments, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def without_table(text):
    before, _, rest = text.partition(BEGIN)
    return before + rest.partition(END)[2]


def uncommitted(top=TOP):
    """Paths that differ from the commit that rows name, except the evidence and the table of docs/reliability.md, which
    are written here."""
    document = os.path.relpath(DOCUMENT, TOP)
    paths = [entry[3:] for entry in git(top, "status", "--porcelain", "-z", "--no-renames").split("\0") if entry]
    paths = [path for path in paths if not path.startswith("docs/evidence/")]
    if document in paths and document in git(top, "ls-tree", "-r", "--name-only", "HEAD").splitlines():
        if without_table(launching.read(os.path.join(top, document))) == without_table(git(top, "show", "HEAD:" + document)):
            paths.remove(document)
    return paths


def row_of(series, found):
    if isinstance(found, NotHere):
        return not_here(series, str(found))
    values, tries, facts = (tuple(found) + ({},))[:3]
    return judge(series, values, tries, **facts)


def measure(name, scale, facts, kinds=KINDS):
    """Rows of one promise. An exception yields a row that is not kept; without a way to measure it here there is a
    row without a verdict."""
    began = time.monotonic()
    wanted = [series for series in SERIES if series.id == name and (series.kind is None or series.kind in kinds)]
    try:
        figures = MEASURES[name](scale, kinds) if any(series.kind for series in wanted) else MEASURES[name](scale)
        rows = [row_of(series, figures[series.name]) for series in wanted]
    except NotHere as reason:
        rows = [not_here(series, str(reason)) for series in wanted]
    except Exception:
        print("%-4s FAILED\n%s" % (name, traceback.format_exc()), file=sys.stderr, flush=True)
        rows = [dict(judge(series, [], 0), verdict="not kept") for series in wanted]
    for row in rows:
        row.update(facts)
        if row["verdict"] == NOT_HERE:
            print("%-4s %s: %s: %s" % (name, row["series"], NOT_HERE, row["reason"]), flush=True)
            continue
        print("%-4s %-12s %-60s n %s, p50 %s, p99 %s, max %s%s; promised %s %s (%s)" % (
            name, row["verdict"], row["series"], row["n"], row["p50"], row["p99"], row["max"],
            ", %d never" % row["missed"] if "missed" in row else "", row["limit"], row["unit"], row["statistic"]), flush=True)
    print("     %.0f s" % (time.monotonic() - began), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="IDS", help="only these, such as R1,Q4")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="KINDS",
                        help="of R3 and R4 only the series of C programs (c, a quarter of an hour) or of plain torch scripts (gloo, half an hour)")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the usual number of runs (1.0)")
    parser.add_argument("--loaded", action="store_true", help="measure on a machine that is not idle, or in a tree with changes; needs --output")
    parser.add_argument("--output", metavar="FILE", help="merge the results into FILE instead of docs/evidence/promises.json")
    parser.add_argument("--table", action="store_true", help="only write the table of docs/reliability.md")
    arguments = parser.parse_args()
    if arguments.table:
        write_table(DOCUMENT, read_results(RESULTS))
        return 0
    names = arguments.only.split(",") if arguments.only else IDS
    unknown = [name for name in names if name not in MEASURES]
    if unknown:
        parser.error("unknown: %s; known: %s" % (", ".join(unknown), ", ".join(IDS)))
    kinds = tuple(arguments.kinds.split(","))
    if not set(kinds) <= set(KINDS):
        parser.error("unknown: %s; known: %s" % (", ".join(sorted(set(kinds) - set(KINDS))), ", ".join(KINDS)))
    path = arguments.output or RESULTS
    quoted = os.path.realpath(path) == os.path.realpath(RESULTS)
    if arguments.loaded and quoted:
        parser.error("--loaded needs --output FILE, another one than docs/evidence/promises.json: the docs quote figures of an idle machine only")
    changes = uncommitted()
    if changes and not arguments.loaded:
        print("fulldeck promises: error: the tree has uncommitted changes (%s); commit them first, since a row names its commit"
              % ", ".join(changes[:5]), file=sys.stderr)
        return 2
    facts = {"machine": machine(), "commit": git(TOP, "rev-parse", "--short=12", "HEAD").strip() + ("-changed" if changes else "")}
    if arguments.loaded:
        facts["loaded"] = True
    code = 0
    for name in names:
        busy = None if arguments.loaded else why_not_idle()
        if not busy:
            rows = measure(name, arguments.scale, facts, kinds)
            busy = None if arguments.loaded else why_not_idle()
        if busy:
            code = 2
            print("fulldeck promises: error: %s is not recorded: this machine is not idle: %s. Wait until it is, or look at figures that count for "
                  "nothing with --loaded --output FILE" % (name, busy), file=sys.stderr, flush=True)
            continue
        if any(row["verdict"] != "kept" for row in rows):
            code = max(code, 1)
        # Immediately: a series that takes hours may be interrupted.
        write_results(path, merge(read_results(path), rows))
        if quoted:
            write_table(DOCUMENT, read_results(RESULTS))
    return code


if __name__ == "__main__":
    sys.exit(main())
