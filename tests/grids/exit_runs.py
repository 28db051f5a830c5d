"""Runs of two ranks that exit without destroy_process_group(), in every way of tests/scripts/leaves_without_goodbye.py
in turn. Every rank must exit with code 0 and print nothing on stderr. `make package-runs` makes 200 of them. Ranks
start as for a user, and not by fork, because the test covers the exit of Python and of the libraries in it."""
import argparse
import os
import sys
import tempfile
import time

from launching import HERE, remove
from python_ranks import run_ranks

SCRIPT = os.path.join(HERE, "scripts", "leaves_without_goodbye.py")
WAYS = ("plain", "exit", "async", "callback", "subgroup", "ddp", "thread", "insisting")


def run(way, folder, backend="fulldeck", **variables):
    """Describes what was wrong with one run; empty: nothing."""
    wrong = []
    for rank, ended in enumerate(run_ranks(2, [sys.executable, SCRIPT, backend, way], folder, **variables)):
        if ended.code != 0 or ended.err:
            wrong.append("rank {} ({}): {}".format(rank, way, ended))
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--backend", default="fulldeck", help="another one, to compare: gloo")
    parser.add_argument("--way", choices=WAYS, help="this way alone")
    given = parser.parse_args()
    failed = 0
    began = time.monotonic()
    for number in range(given.runs):
        folder = tempfile.mkdtemp(prefix="fulldeck-exit-")
        try:
            wrong = run(given.way or WAYS[number % len(WAYS)], folder, given.backend)
        finally:
            remove(folder)
        if wrong:
            failed += 1
            print("run {}: {}".format(number, "\n".join(wrong)), flush=True)
        if (number + 1) % 20 == 0:
            print("{} runs, {} failed, {:.0f} s".format(number + 1, failed, time.monotonic() - began), flush=True)
    print("{} of {} runs ended with code 0 on both ranks".format(given.runs - failed, given.runs))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
