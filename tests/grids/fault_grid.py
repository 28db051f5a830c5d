"""The fault grid: real ranks, real faults, and for each cell the same checks. Did the run end within the limit? Was the
culprit named exactly, with its rank and exit status? Was nothing left: no process, cgroup, registry entry, lease or
file?

A cell is a function of a Workspace that returns its measurements, {series: seconds}, and raises if a check failed.
tests/launcher/test_fault_grid.py runs a dozen; `make fault-grid` runs all of them, several times, and prints the
measurements."""
import argparse
import collections
import contextlib
import errno
import math
import os
import random
import re
import signal
import socket
import sys
import time
import traceback

from grids import kernel_hold
import launching
from launching import FAULT_RANK, children_of, free_port, read, state_of, variables_of, wait_until

RANKS = 8
# How long a cell waits before something counts as a hang. Not a promise: tests/grids/promises.py fails at the promised
# values.
PATIENCE = 30
FAULTS = {
    "kill": (137, "killed by SIGKILL"),
    "segv": (139, "killed by SIGSEGV"),
    "abort": (134, "killed by SIGABRT"),
    "exit:1": (1, "exited with code 1"),
}
PHASES = ("init", "collective", "checkpoint", "teardown")
# Per rank: children, a daemon in its own session, and a process that left the process group; all of them ignore
# SIGTERM.
COMPANY = ("children=2", "daemons=1", "left=1", "deaf=1")
PER_RANK = 4


class NotHere(Exception):
    """This machine lacks what the cell needs; the text names it."""


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def named(done, rank, how):
    """The report names exactly this rank and its exit status."""
    causes = [line for line in done.err.splitlines() if "root cause: " in line]
    check(len(causes) == 1, "one root cause is to be named, not %d\n%r" % (len(causes), done))
    check(re.search(r"root cause: rank %d \(" % rank, causes[0]), "rank %d is to be named: %s" % (rank, causes[0]))
    check(how in causes[0], "'%s' is to be said: %s" % (how, causes[0]))


# ---- R1: a rank dies

def rank_dies(workspace, fault, rank, phase, options=(), flags=()):
    running = workspace.start_fault(RANKS, "fault=" + fault, "rank=%d" % rank, "phase=" + phase, *options, flags=flags)
    done = running.wait(PATIENCE)
    code, how = FAULTS.get(fault) or (int(fault.split(":")[1]), "exited with code " + fault.split(":")[1])
    check(done.code == code, "the exit code is to be %d\n%r" % (code, done))
    named(done, rank, how)
    check("%d others were then stopped" % (RANKS - 1) in done.root_cause, done.root_cause)
    check("fault_rank: rank %d: %s in %s" % (rank, fault, phase) in done.ours, "the end of its stderr is to be shown\n%r" % done)
    workspace.assert_nothing_left()
    return {"R1 fault → launcher gone": running.ended - workspace.fault()[0]}


def rank_dies_with_company(workspace, fault, rank, phase):
    """The same if all children of the ranks ignore SIGTERM: the run ends after the grace period."""
    figures = rank_dies(workspace, fault, rank, phase, COMPANY, ["--shutdown-timeout", "1"])
    return {"R1 with %d deaf processes, grace 1 s" % (RANKS * PER_RANK): list(figures.values())[0]}


def rank_dies_and_others_ignore_it(workspace, fault, rank, phase):
    figures = rank_dies(workspace, fault, rank, phase, ["term=ignore"], ["--shutdown-timeout", "1"])
    return {"R1 with ranks that ignore SIGTERM, grace 1 s": list(figures.values())[0]}


def rank_dies_and_others_fork(workspace, fault, rank, phase):
    """On SIGTERM the survivors fork as fast as they can, up to 20 processes each, which all ignore SIGTERM."""
    figures = rank_dies(workspace, fault, rank, phase, ["term=bomb:20"], ["--shutdown-timeout", "1"])
    return {"R1 with a fork bomb at SIGTERM, grace 1 s": list(figures.values())[0]}


# ---- R2: a rank is stopped

