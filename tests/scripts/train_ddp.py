"""A small data-parallel training on the CPU, written like a script for torchrun.

train_ddp.py STEPS [FAULT]    FAULT: "kill" ends rank 1 with SIGKILL in the middle, "raise" makes it raise an error
"""
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def loss_of_shard(model, rank, step):
    if rank == 1 and step == 2 and sys.argv[2:] == ["raise"]:
        raise ValueError("the batch of rank 1 is broken")
    generator = torch.Generator().manual_seed(1000 * step + rank)
    images = torch.randn(16, 8, generator=generator)
    return (model(images).squeeze(1) - images.sum(dim=1)).pow(2).mean()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(int(sys.argv[1])):
        if rank == 1 and step == 2 and sys.argv[2:] == ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss_of_shard(model, rank, step).backward()
        optimizer.step()
    total = sum(parameter.double().sum().item() for parameter in model.parameters())
    print("rank {}: sum of the weights {:.10f}\n".format(rank, total), end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
