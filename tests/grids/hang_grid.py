"""The hang grid: eight real ranks that hang on demand, and for each fault the same checks. Was exactly the right rank
named, with the right evidence, and is the call that the others wait in the one that the program itself counted? After
how long? Were the stacks of all ranks there before anything was killed? Was no rank named without reason? Everything is
read from events.jsonl.

    make hang-grid      every fault × ranks 0, 1, 4, 7, several times, half of them in a plain script of torch with Gloo
    make hang-quiet     clean steps under load, a slow first step, a checkpoint, a silent upload and FIFO, a debugger: no hang
    make slow-ranks     one rank after the other 1.3 times slower

The ranks are reused for the next fault if possible: a signal releases them. tests/launcher/test_hang_grid.py runs a
few."""
import argparse
import contextlib
import ctypes
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import launching
from launching import Workspace, read, wait_until

RANKS = 8
VICTIMS = (0, 1, 4, 7)
# The fault, and the evidence that must be named.
EVIDENCE = {"loop": "spinning", "deadlock": "deadlocked", "sleep": "sleeping", "stop": "stopped", "skip": "mismatched", "mismatch": "mismatched"}
FAULTS = tuple(EVIDENCE)
RELEASED_BY_SIGNAL = ("loop", "deadlock", "sleep")
PROGRAM = os.path.join(launching.PROGRAMS, "hang_rank")
SCRIPT = os.path.join(launching.HERE, "scripts", "hang_gloo.py")
ALARMS = ("hang", "desync")
PATIENCE = 60


class Run:
    """One launch in which faults are ordered."""

    def __init__(self, kind, flags=(), options=(), ranks=RANKS):
        self.kind, self.ranks, self.number = kind, ranks, 0
        self.folder = tempfile.mkdtemp(prefix="hang-")
        self.workspace = Workspace(self.folder)
        program = [PROGRAM, self.workspace.notes] if kind == "c" else [SCRIPT, self.workspace.notes]
        self.events_file = os.path.join(self.folder, "events.jsonl")
        self.running = self.workspace.start("--nproc-per-node", ranks, *(list(flags) + program + list(options)), extra={"FULLDECK_EVENTS": self.events_file})

    def steps(self):
        return int(self.workspace.note("steps") or 0)

    def wait_for_steps(self, count=16, seconds=120):
        begin = self.steps()
        wait_until(lambda: self.steps() >= begin + count or not self.running.alive, "steps\n" + self.running.err[-3000:], seconds)

    def order(self, fault, rank):
        self.number += 1
        path = os.path.join(self.workspace.notes, "order")
        with open(path + ".new", "w") as file:
            file.write("%d %s %d" % (self.number, fault, rank))
        os.rename(path + ".new", path)
        text = wait_until(lambda: fault == "end" or self.workspace.note("fault-%d" % self.number), "the accident\n" + self.running.err[-3000:], PATIENCE)
        if fault != "end":
            return Accident(*text.split())

    def events(self, *ids):
        """All events of the run so far with one of these ids."""
        found = []
        for line in read(self.events_file).splitlines(True):
            if line.endswith("\n"):
                event = json.loads(line)
                if event["id"] in ids:
                    found.append(event)
        return found

    def alarms(self):
        return self.events(*ALARMS)

    def end(self):
        if self.running.alive:
            with contextlib.suppress(AssertionError):
                self.order("end", 0)
                self.running.wait(PATIENCE)
        self.close()

    def close(self):
        if self.running.alive:
            self.running.signal(signal.SIGTERM)
            with contextlib.suppress(AssertionError):
                self.running.wait(40)
        self.workspace.clean_up()
        launching.remove(self.folder)


class Accident:
    """What the victim recorded just before its fault."""

    def __init__(self, moment, pid, call="", number="0"):
        self.moment, self.pid, self.call, self.number = int(moment) / 1e9, int(pid), call, int(number)


def moment_of(event):
    return event["monotonic_ns"] / 1e9


