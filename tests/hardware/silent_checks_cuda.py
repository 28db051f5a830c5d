"""The checks for silent errors on an NVIDIA card: none of them waits for the card
(torch.cuda.set_sync_debug_mode("error")), NaN and labels of one class are still detected, and the checks do not slow
the loop down. Without a launcher: a stub records what the checks would write to the rank board.

    PYTHONPATH=python python3 tests/hardware/silent_checks_cuda.py"""
import random
import statistics
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from fulldeck import board
from fulldeck.adapters import loop


class Kept:
    """Replaces the board."""
    is_open, steps_reported, figures = True, False, board.Figures()

    def __init__(self):
        self.written = {}

    def observe(self, check, *figures):
        self.written[check] = figures

    def phase(self, number):
        pass

    def tell(self):
        pass


kept = loop._ours = Kept()
from fulldeck.adapters import batches, observing, silent  # noqa: E402

silent.adapt(torch)
on = silent.after_step, batches.labels
PAIRS = 40


class Training:
    """Linear layers; `unused` never gets a gradient, and every label is 0."""

    def __init__(self, width, batch):
        torch.manual_seed(0)
        layers = [layer for _ in range(8) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        self.model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 10)).cuda()
        self.unused = torch.nn.Linear(width, width).cuda()
        self.optimizer = torch.optim.AdamW(list(self.model.parameters()) + list(self.unused.parameters()), lr=1e-4)
        data = TensorDataset(torch.randn(4096, width), torch.zeros(4096, dtype=torch.long))
        self.batches = [(inputs.cuda(), labels.cuda()) for inputs, labels in DataLoader(data, batch, shuffle=True)]

    def steps(self, count, nan_at=-1):
        for number in range(count):
            inputs, labels = self.batches[number % len(self.batches)]
            torch.nn.functional.cross_entropy(self.model(inputs), labels).backward()
            if number == nan_at:
                self.model[0].weight.grad.fill_(float("nan"))
            self.optimizer.step()
            self.optimizer.zero_grad()

    def timed(self, checks, count):
        silent.after_step, batches.labels = on if checks else (lambda *unused: None,) * 2
        torch.cuda.synchronize()
        begun = time.perf_counter()
        self.steps(count)
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / count


def interval(values, rounds=10000):
    """Confidence interval (95 %) of the median, by bootstrap."""
    generator = random.Random(1)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(0.025 * rounds)], medians[int(0.975 * rounds)]


def cost(name, training, count):
    """The same steps with and without the checks, in pairs, in either order equally often."""
    training.steps(60)
    times = []
    for number in range(PAIRS):
        order = (True, False) if number % 2 else (False, True)
        one = {checks: training.timed(checks, count) for checks in order}
        times.append((one[True], one[False]))
    differences = [1e6 * (checks - plain) for checks, plain in times]
    step = statistics.median(plain for _, plain in times)
    low, high = interval(differences)
    print("{}: {} pairs of {} steps of {:.3f} ms: the checks cost {:+.1f} us a step (95 % interval {:+.1f} to {:+.1f}), {:+.2f} % ({:+.2f} to {:+.2f})".format(
        name, PAIRS, count, 1e3 * step, statistics.median(differences), low, high,
        *(value / step / 1e4 for value in (statistics.median(differences), low, high))), flush=True)


training = Training(1024, 256)
training.steps(2)
torch.cuda.synchronize()
torch.cuda.set_sync_debug_mode("error")
training.steps(60, nan_at=47)
torch.cuda.set_sync_debug_mode("default")
torch.cuda.synchronize()
training.steps(60)
assert not observing._off, observing._off
assert board.CHECK_FINITE in kept.written, kept.written
assert kept.written[board.CHECK_DEVICE][0] == 2, kept.written
assert kept.written[board.CHECK_GRADIENTS][1] == 2, kept.written
print("no check waited for the card", flush=True)
cost("small layers, bound by the CPU that launches the kernels", training, 100)
cost("large layers, bound by the card", Training(4096, 512), 50)
