"""Accelerate's own test scripts as PyPI has them, and an FSDP2 script written for CUDA, in three ways: torchrun with
Gloo on the CPU, `fulldeck run` on the CPU, and on simulated cards. Prints a table. Exits with 0 if both ways of
fulldeck pass at least what torchrun passes, and FSDP2 has the same losses everywhere. `make framework-suite`;
tests/python/test_frameworks.py runs the smallest cell.

framework_suite.py [--only WORD]"""
import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from launching import FOREIGN, FULLDECK, HERE

SECONDS = 900
FSDP = os.path.join(HERE, "scripts", "fsdp_losses.py")
WAYS = ("torchrun, Gloo", "fulldeck, processors", "fulldeck, simulated cards")


def accelerates(name):
    spec = importlib.util.find_spec("accelerate")
    return os.path.join(os.path.dirname(spec.origin), "test_utils", "scripts", name) if spec is not None else None


# Script, ranks. test_script fails with 3 or more ranks in Accelerate itself.
CELLS = [(FSDP, 2), (FSDP, 8), ("test_script.py", 2), ("test_ops.py", 2), ("test_ops.py", 4), ("test_sync.py", 2), ("test_sync.py", 4)]


def command(script, ranks, way):
    of_fsdp = {0: ["--backend", "gloo"], 1: ["--backend", "nccl"], 2: ["--backend", "nccl", "--device", "cuda"]}
    arguments = of_fsdp[way] if script == FSDP else []
    if way == 0:
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), script] + arguments
    devices = ["--devices", "cpu"] if way == 1 else ["--idle-card", "off"]
    return [FULLDECK, "run", "--nproc-per-node", str(ranks)] + devices + [script] + arguments


def environment(folder, ranks, way):
    variables = {name: value for name, value in os.environ.items() if not FOREIGN.match(name) and "VISIBLE_DEVICES" not in name}
    variables.update(OMP_NUM_THREADS="1", HF_HOME=os.path.join(folder, "huggingface"), HF_HUB_OFFLINE="1", PYTHON_EXEC=sys.executable,
                     FULLDECK_RUNTIME_DIR=folder, FULLDECK_LEASE_DIR=folder, FULLDECK_SIMULATE_DIR=folder)
    if way == 0:
        variables["ACCELERATE_USE_CPU"] = "true"  # without it every rank trains separately
    if way == 2:
        variables["FULLDECK_SIMULATE"] = "gcu:{}".format(ranks)
    return variables


class Result:
    def __init__(self, code, output, seconds):
        self.code, self.output, self.seconds = code, output, seconds

    @property
    def passed(self):
        return self.code == 0

    def losses(self):
        """Losses of each rank of the FSDP2 script."""
        return {int(rank): [float.fromhex(value) for value in values.split()]
                for rank, values in re.findall(r"rank (\d+) losses (.*)", self.output)}

    def cards(self):
        return sorted(re.findall(r"rank \d+ on (gcu:\d+)", self.output))

    def words(self):
        if self.passed:
            return "passes ({:.0f} s)".format(self.seconds)
        errors = re.findall(r"^(?:\[\S+\]:? ?)?(\w*(?:Error|Exception)\b.*)$", self.output, re.MULTILINE)
        return "fails: {}".format(errors[0][:80] if errors else "exit code {}".format(self.code))


def run(script, ranks, way, seconds=SECONDS):
    """One cell. With Gloo, Python sometimes aborts at exit, so torchrun has three tries."""
    for _ in range(3 if way == 0 else 1):
        folder = tempfile.mkdtemp(prefix="fulldeck-suite-")
        begun = time.monotonic()
        try:
            done = subprocess.run(command(script, ranks, way), env=environment(folder, ranks, way), cwd=folder, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, errors="replace", timeout=seconds)
            result = Result(done.returncode, done.stdout, time.monotonic() - begun)
        except subprocess.TimeoutExpired as error:
            output = error.stdout or ""
            result = Result(124, output if isinstance(output, str) else output.decode(errors="replace"), seconds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if result.passed:
            break
    return result


def differences(results):
    """Describes what is wrong with the three FSDP2 runs apart from their exit codes."""
    losses_by_run = [result.losses() for result in results]
    ranks = len(losses_by_run[0])
    if not all(len(each) == ranks and ranks for each in losses_by_run):
        return "not every rank reported its losses"
    worst = max(abs(a - b) for each in losses_by_run[1:] for rank in each for a, b in zip(each[rank], losses_by_run[0][rank]))
    if worst > 2e-5:
        return "the losses differ by {:.2g}".format(worst)
    if results[2].cards() != sorted("gcu:{}".format(rank) for rank in range(ranks)):
        return "the ranks trained on {}".format(results[2].cards())
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cells whose script has this in its name")
    given = parser.parse_args()
    wrong = []
    print("| script | ranks | {} |".format(" | ".join(WAYS)))
    print("|---|---|---|---|---|", flush=True)
    for name, ranks in CELLS:
        script = name if os.path.isabs(name) else accelerates(name)
        if given.only not in os.path.basename(name) or script is None:
            continue
        results = [run(script, ranks, way) for way in range(len(WAYS))]
        called = "FSDP2 (fully_shard)" if script == FSDP else "Accelerate " + name
        print("| {} | {} | {} |".format(called, ranks, " | ".join(result.words() for result in results)), flush=True)
        for way, result in enumerate(results):
            if not result.passed and (way == 0 and script == FSDP or way > 0 and results[0].passed):
                wrong.append("{} at {} ranks, {}:\n{}".format(called, ranks, WAYS[way], result.output[-4000:]))
        if script == FSDP and all(result.passed for result in results) and differences(results):
            wrong.append("{} at {} ranks: {}".format(called, ranks, differences(results)))
    for each in wrong:
        print("\n" + each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
