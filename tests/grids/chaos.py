"""Random faults, one after the other, and after each the same checks: was the right rank or node named, is nothing left
behind (process, cgroup, shared memory, registry entry, lease, temporary file), do the checkpoints load?

    chaos.py [--seconds 1800] [--seed N] [--only KIND,KIND]

Eight ranks of examples/train.cc train and save checkpoints while ranks and both processes of the launcher are killed
and stopped, disks fill up and the clock jumps. Interrupted trainings resume from their checkpoints and must end with
the bits of an undisturbed training. In between, two nodes (network namespaces, four ranks each) lose ranks, launchers
and their link. The first line has the seed; the same seed gives the same faults in the same order. Exit code 0: every
fault was handled as promised."""
import argparse
import contextlib
import ctypes
import glob
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback

from cluster import host_cells, hosts
import launching
from launching import children_of, state_of, variables_of, wait_until

RANKS = 8
PROGRAM = os.path.join(launching.BUILD, "bin", "example-train")
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
SAVE_EVERY = 10
# Seconds on an idle machine (times launching.PATIENCE on a busy one) after which something counts as a hang.
PATIENCE = 60
FAULTS_PER_TRAINING = 5
PORT = 29513


class Skipped(Exception):
    """This machine lacks what the fault needs; the text names it."""


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def steps_in(folder):
    """The steps that have a complete checkpoint."""
    found = glob.glob(os.path.join(folder, "step-*", "manifest.json"))
    return sorted(int(os.path.basename(os.path.dirname(path))[len("step-"):]) for path in found)


def newest_step(folder):
    return max(steps_in(folder) + [0])


def weights_at(folder, step):
    with open(os.path.join(folder, "step-%09d" % step, "model.safetensors"), "rb") as file:
        return file.read()


@contextlib.contextmanager
def small_disk(folder, mebibytes):
    """A tmpfs mounted at `folder`."""
    os.makedirs(folder)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"chaos", os.fsencode(folder), b"tmpfs", 0, b"size=%dm,mode=0755" % mebibytes) != 0:
        raise Skipped("no tmpfs can be mounted here: %s" % os.strerror(ctypes.get_errno()))
    try:
        yield folder
    finally:
        libc.umount2(os.fsencode(folder), 2)  # MNT_DETACH
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def fill(folder):
    """Fills the disk. Returns the file that uses the space; another call adds newly freed space to that file."""
    path = os.path.join(folder, "filler")
    with open(path, "ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return path


class Training:
    """One training with several faults. Every launch resumes from its checkpoints."""

    def __init__(self, folder):
        self.folder = folder
        self.checkpoints = os.path.join(folder, "checkpoints")
        self.faults = 0

    def launch(self, workspace, steps=100000000, checkpoints=None, flags=(), **options):
        return workspace.start("--nproc-per-node", RANKS, *(list(flags) + [
            "--no-python", PROGRAM, "--checkpoints", checkpoints or self.checkpoints, "--save-every", SAVE_EVERY, "--steps", steps]),
            **options)

    def finish(self):
        """Lets it finish undisturbed, and compares its weights with those of an undisturbed training."""
        last = (newest_step(self.checkpoints) // SAVE_EVERY + 2) * SAVE_EVERY
        straight = os.path.join(self.folder, "straight")
        for number, folder in enumerate((self.checkpoints, straight)):
            with launching.fresh_workspace("chaos-") as workspace:
                done = self.launch(workspace, steps=last, checkpoints=folder).wait(PATIENCE * 5)
                check(done.code == 0 and "final loss" in done.out, "run %d to step %d is to end well\n%r" % (number, last, done))
                workspace.assert_nothing_left()
        check(weights_at(self.checkpoints, last) == weights_at(straight, last),
              "after %d faults the weights of step %d are not those of an undisturbed training" % (self.faults, last))
        return last


def wait_for_new_checkpoint(running, folder, since, what):
    wait_until(lambda: newest_step(folder) > since or not running.alive, "%s\n%s" % (what, running.err[-3000:]), PATIENCE)
    check(running.alive, "%s, and the run ended\n%s" % (what, running.err[-3000:]))


def ranks_of(workspace, running):
    return wait_until(lambda: not running.alive or len(workspace.ranks()) == RANKS and workspace.ranks(), "%d ranks" % RANKS, PATIENCE)


def supervisor_of(running):
    found = [pid for pid in children_of(running.pid) if variables_of(pid).get("RANK") is None]
    check(len(found) == 1, "the front is to have one child: %s" % found)
    return found[0]


def culprit(done):
    """The rank that the report names as the root cause; None unless there is exactly one."""
    found = re.findall(r"^fulldeck: (?:\S+: )?root cause: rank (\d+)\b", done.err, re.MULTILINE)
    return int(found[0]) if len(found) == 1 else None


def at_a_random_moment(training, workspace, running, draws, checkpoints=None):
    """While the ranks start, or in the middle of steps and saves."""
    early, pause = draws.random() < 0.3, draws.uniform(0, 0.5)
    since = newest_step(checkpoints or training.checkpoints)
    ranks = ranks_of(workspace, running)
    if not early:
        wait_for_new_checkpoint(running, checkpoints or training.checkpoints, since, "a checkpoint")
    time.sleep(pause)
    return ranks


def end_by_user(workspace, running):
    running.signal(signal.SIGTERM)
    done = running.wait(PATIENCE)
    check(done.code == 143, "SIGTERM is to end the run with 143\n%r" % done)
    check(culprit(done) is None, "nobody failed\n%r" % done)
    workspace.assert_nothing_left()


# ---- one node

def rank_is_killed(training, workspace, draws):
    number, victim = draws.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS]), draws.randrange(RANKS)
    running = training.launch(workspace)
    os.kill(at_a_random_moment(training, workspace, running, draws)[victim], number)
    done = running.wait(PATIENCE)
    check(done.code == 128 + number, "the exit code is to be %d\n%r" % (128 + number, done))
    check(culprit(done) == victim, "rank %d is to be named, not %s\n%r" % (victim, culprit(done), done))
    workspace.assert_nothing_left()
    return "rank %d, %s" % (victim, signal.Signals(number).name)


