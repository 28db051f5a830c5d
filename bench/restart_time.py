#!/usr/bin/env python3
"""How long a job takes from a fault to its first new step, compared with a clean start: `bench/restart_time.py [--ranks 8] [--runs 3]`.

Trains a small job on simulated cards. A clean start is timed from the command to the end of step 1. Then, once there is a
checkpoint, a rank is killed (SIGKILL), and the time runs from there to the end of the first step after the resume. It includes
the launcher's wait before a restart (1 s). Prints both and their ratio, for each run and as medians."""
import argparse
import glob
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

RECIPE = """
name = "job"
steps = 100000
[data]
kind = "synthetic"
size = 64
scale = [1.0, 1.0]
workers = 1
[model]
backbone = "dinov3-tiny"
[train]
global_batch = 32
batch = 8
backbone_lr = 1.0
warmup = 20
[validation]
every = 0
[checkpoint]
every = 10
[log]
every = 1
[environment]
threads = 1
"""


def ranks_of(recipe):
    found = {}
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                variables = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
            with open(path.replace("environ", "cmdline"), "rb") as file:
                command = file.read()
        except OSError:
            continue
        if recipe.encode() in command and b"RANK" in variables and b"fulldeck-train" in command.split(b"\0")[0]:
            found[int(variables[b"RANK"])] = int(path.split("/")[2])
    return found


def measure(build, ranks):
    folder = tempfile.mkdtemp(prefix="restart_time.")
    try:
        with open(os.path.join(folder, "job.toml"), "w") as file:
            file.write(RECIPE)
        # Its own simulated cards, independent of other programs on this machine.
        variables = dict(os.environ, FULLDECK_SIMULATE="gcu:%d" % ranks)
        for variable in ("FULLDECK_LEASE_DIR", "FULLDECK_SIMULATE_DIR"):
            variables[variable] = os.path.join(folder, variable)
            os.mkdir(variables[variable], 0o700)
        began = time.monotonic()
        job = subprocess.Popen([os.path.join(build, "bin", "fulldeck"), "train", "job.toml", "--max-restarts", "1", "--set",
                                "work_dirs=" + folder],
                               cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               universal_newlines=True)
        clean = killed = fault = None
        for line in job.stdout:
            now = time.monotonic()
            step = re.search(r"step (\d+)/", line)
            if step and clean is None:
                clean = now - began
            if step and killed is None and glob.glob(os.path.join(folder, "job", "checkpoints", "step-*", "manifest.json")):
                os.kill(ranks_of(folder)[ranks - 1], signal.SIGKILL)
                killed = time.monotonic()
                resumed = False
            elif killed is not None and "resumed at step" in line:
                resumed = True
            elif killed is not None and resumed and step:
                fault = now - killed
                break
        job.send_signal(signal.SIGTERM)
        job.stdout.close()
        job.wait(60)
        if clean is None or fault is None:
            sys.exit("the job ended before both times were taken; its log is gone with %s" % folder)
        return clean, fault
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--build", default=os.path.join(TOP, "build"))
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--runs", type=int, default=3)
    options = options.parse_args()
    clean, fault = [], []
    for _ in range(options.runs):
        each = measure(options.build, options.ranks)
        clean.append(each[0])
        fault.append(each[1])
        print("clean start to step 1: %.2f s   fault to first new step: %.2f s   ratio %.2f" % (each + (each[1] / each[0],)))
    print("median of %d: clean start %.2f s, after a fault %.2f s, ratio %.2f" %
          (options.runs, statistics.median(clean), statistics.median(fault),
           statistics.median(fault) / statistics.median(clean)))


if __name__ == "__main__":
    main()
