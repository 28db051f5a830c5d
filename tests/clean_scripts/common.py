"""Shared by the correct scripts: data, a group, a sampler. Does not use fulldeck."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

rank = int(os.environ.get("RANK", 0))


def start():
    dist.init_process_group()
    torch.manual_seed(7)


def data(samples=512, width=8, classes=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(samples, width, generator=generator), torch.randint(classes, (samples,), generator=generator))


def batches(dataset, epochs=2, size=8):
    """Batches of this rank, reshuffled in each epoch."""
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, size, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        yield from loader


def net(width=8, classes=3):
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, classes))


def end():
    dist.barrier()
    dist.destroy_process_group()
    print("trained", flush=True)


__all__ = ["DataLoader", "DistributedDataParallel", "DistributedSampler", "TensorDataset", "batches", "data", "dist", "end", "net", "nn", "rank",
           "start", "torch"]
