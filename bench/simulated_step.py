"""How much slower a training step is on a simulated card than on the CPU: the same small transformer with one thread, with steps of
the two alternating so that both see the same machine. Prints the medians and their ratio.

    FULLDECK_SIMULATE=gcu:1 PYTHONPATH=build/lib/python python bench/simulated_step.py
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Step:
    def __init__(self, device, given):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Embedding(1000, given.width), *[Block(given.width, 6) for _ in range(given.blocks)],
                                   nn.Linear(given.width, 1000)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        numbers = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(0, 1000, (given.batch, given.length), generator=numbers).to(device)
        self.losses = []

    def __call__(self):
        begun = time.perf_counter()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.tokens).flatten(0, 1), self.tokens.roll(-1, 1).flatten())
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        return time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("blocks", 4), ("width", 192), ("batch", 8), ("length", 64), ("steps", 30)):
        parser.add_argument("--" + name, type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(1)
    kind = torch._C._get_privateuse1_backend_name()
    host, card = Step("cpu", given), Step(kind + ":0", given)
    for step in (host, card) * 3:
        step()
    times = [(host(), card()) for _ in range(given.steps)]
    difference = max(abs(a - b) / abs(a) for a, b in zip(host.losses, card.losses))
    medians = [statistics.median(column) * 1000 for column in zip(*times)]
    print("host {:.2f} ms, {} {:.2f} ms, ratio {:.3f} (median of the ratios {:.3f}); losses differ by {:.1e} at most".format(
        medians[0], kind, medians[1], medians[1] / medians[0], statistics.median(b / a for a, b in times), difference))


if __name__ == "__main__":
    main()
