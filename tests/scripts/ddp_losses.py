"""A small vision transformer trained with DistributedDataParallel on the CPU, written like a script for torchrun.
Prints the losses of each rank bit by bit, so that two runs can be compared.

ddp_losses.py [--backend B] [--steps N] [--bucket-mb M] [--unused]
"""
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class SmallViT(torch.nn.Module):
    def __init__(self, unused):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 32, kernel_size=4, stride=4)
        self.position = torch.nn.Parameter(torch.randn(1, 16, 32) * 0.02)
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, 10)
        self.other_head = torch.nn.Linear(32, 10) if unused else None
        self.register_buffer("seen", torch.zeros(1, dtype=torch.int64))

    def forward(self, images, other=False):
        self.seen += images.shape[0]
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.position
        features = self.encoder(tokens).mean(dim=1)
        return (self.other_head if other else self.head)(features)


def batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    images = torch.randn(4, 3, 16, 16, generator=generator)
    return images, images.mean(dim=(1, 2, 3)).mul(40).long().remainder(10)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--unused", action="store_true", help="a head that only some steps and ranks use")
    options = parser.parse_args()

    dist.init_process_group(options.backend)
    rank = dist.get_rank()
    # Every rank starts with different weights; DDP makes them equal.
    torch.manual_seed(rank)
    model = DistributedDataParallel(SmallViT(options.unused), bucket_cap_mb=options.bucket_mb,
                                    find_unused_parameters=options.unused)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(options.steps):
        images, labels = batch(rank, step)
        optimizer.zero_grad()
        logits = model(images, other=options.unused and (step + rank) % 3 == 0)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = sum(parameter.double().sum().item() for parameter in model.parameters())
    print("rank {} losses {}\n".format(rank, " ".join(value.hex() for value in losses)), end="", flush=True)
    print("rank {} weights {}\n".format(rank, weights.hex()), end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