def rank_stops(workspace, rank, phase):
    running = workspace.start_fault(RANKS, "fault=stop", "rank=%d" % rank, "phase=" + phase)
    reported_at = running.wait_for("was stopped by SIGSTOP", PATIENCE)
    happened, pid = workspace.fault()
    line = next(line for line in running.err.splitlines() if "was stopped by SIGSTOP" in line)
    check("rank %d (" % rank in line and "pid %d)" % pid in line and "kill -CONT %d" % pid in line, line)
    check(running.alive, "a stopped rank is no failure")
    os.kill(pid, signal.SIGCONT)
    done = running.wait(PATIENCE)
    check(done.code == 0, repr(done))
    check(done.ours.count("was stopped by") == 1, "it is to be named alone\n%r" % done)
    workspace.assert_nothing_left()
    return {"R2 SIGSTOP → named": reported_at - happened}


def stopped_rank_is_stopped_with_the_run(workspace):
    """A stopped rank cannot react to SIGTERM, but the run still ends within the grace period."""
    running = workspace.start_fault(RANKS, "fault=stop", "rank=3", "term=save:0")
    running.wait_for("was stopped by SIGSTOP", PATIENCE)
    running.signal(signal.SIGTERM)
    done = running.wait(PATIENCE)
    check(done.code == 143, repr(done))
    check(workspace.note("saved-3"), "it is to be continued, so that it can save\n%r" % done)
    workspace.assert_nothing_left()
    return {}


# ---- R7: the launcher is killed

def wait_for_company(workspace):
    wait_until(lambda: len(workspace.processes()) >= 2 + RANKS * (1 + PER_RANK), "ranks and their company")


def start_with_company(workspace, port, *options):
    running = workspace.start_fault(RANKS, "fault=hang", "rank=1", "phase=collective", *(COMPANY + options),
                                flags=["--master-port", str(port), "--shutdown-timeout", "60"])
    workspace.fault()
    wait_for_company(workspace)
    workspace.wait_for_registered_ranks(RANKS)
    supervisor = [pid for pid in children_of(running.pid) if variables_of(pid).get("RANK") is None]
    check(len(supervisor) == 1, "the front is to have one child: %s" % supervisor)
    return running, supervisor[0]


def relaunch(workspace, port):
    """On the same port, which rank 0 really opens."""
    done = workspace.run("--nproc-per-node", 1, "--master-port", port, "--no-python", sys.executable, "-S", "-c",
                     "import os, socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
                     "s.bind(('', int(os.environ['MASTER_PORT']))); s.listen(5); print('open')", seconds=PATIENCE)
    check(done.code == 0 and "open" in done.out, "the same port is to be free again\n%r" % done)


def launcher_is_killed(workspace, victim, while_stopping=False):
    """`victim`: front or supervisor. With `while_stopping`, in the middle of the grace period."""
    port = free_port()
    running, supervisor = start_with_company(workspace, port, "term=ignore")
    if while_stopping:
        running.signal(signal.SIGTERM)
        running.wait_for("SIGTERM received", PATIENCE)
    killed = time.monotonic()
    os.kill(running.pid if victim == "front" else supervisor, signal.SIGKILL)
    wait_until(lambda: not workspace.processes(), "0 survivors: " + "; ".join(workspace.leftovers()), PATIENCE)
    gone = time.monotonic()
    done = running.wait(PATIENCE)
    if victim == "supervisor":
        check(done.code == 137 and "supervisor (pid %d) was killed by SIGKILL" % supervisor in done.err, repr(done))
    workspace.assert_nothing_left(PATIENCE)
    relaunch(workspace, port)
    workspace.assert_nothing_left()
    return {"R7 SIGKILL of the %s%s → 0 survivors" % (victim, " while stopping" if while_stopping else ""): gone - killed}