def rank_is_killed_and_the_run_restarts(training, workspace, draws):
    victim = draws.randrange(RANKS)
    running = training.launch(workspace, flags=["--max-restarts", "1"])
    first = at_a_random_moment(training, workspace, running, draws)
    os.kill(first[victim], signal.SIGKILL)
    wait_until(lambda: len(workspace.events("restart")) == 1 or not running.alive, "the restart\n" + running.err[-3000:], PATIENCE)
    wait_until(lambda: len(workspace.ranks()) == RANKS and workspace.ranks()[victim] != first[victim] or not running.alive,
               "new ranks\n" + running.err[-3000:], PATIENCE)
    since = newest_step(training.checkpoints)
    wait_for_new_checkpoint(running, training.checkpoints, since, "a checkpoint of the second attempt")
    named = re.findall(r"root cause: rank (\d+)\b", running.err)
    check(named == [str(victim)], "rank %d is to be named: %s\n%s" % (victim, named, running.err[-3000:]))
    running.signal(signal.SIGTERM)
    check(running.wait(PATIENCE).code == 143, running.err[-3000:])
    workspace.assert_nothing_left()
    return "rank %d" % victim


def rank_is_stopped_and_continued(training, workspace, draws):
    victim, seconds = draws.randrange(RANKS), draws.uniform(0, 1)
    running = training.launch(workspace)
    pid = at_a_random_moment(training, workspace, running, draws)[victim]
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: workspace.events("rank-stopped") or not running.alive, "the stop\n" + running.err[-3000:], PATIENCE)
    stops = workspace.events("rank-stopped")
    check([event["rank"] for event in stops] == [victim], "rank %d is to be named alone: %s" % (victim, stops))
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: workspace.events("rank-continued") or not running.alive, "the end of the stop\n" + running.err[-3000:], PATIENCE)
    wait_for_new_checkpoint(running, training.checkpoints, newest_step(training.checkpoints), "a checkpoint after SIGCONT")
    end_by_user(workspace, running)
    return "rank %d for %.1f s" % (victim, seconds)


def launcher_is_killed(training, workspace, draws):
    victim = draws.choice(["front", "supervisor"])
    running = training.launch(workspace)
    at_a_random_moment(training, workspace, running, draws)
    os.kill(running.pid if victim == "front" else supervisor_of(running), signal.SIGKILL)
    wait_until(lambda: not workspace.processes(), "0 survivors: " + "; ".join(workspace.leftovers()), PATIENCE)
    check(running.wait(PATIENCE).code == (-signal.SIGKILL if victim == "front" else 128 + signal.SIGKILL), running.err[-3000:])
    workspace.assert_nothing_left(PATIENCE)
    return victim


def launcher_is_stopped_and_continued(training, workspace, draws):
    """The ranks do not need it to continue."""
    victim = draws.choice(["front", "supervisor"])
    running = training.launch(workspace)
    at_a_random_moment(training, workspace, running, draws)
    wait_for_new_checkpoint(running, training.checkpoints, newest_step(training.checkpoints), "a checkpoint")
    pid = running.pid if victim == "front" else supervisor_of(running)
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: state_of(pid) == "T", "the launcher to stop", PATIENCE)
        wait_for_new_checkpoint(running, training.checkpoints, newest_step(training.checkpoints), "a checkpoint while the launcher is stopped")
    finally:
        os.kill(pid, signal.SIGCONT)
    end_by_user(workspace, running)
    return victim


