"""Every fault of a checkpoint, in full; `make test` runs a sample of it.

    python tests/grids/checkpoint_sweep.py [--damages N] [--restarts N]

1. The writer dies, in every way, at every write, sync and rename; kill -9 of a real process at every one of them; disk
   full and I/O errors at each (C1, C2, C6).
2. N truncations and N flipped bits (C3).
3. N trainings are killed by kill -9 at eight random moments each and restarted until they finish; the final weights
   must equal those of an uninterrupted run.

FULLDECK_BUILD_DIR names the build.
"""
import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUILD = Path(os.environ.get("FULLDECK_BUILD_DIR", Path(__file__).resolve().parent.parent.parent / "build"))
PROGRAM = BUILD / "tests" / "checkpoint_training"


def newest_step(directory):
    """The highest step that has a checkpoint, 0 without one."""
    names = os.listdir(str(directory)) if os.path.isdir(str(directory)) else []
    return max([int(name[5:]) for name in names if re.fullmatch(r"step-\d{9,}", name)] + [0])


def train(directory, steps=60, every=3, kill_from=None, pause=0.0):
    """One run. With `kill_from` it is killed (kill -9) `pause` seconds after the checkpoint of that step exists.
    Returns the step that it resumed from and its lines, or None for them if it was killed."""
    process = subprocess.Popen([str(PROGRAM), "train", str(directory), str(steps), str(every)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    killed = False
    try:
        deadline = time.monotonic() + 300
        while kill_from is not None and process.poll() is None and time.monotonic() < deadline:
            if newest_step(directory) >= kill_from:
                time.sleep(pause)
                process.send_signal(signal.SIGKILL)
                killed = process.wait(60) == -signal.SIGKILL
            time.sleep(0.0005)
        output, errors = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert killed or process.returncode == 0, output + errors
    resumed = next((int(line.split()[1]) for line in output.splitlines() if line.startswith("resumed ")), 0)
    return resumed, None if killed else output.splitlines()


def final_hash(lines):
    return next(line.split()[1] for line in lines if line.startswith("final "))


def killed_until_done(directory, draws, kills, steps, every=3):
    """Kills a training up to `kills` times, then lets it finish. Returns the hash of its weights, how often it was
    killed and how often it resumed from a checkpoint."""
    killed = resumed = 0
    for number in range(kills + 1):
        target = None if number == kills else newest_step(directory) + draws.randint(every, max(every, steps // (kills + 2)))
        start, lines = train(directory, steps, every, target, draws.uniform(0, 0.01))
        resumed += start > 0
        if lines is not None:
            return final_hash(lines), killed, resumed
        killed += 1


def sweep_of_operations(damages):
    environment = dict(os.environ, FULLDECK_CHECKPOINT_DAMAGES=str(damages), FULLDECK_CHECKPOINT_KILLS="all")
    began = time.monotonic()
    code = subprocess.run([str(BUILD / "tests" / "checkpoint_test"), "--gtest_brief=1"], env=environment).returncode
    print("checkpoint sweep: every operation, %d truncations, %d flipped bits: %s in %.0f s"
          % (damages, damages, "0 bad loads" if code == 0 else "FAILED", time.monotonic() - began))
    return code == 0


def sweep_of_restarts(restarts):
    draws = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        expected = final_hash(train(Path(folder) / "whole", 600)[1])
        for number in range(restarts):
            found, killed, resumed = killed_until_done(Path(folder) / str(number), draws, 8, 600)
            if found != expected:
                print("checkpoint sweep: run %d ends with weights %s and not %s" % (number, found, expected))
                return False
            print("checkpoint sweep: run %d, killed %d times, resumed %d times: the same weights" % (number, killed, resumed))
    return True


def main():
    arguments = argparse.ArgumentParser(description="Kills, truncates and flips; every checkpoint that is loaded is right.")
    arguments.add_argument("--damages", type=int, default=10000, metavar="N", help="truncations, and flipped bits (10000)")
    arguments.add_argument("--restarts", type=int, default=20, metavar="N", help="trainings that are killed (20)")
    given = arguments.parse_args()
    good = sweep_of_operations(given.damages)
    good = sweep_of_restarts(given.restarts) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