def both_are_killed(workspace):
    """Then only a cgroup still identifies the ranks' processes, and `fulldeck stop` ends it."""
    running, supervisor = start_with_company(workspace, free_port())
    run = os.path.basename(workspace.run_folder())
    if not any(run in folder for folder in launching.cgroup_folders()):
        running.signal(signal.SIGKILL)
        running.wait(PATIENCE)
        raise NotHere("no cgroup can be made here")
    os.kill(running.pid, signal.SIGSTOP)
    killed = time.monotonic()
    os.kill(supervisor, signal.SIGKILL)
    os.kill(running.pid, signal.SIGKILL)
    wait_until(lambda: not workspace.ranks(), "the ranks to die with their parent", PATIENCE)
    gone = time.monotonic()
    stopped = workspace.fulldeck("stop", run, seconds=PATIENCE)
    check(stopped.code == 0, repr(stopped))
    running.wait(PATIENCE)
    workspace.assert_nothing_left(PATIENCE)
    return {"R7 SIGKILL of both → 0 ranks": gone - killed}


# ---- R8: out of memory

@contextlib.contextmanager
def cgroup_v1(controller, name):
    root = "/sys/fs/cgroup/" + controller
    if not os.path.exists(os.path.join(root, "cgroup.procs")) or not os.path.exists(os.path.join(root, "tasks")):
        raise NotHere("no cgroup v1 of %s at %s" % (controller, root))
    folder = os.path.join(root, name)
    try:
        os.mkdir(folder)
    except (OSError, IOError) as error:
        raise NotHere("no cgroup can be made at %s: %s" % (root, error))
    try:
        yield folder
    finally:
        # Remaining processes move back to the root, because the folder can only be removed when it is empty.
        deadline = time.monotonic() + PATIENCE
        while os.path.exists(folder) and time.monotonic() < deadline:
            for pid in read(folder + "/cgroup.procs").split():
                with contextlib.suppress(OSError, IOError):
                    put(root + "/cgroup.procs", pid)
            with contextlib.suppress(OSError, IOError):
                os.rmdir(folder)
            time.sleep(0.01)


