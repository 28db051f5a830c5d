"""Everything that can befall a checkpoint, in full; `make test` runs a sample of it.

    python tests/checkpoint_sweep.py [--damages N] [--restarts N]

1. The writer dies, in every way, at every write, sync and rename; kill -9 of a real process at every one of them; disk
   full and I/O errors at each (C1, C2, C6).
2. N truncations and N flipped bits (C3).
3. A training program is killed -9 at N random moments of each run and restarted until it is through; the final weights
   must be those of a run that nobody killed.

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

BUILD = Path(os.environ.get("FULLDECK_BUILD_DIR", Path(__file__).resolve().parent.parent / "build"))
PROGRAM = BUILD / "tests" / "checkpoint_training"


def train(directory, steps=60, every=3, kill_after=None):
    """One run; killed after so many seconds if it still goes then. Returns its lines, or None when it was killed."""
    process = subprocess.Popen([str(PROGRAM), "train", str(directory), str(steps), str(every)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    try:
        if kill_after is not None:
            # The clock starts when it trains, not while torch is loaded.
            first = process.stdout.readline()
            try:
                process.wait(kill_after)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate(timeout=60)
                return None
            output, errors = process.communicate(timeout=300)
            output = first + output
        else:
            output, errors = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 0, output + errors
    return output.splitlines()


def final_hash(lines):
    return next(line.split()[1] for line in lines if line.startswith("final "))


def killed_until_done(directory, draws, kills, steps=60, every=3):
    """Kills a training `kills` times at random moments, then lets it finish; returns the hash and how often it resumed
    from a checkpoint instead of from the start."""
    resumed = 0
    for _ in range(kills):
        lines = train(directory, steps, every, kill_after=draws.uniform(0, 0.5))
        if lines is not None:
            return final_hash(lines), resumed
        resumed += any(re.fullmatch(r"step-\d{9}", name.name) for name in Path(directory).iterdir())
    return final_hash(train(directory, steps, every)), resumed


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
        expected = final_hash(train(Path(folder) / "whole", 400, 3))
        for number in range(restarts):
            found, resumed = killed_until_done(Path(folder) / str(number), draws, 4, 400, 3)
            if found != expected:
                print("checkpoint sweep: run %d ends with weights %s and not %s" % (number, found, expected))
                return False
            print("checkpoint sweep: run %d, killed 4 times, %d times resumed: the same weights" % (number, resumed))
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
