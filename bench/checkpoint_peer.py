"""The counterpart of checkpoint_bench: the same state with torch.save and torch.load.

    python bench/checkpoint_peer.py DIRECTORY [LAYERS]

Prints one "name value unit" per line. torch.save blocks training until it returns. It neither syncs nor verifies, so the time
with fsync is printed too. torch.load verifies nothing.
"""
import os
import statistics
import sys
import time

import torch


class Model(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        for layer in range(layers):
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                self.add("%d_%s" % (layer, name), 1024, 1024)
            self.add("%d_up" % layer, 4096, 1024)
            self.add("%d_up_bias" % layer, 4096)
            self.add("%d_down" % layer, 1024, 4096)
            for name in ("norm1_w", "norm1_b", "norm2_w", "norm2_b"):
                self.add("%d_%s" % (layer, name), 1024)

    def add(self, name, *sizes):
        self.register_parameter("layer_" + name, torch.nn.Parameter(torch.empty(*sizes).uniform_(-1, 1)))


def report(name, value, unit):
    print("%-44s %10.3f %s" % (name, value, unit), flush=True)


def timed(body):
    began = time.monotonic()
    body()
    return time.monotonic() - began


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    path = os.path.join(sys.argv[1], "torch.pt")
    model = Model(int(sys.argv[2]) if len(sys.argv) > 2 else 24)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for parameter in model.parameters():
        optimizer.state[parameter] = {"step": torch.tensor(1000.0), "exp_avg": parameter.detach() * 0.5,
                                      "exp_avg_sq": parameter.detach() * 0.25}

    def save():
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

    def save_and_sync():
        save()
        with open(path, "rb") as file:
            os.fsync(file.fileno())

    def load():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    report("torch.save (training stands still)", statistics.median(timed(save) for _ in range(3)), "s")
    report("torch.save and fsync", timed(save_and_sync), "s")
    report("torch.load, page cache warm, median", statistics.median(timed(lambda: torch.load(path, weights_only=True)) for _ in range(3)), "s")
    report("torch.load and load_state_dict, median", statistics.median(timed(load) for _ in range(3)), "s")
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    report("torch.load and load_state_dict, cache cold", timed(load), "s")
    os.unlink(path)


if __name__ == "__main__":
    main()