def put(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def out_of_memory(workspace, limit=64):
    with cgroup_v1("memory", "fault-grid-" + workspace.marker[:8]) as folder:
        put(folder + "/memory.limit_in_bytes", limit << 20)
        with contextlib.suppress(OSError, IOError):
            put(folder + "/memory.memsw.limit_in_bytes", limit << 20)
        command = [launching.FULLDECK, "run", "--devices", "cpu", "--nproc-per-node", "2", FAULT_RANK, "notes=" + workspace.notes,
                   "fault=memory:%d" % (limit * 4), "rank=1", "phase=collective"]
        enter = "echo $$ > %s/cgroup.procs && exec \"$@\"" % folder
        done = workspace.start_program(["/bin/sh", "-c", enter, "sh"] + command).wait(PATIENCE)
        check(done.code == 137, repr(done))
        named(done, 1, "out of memory")
        check(re.search(r"limit of 64(\.0)? MiB", done.root_cause), "the limit is to be reported: " + done.root_cause)
        check(re.search(r"peak 6[34](\.\d+)? MiB", done.root_cause), "the peak is to be reported: " + done.root_cause)
        workspace.assert_nothing_left()
    return {}


def killed_but_not_for_memory(workspace):
    running = workspace.start_fault(2, "fault=kill", "rank=0")
    done = running.wait(PATIENCE)
    named(done, 0, "killed by SIGKILL")
    check("out of memory" not in done.root_cause, done.root_cause)
    workspace.assert_nothing_left()
    return {}


# ---- R9: ports

def port_is_held(workspace):
    with contextlib.closing(socket.socket()) as holder:
        holder.bind(("0.0.0.0", 0))
        holder.listen(1)
        port = holder.getsockname()[1]
        done = workspace.run("--nproc-per-node", 2, "--master-port", port, "--no-python", "/bin/true", seconds=PATIENCE)
    check(done.code == 84, repr(done))
    check("pid %d " % os.getpid() in done.err and str(port) in done.err, "the owner is to be named\n%r" % done)
    check(not os.path.exists(workspace.runs), "no run is to begin")
    workspace.assert_nothing_left()
    return {}


def port_cannot_be_stolen(workspace):
    """Between the choice of the port and the moment at which rank 0 opens it."""
    running = workspace.start_fault(2, "fault=hang", "rank=1")
    workspace.fault()
    port = int(variables_of(workspace.ranks()[0])["MASTER_PORT"])
    for address, family in (("0.0.0.0", socket.AF_INET), ("127.0.0.1", socket.AF_INET), ("::", socket.AF_INET6)):
        try:
            with contextlib.closing(socket.socket(family)) as thief:
                thief.bind((address, port))
        except (OSError, IOError):
            continue
        raise AssertionError("port %d could be taken on %s" % (port, address))
    running.signal(signal.SIGTERM)
    running.wait(PATIENCE)
    workspace.assert_nothing_left()
    return {}


MEET = """
import os, socket, time
port = int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", port))
    server.listen(5)
    server.settimeout(60)
    server.accept()[0].sendall(os.environ["TORCHELASTIC_RUN_ID"].encode())
else:
    deadline = time.monotonic() + 60
    while True:
        try:
            client = socket.create_connection((os.environ["MASTER_ADDR"], port), 60)
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert client.recv(100).decode() == os.environ["TORCHELASTIC_RUN_ID"]
"""


def many_at_once(workspace, count=100):
    """Rank 0 of each opens its port, and rank 1 connects to exactly that rank 0."""
    script = workspace.write("meet.py", MEET)
    runs = [workspace.start("--nproc-per-node", 2, "--no-python", sys.executable, "-S", script) for _ in range(count)]
    bad = [done for done in (run.wait(180) for run in runs) if done.code != 0]
    check(not bad, "%d of %d failed, the first one: %r" % (len(bad), count, bad[:1]))
    workspace.assert_nothing_left()
    return {}


# ---- R11: an unkillable rank

def is_removed(cgroup):
    """A process that has just died stays in its cgroup for a moment."""
    try:
        os.rmdir(cgroup)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def rank_cannot_be_killed(workspace, by_user):
    """The kernel holds rank 5 in state D, as a dead network disk does. `by_user`: SIGTERM ends the run, otherwise a
    failing rank."""
    reason = kernel_hold.why_not()
    if reason:
        raise NotHere(reason)
    disk = os.path.join(workspace.folder, "disk")
    os.mkdir(disk)
    with kernel_hold.held_file(disk) as (path, holding):
        running = workspace.start_fault(RANKS, "fault=stop", "rank=2", "stat=5:" + path, flags=["--shutdown-timeout", "1"])
        running.wait_for("was stopped by SIGSTOP", PATIENCE)
        check(holding.wait(PATIENCE * launching.PATIENCE), "rank 5 is to ask for the held file")
        ranks = workspace.ranks()
        held = ranks[5]
        began = time.monotonic()
        if by_user:
            running.signal(signal.SIGTERM)
        else:
            os.kill(ranks[2], signal.SIGKILL)
        done = running.wait(PATIENCE)
        took = running.ended - began
        wait_until(lambda: state_of(held) == "D", "the kernel to hold the rank: state '%s'" % state_of(held), PATIENCE)
    check(done.code == 89, repr(done))
    check(re.search(r"pid %d \(.*cannot be killed" % held, done.err), "pid %d is to be named\n%r" % (held, done))
    if not by_user:
        named(done, 2, "killed by SIGKILL")
    wait_until(lambda: not workspace.processes(), "the rank to die once the disk is gone", PATIENCE)
    # The kernel held the rank in the run's cgroup when the launcher had to exit.
    for cgroup in launching.cgroup_folders():
        if os.path.basename(workspace.run_folder()) in cgroup:
            wait_until(lambda folder=cgroup: is_removed(folder), "the end of the run's cgroup", PATIENCE)
    workspace.assert_nothing_left()
    return {"R11 fault → launcher gone, grace 1 s": took}


# ---- Q4: crash loop

def crash_loop(workspace):
    running = workspace.start_fault(RANKS, "fault=exit:7", "rank=4", "phase=init", flags=["--max-restarts", "10"])
    done = running.wait(60)
    check(done.code == 82, repr(done))
    check(done.ours.count("root cause: rank 4 (") == 3, "three attempts are to be reported\n%r" % done)
    check("crash loop" in done.ours, repr(done))
    check(sorted(name for name in os.listdir(workspace.run_folder()) if name.startswith("attempt_")) ==
          ["attempt_0", "attempt_1", "attempt_2"], os.listdir(workspace.run_folder()))
    workspace.assert_nothing_left()
    return {}


# ---- the grid

def all_cells(repeats, only):
    """(name, function of a workspace) for each cell."""
    cells = []

    def add(name, function, *arguments, times=1):
        if only in name:
            cells.extend([(name, lambda workspace: function(workspace, *arguments))] * times)

    for fault in FAULTS:
        for rank in (0, 1, 4, 7):
            for phase in PHASES:
                add("R1 %s rank %d %s" % (fault, rank, phase), rank_dies, fault, rank, phase, times=repeats)
    for fault in FAULTS:
        add("R1 %s with company" % fault, rank_dies_with_company, fault, 4, "collective", times=max(1, repeats // 3))
        add("R1 %s while others ignore SIGTERM" % fault, rank_dies_and_others_ignore_it, fault, 1, "collective")
        add("R1 %s while others fork" % fault, rank_dies_and_others_fork, fault, 7, "collective", times=max(1, repeats // 3))
    for rank in (0, 1, 4, 7):
        for phase in PHASES:
            add("R2 stop rank %d %s" % (rank, phase), rank_stops, rank, phase, times=repeats)
    add("R2 stopped rank when the run is stopped", stopped_rank_is_stopped_with_the_run, times=repeats)
    for victim in ("front", "supervisor"):
        for while_stopping in (False, True):
            add("R7 %s killed%s" % (victim, " while stopping" if while_stopping else ""), launcher_is_killed, victim,
                while_stopping, times=repeats)
    add("R7 both killed", both_are_killed, times=repeats)
    add("R8 out of memory", out_of_memory, times=repeats)
    add("R8 killed, but not for memory", killed_but_not_for_memory, times=repeats)
    add("R9 port held", port_is_held, times=repeats)
    add("R9 port cannot be stolen", port_cannot_be_stolen, times=repeats)
    add("R9 100 launches at once", many_at_once, times=max(1, repeats // 3))
    add("R11 a rank fails, another is held by the kernel", rank_cannot_be_killed, False, times=max(1, repeats // 3))
    add("R11 stopped by the user, a rank is held by the kernel", rank_cannot_be_killed, True, times=max(1, repeats // 3))
    add("Q4 crash loop", crash_loop)
    return cells


def quantile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, max(0, math.ceil(share * len(sorted_values)) - 1))]


def print_table(figures):
    width = max([len(name) for name in figures] + [6])
    print("\n%-*s %6s %9s %9s %9s   (milliseconds)" % (width, "series", "n", "p50", "p99", "max"))
    for name in sorted(figures):
        values = sorted(1000 * value for value in figures[name])
        print("%-*s %6d %9.1f %9.1f %9.1f" % (width, name, len(values), quantile(values, 0.5), quantile(values, 0.99),
                                            values[-1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10, help="times that each cell is run; the slow ones less often")
    parser.add_argument("--only", default="", help="only cells whose name holds this text")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which cells are run")
    arguments = parser.parse_args()
    cells = all_cells(arguments.repeats, arguments.only)
    random.Random(arguments.seed).shuffle(cells)
    figures = collections.defaultdict(list)
    failed, skipped, passed = [], {}, 0
    for number, (name, cell) in enumerate(cells, 1):
        with launching.fresh_workspace("fault-grid-") as workspace:
            try:
                for series, seconds in cell(workspace).items():
                    figures[series].append(seconds)
                passed += 1
            except NotHere as reason:
                skipped[name] = str(reason)
            except Exception:  # whatever it was, the grid continues and counts it
                failed.append(name)
                print("FAILED: %s\n%s" % (name, traceback.format_exc()), file=sys.stderr)
        if sys.stderr.isatty():
            print("\r%d of %d cells, %d failed " % (number, len(cells), len(failed)), end="", file=sys.stderr)
    print_table(figures)
    for name in sorted(skipped):
        print("SKIPPED: %s: %s" % (name, skipped[name]))
    for name in sorted(set(failed)):
        print("FAILED: %s, %d of %d times" % (name, failed.count(name), sum(each == name for each, _ in cells)))
    print("%d cells passed, %d failed, %d kinds skipped" % (passed, len(failed), len(skipped)))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
