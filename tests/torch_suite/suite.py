"""Runs torch's tests on a RankSet and saves the results as JSON, with what was run, when, and on which machine."""
import datetime
import fnmatch
import json
import os
import platform
import re
import subprocess
import sys

from . import ranks

# No test needs more than 8 ranks; some require exactly that many.
SIZES = (2, 4, 8)
# A test that takes longer counts as failed. The longest takes about 15 s with Gloo on 8 ranks and 2 idle cores.
TEST_SECONDS = 180
# Output of failed ranks that is kept, in characters per test.
ERROR_CHARACTERS = 20000


def torch_version():
    return subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], check=True, stdout=subprocess.PIPE,
                          env=ranks.environment(), universal_newlines=True).stdout.strip()


def without_folders(text):
    """A traceback with paths reduced to the part that is the same on every machine."""
    return re.sub(r'File "[^"\n]*?/((?:torch|tests)/[^"\n]*)"', r'File "\1"', text)


def names_of_tests(rank_set):
    """All tests: {name: whether torch reserves it for MPI}."""
    outcome = rank_set.run({"do": "torch tests"}, ranks.START_SECONDS)
    if outcome.kind != "passed":
        raise RuntimeError("torch's test module cannot be imported:\n" + repr(outcome))
    return dict(outcome.values[0])


def run_test(rank_set, name):
    return rank_set.run({"do": "torch test", "name": name}, TEST_SECONDS)


class Record:
    """The results of one backend, in its own file with one line per test. results[size][test] = {result:
    passed|skipped|failed, reason, seconds, [mpi], [error]}; about[size]: the environment. `with_errors`: keep the
    output of failed ranks."""

    def __init__(self, backend, path, with_errors=True):
        self.backend, self.path = backend, path
        self._with_errors = with_errors
        self.about = {}
        self.results = {}
        if os.path.exists(path):
            with open(path) as file:
                kept = json.load(file)
            self.about = {int(size): about for size, about in kept["about"].items()}
            self.results = {size: {name: test[str(size)] for name, test in kept["tests"].items() if str(size) in test}
                            for size in self.about}

    def holds(self, size, torch):
        return self.about.get(size, {}).get("torch") == torch

    def save(self):
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        tests = {}
        for size, results in self.results.items():
            for name, test in results.items():
                tests.setdefault(name, {})[str(size)] = test
        lines = ["  {}: {}".format(json.dumps(name), json.dumps(tests[name], sort_keys=True)) for name in sorted(tests)]
        with open(self.path, "w") as file:
            file.write('{{"backend": {},\n "about": {},\n "tests": {{\n{}\n}}}}\n'.format(
                json.dumps(self.backend), json.dumps(self.about, sort_keys=True), ",\n".join(lines)))

    def run(self, size, patterns, say):
        """Runs every test whose name matches a pattern at this size, and saves. An incomplete run leaves the file
        unchanged."""
        began = datetime.datetime.now(datetime.timezone.utc)
        found = {}
        with ranks.RankSet(size, self.backend) as rank_set:
            tests = names_of_tests(rank_set)
            chosen = [name for name in sorted(tests) if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
            for name in chosen:
                outcome = run_test(rank_set, name)
                found[name] = {"result": outcome.kind, "reason": outcome.reason, "seconds": round(outcome.seconds, 2)}
                if tests[name]:
                    found[name]["mpi"] = True
                if outcome.kind == "failed" and self._with_errors:
                    found[name]["error"] = without_folders(repr(outcome))[:ERROR_CHARACTERS]
                if outcome.kind != "skipped":
                    say("{} ranks, {}: {} {} ({:.1f} s){}".format(size, self.backend, name, outcome.kind, outcome.seconds,
                                                                 ": " + outcome.reason if outcome.reason else ""))
        self.results[size] = found
        self.about[size] = {"torch": torch_version(), "python": platform.python_version(), "cores": os.cpu_count(),
                                 "machine": platform.machine(), "date": began.strftime("%Y-%m-%d"), "tests": len(found)}
        self.save()


def worse_than(gloo, ours):
    """[(size, test)] that pass with Gloo and not with fulldeck."""
    return [(size, name) for size in sorted(ours.results) for name, result in sorted(ours.results[size].items())
            if gloo.results.get(size, {}).get(name, {}).get("result") == "passed" and result["result"] != "passed"]