def log_disk_fills_up(training, workspace, draws):
    with small_disk(os.path.join(workspace.folder, "logs"), 8) as disk:
        running = training.launch(workspace, flags=["--log-dir", disk])
        at_a_random_moment(training, workspace, running, draws)
        fill(disk)
        wait_for_new_checkpoint(running, training.checkpoints, newest_step(training.checkpoints), "a checkpoint after the disk of the logs is full")
        end_by_user(workspace, running)
    return ""


def checkpoint_disk_fills_up(training, workspace, draws):
    """A separate training: saved checkpoints stay loadable, and when there is space again, training resumes from
    them."""
    with small_disk(os.path.join(workspace.folder, "disk"), 16) as disk:
        folder = os.path.join(disk, "checkpoints")
        running = training.launch(workspace, checkpoints=folder)
        wait_for_new_checkpoint(running, folder, 0, "a checkpoint")
        time.sleep(draws.uniform(0, 0.5))
        filler = fill(disk)

        def failed():
            # Deleting a checkpoint frees space for the next one, which is deleted in turn.
            fill(disk)
            return not running.alive or "No space left" in running.err
        # If a save fails, either the program exits, or it continues until the user ends it.
        wait_until(failed, "a save that fails", PATIENCE)
        if running.alive:
            running.signal(signal.SIGTERM)
        check(running.wait(PATIENCE).code != 0, running.err[-3000:])
        workspace.assert_nothing_left()
        saved = newest_step(folder)
        check(saved > 0, "the last good checkpoint is to stay")
        os.unlink(filler)
        done = training.launch(workspace, steps=saved + SAVE_EVERY, checkpoints=folder).wait(PATIENCE)
        check(done.code == 0, "it is to go on from step %d\n%r" % (saved, done))
        workspace.assert_nothing_left()
        return "at step %d" % saved