class Result:
    def __init__(self, kind, fault, victim):
        self.kind, self.fault, self.victim = kind, fault, victim
        self.event, self.accident = None, None
        self.seconds = self.waiting = self.stopped = self.stacks = self.stacks_seconds = None
        self.trouble = ""

    @property
    def named(self):
        return self.event and self.event["awaited_rank"]

    @property
    def right_number(self):
        return bool(self.event and self.accident and self.event["call_number"] == self.accident.number)

    @property
    def right(self):
        """Rank, call, number of the call and evidence, each compared with what the program did."""
        return bool(self.named == self.victim and self.right_number and self.event["call"] == self.accident.call and
                    self.event["evidence"] == EVIDENCE[self.fault])

    @property
    def difference(self):
        if self.event is None:
            return "no event"
        return "rank %s, %s #%s, %s; the program: rank %s, %s #%s, %s" % (
            self.named, self.event["call"], self.event["call_number"], self.event["evidence"], self.victim, self.accident.call, self.accident.number,
            EVIDENCE[self.fault])


def inject(run, fault, victim):
    """One fault in a run, which continues or ends."""
    result = Result(run.kind, fault, victim)
    before = {name: len(run.events(name)) for name in ("waiting", "stacks", "rank-stopped", "run-moves-again")}
    alarms_before = len(run.alarms())

    def new(name):
        return run.events(name)[before[name]:]

    result.accident = run.order(fault, victim)
    with contextlib.suppress(AssertionError):
        wait_until(lambda: len(run.alarms()) > alarms_before or not run.running.alive, "the alarm", 30)
    alarms = run.alarms()[alarms_before:]
    if alarms:
        result.event = alarms[0]
        result.seconds = moment_of(result.event) - result.accident.moment
        if run.running.alive:
            with contextlib.suppress(AssertionError):
                wait_until(lambda: new("stacks") or not run.running.alive, "stacks", 10)
        for stacks in new("stacks")[:1]:
            result.stacks, result.stacks_seconds = stacks["complete"], stacks["seconds"]
    else:
        result.trouble = "no alarm within 30 s: " + run.running.err[-1500:]
    # If the evidence exists as soon as the others have waited long enough, there is no "waiting" line before the alarm.
    for waiting in [event for event in new("waiting") if event["awaited_rank"] == victim][:1]:
        result.waiting = moment_of(waiting) - result.accident.moment
    if fault == "stop":
        for stop in new("rank-stopped")[:1]:
            result.stopped = moment_of(stop) - result.accident.moment if stop["rank"] == victim else None
    with contextlib.suppress(OSError):
        if fault == "stop":
            os.kill(result.accident.pid, signal.SIGCONT)
        elif fault in RELEASED_BY_SIGNAL:
            os.kill(result.accident.pid, signal.SIGUSR1)
    if run.running.alive and alarms:
        try:
            wait_until(lambda: new("run-moves-again") or not run.running.alive, "moving", 40)
            run.wait_for_steps(16)
        except AssertionError as error:
            result.trouble = "it did not go on: " + str(error)[-800:]
    extra = [event["message"] for event in run.alarms()[alarms_before + 1:]]
    if extra:
        result.trouble += " more than one alarm: " + " / ".join(extra)
    return result


def cells(kind, repeats):
    """Faults after which the run continues come first, in one launch; each of the others needs its own."""
    going_on = FAULTS if kind == "gloo" else ("loop", "deadlock", "sleep", "stop")
    return ([(fault, victim) for _ in range(repeats) for fault in going_on for victim in VICTIMS],
            [(fault, victim) for _ in range(repeats) for fault in FAULTS if fault not in going_on for victim in VICTIMS])


def run_kind(kind, repeats, results, seconds):
    going_on, alone = cells(kind, repeats)
    end = time.monotonic() + seconds
    run = None
    for number, (fault, victim) in enumerate(going_on + alone):
        if time.monotonic() > end:
            break
        try:
            if run is not None and not run.running.alive:
                run.close()
                run = None
            if run is None:
                run = Run(kind)
                run.wait_for_steps(24, 180)
            result = inject(run, fault, victim)
        except Exception as error:  # whatever it was, the grid continues and counts it
            result = Result(kind, fault, victim)
            result.trouble = "%s: %s" % (type(error).__name__, str(error)[-800:])
        results.append(result)
        show(result)
        if run is not None and (result.trouble or number >= len(going_on)):
            run.close()
            run = None
    if run is not None:
        run.end()


