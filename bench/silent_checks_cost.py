"""Measures what the checks for silent errors (python/fulldeck/adapters/silent.py) add to a training step on the CPU: the same loop
with and without them, interleaved in pairs, in a rank of `fulldeck run`. Prints the median of the pairs' differences with its 95 %
interval. The exit code is 1 if the median is above the limit.

silent_checks_cost.py [--pairs 100] [--steps 50] [--limit 0.5]"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FULLDECK = os.path.join(os.environ.get("FULLDECK_BUILD_DIR", os.path.join(TOP, "build")), "bin", "fulldeck")

# Both halves of a pair run in one process, in alternating blocks, so that changes of the machine affect both equally.
LOOP = """
import json, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset
from fulldeck.adapters import batches as watched, losses, silent

torch.set_num_threads(1)
pairs, steps = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(320, 320), torch.nn.ReLU())], torch.nn.Linear(320, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
data = TensorDataset(torch.randn(4096, 320), torch.randint(10, (4096,)))
batches = list(DataLoader(data, 256, shuffle=True))
loader = iter(())

class One(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 30
    def __getitem__(self, number):
        return batches[number % len(batches)]

loader = iter(DataLoader(One(), batch_size=None))
checks = [(silent, "after_step"), (watched, "a_batch"), (watched, "labels"), (losses, "look_at"), (losses, "computed")]
wrapped = [getattr(module, name) for module, name in checks]
off = lambda *unused: None

def block(on):
    for (module, name), check in zip(checks, wrapped):
        setattr(module, name, check if on else off)
    begun = time.perf_counter()
    for _ in range(steps):
        inputs, labels = next(loader)
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.perf_counter() - begun) / steps

block(True)  # the first steps, which are looked at more closely
times = []
for number in range(pairs):
    order = (True, False) if number % 2 else (False, True)
    one = {on: block(on) for on in order}
    times.append((one[True], one[False]))
print("TIMES " + json.dumps(times), flush=True)
"""


def interval(values, rounds=10000):
    """Bootstrap confidence interval of the median."""
    generator = random.Random(1)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(0.025 * rounds)], medians[int(0.975 * rounds)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--limit", type=float, default=0.5, help="percent of a step")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "loop.py")
        with open(script, "w") as file:
            file.write(LOOP)
        variables = dict(os.environ, FULLDECK_RUNTIME_DIR=folder, FULLDECK_LEASE_DIR=folder, FULLDECK_SIMULATE_DIR=folder, OMP_NUM_THREADS="1",
                         PYTHON_EXEC=sys.executable)
        done = subprocess.run([FULLDECK, "run", "--devices", "cpu", "--nproc-per-node", "1", script, str(options.pairs), str(options.steps)],
                              cwd=folder, env=variables, stdout=subprocess.PIPE, check=True)
    times = json.loads(next(line for line in done.stdout.decode().splitlines() if "TIMES " in line).partition("TIMES ")[2])
    costs = [100 * (on - off) / off for on, off in times]
    low, high = interval(costs)
    print("{} pairs of {} steps of {:.2f} ms: the checks cost {:+.2f} % of a step (95 % interval {:+.2f} to {:+.2f})".format(
        len(times), options.steps, 1000 * statistics.median(off for _, off in times), statistics.median(costs), low, high))
    return 1 if statistics.median(costs) > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