def clock_jumps(training, workspace, draws):
    """For launcher and ranks, by libfaketime; then a rank is killed. The monotonic clock does not jump, as on a real
    machine."""
    if not os.path.exists(FAKETIME):
        raise Skipped("libfaketime is not installed (scripts/setup does)")
    victim, seconds = draws.randrange(RANKS), draws.choice([-86400, -3600, -7, 7, 3600, 86400])
    clock = workspace.write("clock", "+0s\n")
    running = training.launch(workspace, extra={"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": clock, "FAKETIME_NO_CACHE": "1",
                                            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1"})
    ranks = at_a_random_moment(training, workspace, running, draws)
    with open(clock + ".new", "w") as file:
        file.write("%+ds\n" % seconds)
    os.rename(clock + ".new", clock)
    wait_for_new_checkpoint(running, training.checkpoints, newest_step(training.checkpoints), "a checkpoint after the jump of the clock")
    os.kill(ranks[victim], signal.SIGKILL)
    done = running.wait(PATIENCE)
    check(done.code == 137 and culprit(done) == victim, "rank %d is to be named, not %s\n%r" % (victim, culprit(done), done))
    events = workspace.events("run-started", "run-finished")
    lasted = events[-1]["time"] - events[0]["time"]
    check(abs(lasted - seconds - done.seconds) < 5 + done.seconds, "the launcher's clock was to jump by %d s: %s" % (seconds, events))
    workspace.assert_nothing_left()
    return "%+d s, then rank %d" % (seconds, victim)


# ---- two nodes

def nodes_fail(training, workspace, draws):
    del training
    reason = hosts.why_not()
    if reason:
        raise Skipped(reason)
    cell = draws.choice(host_cells.cells() + [None])
    two = hosts.TwoHosts()
    try:
        folder = os.path.join(workspace.folder, "nodes")
        os.makedirs(folder)
        if cell is None:
            outcome = host_cells.try_losses(two, folder, PORT, seconds=draws.uniform(3, 8))
        else:
            outcome = host_cells.try_cell(cell, two, folder, PORT, slack=PATIENCE, by_node_rank=draws.random() < 0.5)
    finally:
        two.remove()
    check(not outcome.troubles, "\n".join(outcome.troubles))
    return cell.name if cell else "5 % of the packets lost"


# Weighted by frequency.
KINDS = {
    "rank-killed": (rank_is_killed, 3),
    "restart": (rank_is_killed_and_the_run_restarts, 1),
    "rank-stopped": (rank_is_stopped_and_continued, 2),
    "launcher-killed": (launcher_is_killed, 2),
    "launcher-stopped": (launcher_is_stopped_and_continued, 1),
    "log-disk-full": (log_disk_fills_up, 1),
    "checkpoint-disk-full": (checkpoint_disk_fills_up, 1),
    "clock-jump": (clock_jumps, 1),
    "nodes": (nodes_fail, 3),
}


class Chaos:
    """A series of faults. Each one has its own seed and can be repeated by itself: --seed SEED --start NUMBER. With
    `once` every kind comes once before any comes a second time, whatever its weight."""

    def __init__(self, seed, kinds, once=False):
        self.seed = seed
        self.kinds = [kind for kind in kinds for _ in range(1 if once else KINDS[kind][1])]
        self.handled, self.failed, self.skipped = {}, [], {}
        self.folder = self.training = None
        self.trainings = 0

    def new_training(self, number):
        folder = os.path.join(self.folder, str(number))
        os.makedirs(folder)
        return Training(folder)

    def kind_of(self, number):
        """Empties one bag after the other, in an order that the seed determines."""
        bag = list(self.kinds)
        random.Random("%d bag %d" % (self.seed, number // len(bag))).shuffle(bag)
        return bag[number % len(bag)]

    def one(self, number):
        kind = self.kind_of(number)
        draws = random.Random("%d fault %d" % (self.seed, number))
        began = time.monotonic()
        with launching.fresh_workspace("chaos-") as workspace:
            try:
                what = KINDS[kind][0](self.training, workspace, draws)
                self.handled[kind] = self.handled.get(kind, 0) + 1
                self.training.faults += 1
                verdict = "ok"
            except Skipped as reason:
                self.skipped[kind] = what = str(reason)
                verdict = "skipped"
            except Exception:  # whatever it was, the series continues and counts it
                what = traceback.format_exc()
                verdict = "FAILED"
                self.failed.append("fault %d, %s" % (number, kind))
        print("%4d  %-20s %-7s %5.1f s  %s" % (number, kind, verdict, time.monotonic() - began, what), flush=True)

    def end_training(self):
        if self.training.faults:
            try:
                last = self.training.finish()
                self.trainings += 1
                print("      after %d faults, step %d: the bits of an undisturbed training" % (self.training.faults, last), flush=True)
            except Exception:
                self.failed.append("end of a training")
                print("      FAILED %s" % traceback.format_exc(), flush=True)
        shutil.rmtree(self.training.folder, ignore_errors=True)

    def run(self, seconds, start=0, most=None):
        """Until the time is up or `most` faults were injected."""
        self.folder = tempfile.mkdtemp(prefix="chaos-training-")
        self.training = self.new_training(start)
        end = time.monotonic() + seconds
        number = start
        while time.monotonic() < end and (most is None or number < start + most):
            self.one(number)
            number += 1
            if self.training.faults >= FAULTS_PER_TRAINING:
                self.end_training()
                self.training = self.new_training(number)
        self.end_training()
        shutil.rmtree(self.folder, ignore_errors=True)
        return not self.failed and sum(self.handled.values()) > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800, help="no further fault after so long (1800)")
    parser.add_argument("--seed", type=int, help="of everything that is drawn (default: another one each time)")
    parser.add_argument("--start", type=int, default=0, metavar="NUMBER", help="begin with this fault of the series")
    parser.add_argument("--count", type=int, metavar="N", help="at most so many faults")
    parser.add_argument("--only", default="", metavar="KINDS", help="of " + ", ".join(sorted(KINDS)))
    arguments = parser.parse_args()
    kinds = arguments.only.split(",") if arguments.only else list(KINDS)
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        parser.error("unknown: %s; known: %s" % (", ".join(unknown), ", ".join(sorted(KINDS))))
    if not os.path.exists(PROGRAM):
        print("fulldeck chaos: error: %s is not there: this build has no torch" % os.path.basename(PROGRAM), file=sys.stderr)
        return 2
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 31)
    print("seed %d; again: tests/grids/chaos.py --seed %d%s" % (seed, seed, " --only " + arguments.only if arguments.only else ""), flush=True)
    chaos = Chaos(seed, kinds)
    good = chaos.run(arguments.seconds, arguments.start, arguments.count)
    for kind, reason in sorted(chaos.skipped.items()):
        print("skipped: %s: %s" % (kind, reason))
    for what in chaos.failed:
        print("failed: %s" % what)
    print("%d faults handled, %d failed, %d trainings with the bits of an undisturbed one" % (
        sum(chaos.handled.values()), len(chaos.failed), chaos.trainings))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