def show(result):
    print("%-5s %-9s rank %d: %s%s%s%s" % (
        result.kind, result.fault, result.victim, "right" if result.right else "WRONG (%s)" % result.difference,
        " after %.2f s" % result.seconds if result.seconds is not None else "",
        ", stacks %s/%d in %.1f s" % (result.stacks, RANKS, result.stacks_seconds) if result.stacks is not None else "",
        "  " + result.trouble if result.trouble else ""), flush=True)


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(math.ceil(share * len(values))) - 1)] if values else float("nan")


def report(results):
    right = sum(result.right for result in results)
    print("\nrank, call, its number and evidence right: %d of %d (%.1f %%)" % (right, len(results), 100.0 * right / max(1, len(results))))
    print("rank alone: %d; number of the call alone: %d" % (sum(r.named == r.victim for r in results), sum(r.right_number for r in results)))
    plain = [result for result in results if result.kind == "gloo"]
    print("of these in plain torch + Gloo scripts: %d of %d" % (sum(result.right for result in plain), len(plain)))
    print("%-6s %-9s %5s %8s %8s %8s" % ("", "fault", "n", "right", "p50 s", "p99 s"))
    for kind in ("c", "gloo"):
        for fault in FAULTS:
            some = [result for result in results if (result.kind, result.fault) == (kind, fault)]
            times = [result.seconds for result in some if result.seconds is not None]
            if some:
                print("%-6s %-9s %5d %8d %8.2f %8.2f" % (kind, fault, len(some), sum(r.right for r in some), quantile(times, .5), quantile(times, .99)))
    stops = [result.stopped for result in results if result.stopped is not None]
    if stops:
        print("SIGSTOP → \"was stopped\": p50 %.0f ms, p99 %.0f ms, n = %d" % (quantile(stops, .5) * 1e3, quantile(stops, .99) * 1e3, len(stops)))
    stacks = [result for result in results if result.stacks is not None]
    if stacks:
        print("stacks of all %d ranks: %d of %d times, after p50 %.2f s, p99 %.2f s" % (
            RANKS, sum(result.stacks == RANKS for result in stacks), len(stacks), quantile([r.stacks_seconds for r in stacks], .5),
            quantile([r.stacks_seconds for r in stacks], .99)))
    extra = [result for result in results if "more than one alarm" in result.trouble]
    print("alarms without an accident: %d" % len(extra))
    for result in results:
        if not result.right or result.trouble:
            print("  %s %s rank %d: %s %s" % (result.kind, result.fault, result.victim, result.difference, result.trouble[:1500]))
    return right == len(results)


def torchrun_cells(cap):
    """torchrun's output for the same script in the same cells."""
    for fault in FAULTS:
        folder = tempfile.mkdtemp(prefix="hang-")
        workspace = Workspace(folder)
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--standalone", SCRIPT, workspace.notes, "timeout=1800"]
        running = workspace.start_program(command, extra={"OMP_NUM_THREADS": "1"})
        try:
            wait_until(lambda: int(workspace.note("steps") or 0) >= 24 or not running.alive, "steps\n" + running.err[-2000:], 240)
            with open(os.path.join(workspace.notes, "order"), "w") as file:
                file.write("1 %s 4" % fault)
            wait_until(lambda: workspace.note("fault-1"), "the accident", 60)
            said = len(running.err)
            begin = time.monotonic()
            while running.alive and time.monotonic() - begin < cap and len(running.err) == said:
                time.sleep(0.1)
            print("torchrun + Gloo, %s at rank 4: %s" % (fault, "said after %.1f s: %s" % (time.monotonic() - begin, running.err[said:][:300])
                                                         if len(running.err) > said else "nothing within %d s (cap of this test)" % cap), flush=True)
        finally:
            workspace.clean_up()
            running.alive and running.signal(signal.SIGKILL)
            workspace.clean_up()
            launching.remove(folder)


def options_of(kind, **seconds):
    return ["%s=%s" % (name, (int(value * (1e3 if name == "first" else 1e6)) if kind == "c" else value)) for name, value in seconds.items()]


# ---- no fault

@contextlib.contextmanager
def load(processes):
    started = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def debug(pid, seconds):
    """Attaches to a process as a debugger does, and detaches again."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    attach, detach = 16, 17
    if libc.ptrace(attach, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, 0x40000000)
    time.sleep(seconds)
    libc.ptrace(detach, pid, None, None)


def attach_debugger(pid, seconds):
    # The tracer must be one thread from start to end.
    tracer = threading.Thread(target=debug, args=(pid, seconds))
    tracer.start()
    tracer.join()


def settle(run, seconds=3):
    """Runs steps for that time: afterwards the median step, of which limits are multiples, is that of normal steps
    again."""
    end = time.monotonic() + seconds
    while run.running.alive:
        run.wait_for_steps(8, 120)
        if time.monotonic() > end:
            return


# Each one is a pause that a healthy run may have: (order, duration in seconds).
PAUSES = (("checkpoint:10000", 10), ("upload:30000", 30), ("fifo:15000", 15))


def quiet(kind, steps, seconds, loaded, pauses=True, card=0, ranks=RANKS):
    """Clean steps, interrupted by a slow first step, a checkpoint that writes for 10 s, an upload that is silent for 30
    s, a FIFO that is silent for 15 s, and a debugger for 12 s. Returns the number of steps, the alarms, the pauses
    without an event "waiting" that names the right rank, and the ranks that were called slow."""
    options = options_of(kind, work=0.0002, card=card)
    missed = []
    with load(4 * (os.cpu_count() or 1) if loaded else 0):
        run = Run(kind, options=options + (options_of(kind, first=12) if pauses else []), ranks=ranks)
        try:
            run.wait_for_steps(8, 240)
            for order, length in PAUSES if pauses else ():
                settle(run)
                before = len(run.events("waiting"))
                accident = run.order(order, 0)
                run.wait_for_steps(8, length + 120)
                seen = [event for event in run.events("waiting")[before:] if event["awaited_rank"] == 0]
                if not any(event["call_number"] == accident.number for event in seen):
                    missed.append("%s: %s, not #%d" % (order, [event["message"] for event in seen], accident.number))
                if order.startswith(("upload", "fifo")) and not any(event["io"] for event in seen):
                    missed.append(order + ": no I/O")
            if pauses:
                attach_debugger(run.workspace.ranks()[4], 12)
                run.wait_for_steps(8, 120)
            deadline = time.monotonic() + seconds
            while run.steps() < steps and time.monotonic() < deadline and run.running.alive:
                time.sleep(0.2)
            made, alive = run.steps(), run.running.alive
            slow = [event["message"] for event in run.events("straggler")]
            alarms = [event["message"] for event in run.alarms()]
            if not alive:
                alarms.append("it ended: " + run.running.err[-2000:])
            return made, alarms, missed, slow
        finally:
            run.end()


def slow_ranks(kind, card, ranks, repeats, seconds):
    """One rank after the other is 1.3 times slower than the rest. Yields (victim, rank named, seconds, steps, share in
    percent), with None if no rank was named. A step waits for a card instead of computing: if ranks shared CPU cores,
    each one would be slow in turn."""
    run = Run(kind, options=options_of(kind, work=0.0002, card=card), ranks=ranks)
    end = time.monotonic() + seconds
    found = []
    try:
        run.wait_for_steps(16, 120)
        begin, first = time.monotonic(), run.steps()
        for victim in range(repeats):
            victim %= ranks
            if time.monotonic() > end:
                break
            before = len(run.events("straggler"))
            happened = run.order("slow:30", victim).moment
            with contextlib.suppress(AssertionError):
                wait_until(lambda: len(run.events("straggler")) > before, "the slow rank", max(40, 40 * card))
            step_seconds = (time.monotonic() - begin) / max(1, run.steps() - first)
            named = run.events("straggler")[before:]
            if named:
                after = moment_of(named[0]) - happened
                found.append((victim, named[0]["rank"], after, after / step_seconds, round(100 * named[0]["share"])))
            else:
                found.append((victim, None, None, None, None))
            print("%-5s steps of %.2f s: rank %d is slow; named %s after %s" % (
                kind, card, victim, found[-1][1], "%.1f s, %.0f steps, %d %%" % found[-1][2:] if named else "nothing"), flush=True)
            run.order("slow:0", victim)
        return found
    finally:
        run.end()


def straggler_figures(kinds, card, ranks, repeats, clean, seconds):
    """Slow ranks, and clean steps of 30 ms without a slow rank, at the same time."""
    results = {}

    def take(name, function, *arguments):
        results[name] = function(*arguments)

    threads = []
    for kind in kinds:
        threads.append(threading.Thread(target=take, args=((kind, "slow"), slow_ranks, kind, card, ranks, repeats, seconds)))
        threads.append(threading.Thread(target=take, args=((kind, "clean"), quiet, kind, clean, seconds, False, False, 0.03, ranks)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = True
    for kind in kinds:
        slow = results[(kind, "slow")]
        right = [one for one in slow if one[0] == one[1]]
        steps = sorted(one[3] for one in right)
        print("%-5s %d of %d slow ranks named, after p50 %.0f, at most %.0f steps" % (kind, len(right), len(slow), quantile(steps, .5), quantile(steps, 1)))
        made, alarms, _, false = results[(kind, "clean")]
        print("%-5s %d clean steps: %d ranks called slow, %d alarms %s" % (kind, made, len(false), len(alarms), " ".join(false + alarms)))
        good = good and len(right) == len(slow) and not false and not alarms
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=8, help="of each fault at each rank, in C and in torch")
    parser.add_argument("--seconds", type=float, default=3600, help="no further accident after so long")
    parser.add_argument("--kinds", default="c,gloo,gloo", help="launches side by side; those of one kind share its accidents")
    parser.add_argument("--torchrun", type=float, default=0, metavar="CAP", help="what torchrun says of the same faults, within CAP seconds")
    parser.add_argument("--quiet", type=int, default=0, metavar="STEPS", help="clean steps instead of accidents")
    parser.add_argument("--stragglers", type=int, default=0, metavar="N", help="N ranks that are 1.3 times slower, and clean steps, instead of accidents")
    parser.add_argument("--card", type=float, default=0.6, help="seconds of a step with --stragglers")
    parser.add_argument("--ranks", type=int, default=4, help="with --stragglers")
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    if arguments.stragglers:
        good = straggler_figures(sorted(set(kinds)), arguments.card, arguments.ranks, arguments.stragglers, 10000, arguments.seconds)
        return 0 if good else 1
    if arguments.quiet:
        bad = 0
        for kind in sorted(set(kinds)):
            for loaded in (False, True):
                made, alarms, missed, slow = quiet(kind, arguments.quiet // 4, arguments.seconds / 4, loaded)
                bad += len(alarms) + len(missed)
                print("%-5s %s: %d clean steps, first step of 12 s, checkpoint of 10 s, silent upload of 30 s and FIFO of 15 s, debugger for 12 s: "
                      "%d alarms, %d pauses not reported as waiting, %d slow ranks %s" % (
                          kind, "4 × load" if loaded else "no load ", made, len(alarms), len(missed), len(slow), " ".join(alarms + missed + slow)),
                      flush=True)
        return 1 if bad else 0
    results = []
    threads = [threading.Thread(target=run_kind, args=(kind, max(1, arguments.repeats // kinds.count(kind)), results, arguments.seconds)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = report(results)
    if arguments.torchrun:
        torchrun_cells(arguments.torchrun)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
