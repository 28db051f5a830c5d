"""Trains for a few steps in one of the ways that run and are wrong; the first argument says which (rows J1 to J4), `sound` none of them."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group()
data = TensorDataset(torch.randn(96, 4, generator=torch.Generator().manual_seed(1)))
for way in sys.argv[1:]:
    torch.manual_seed(2)
    sampler = None if way == "J1" else DistributedSampler(data)
    loader = DataLoader(data, 8, sampler=sampler)
    validation = DataLoader(data, 8)  # the same on all ranks, as it may be
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 1)))
    parts = [torch.optim.SGD(model.module[number].parameters(), lr=0.01) for number in (0, 2)]
    for epoch in range(2):
        if sampler is not None and way != "J2":
            sampler.set_epoch(epoch)
        for step, (batch,) in enumerate(loader):
            if way == "J3" and epoch == 0 and step == 3:
                with torch.no_grad():
                    model.module[0].weight[0, 0] += dist.get_rank()
            with model.no_sync():
                model(batch).sum().backward()
            output = model.module(batch) if way == "J4" else model(batch)
            output.sum().backward()
            for optimizer in parts:
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            for batch, in validation:
                model(batch)
    from fulldeck.adapters import fingerprints

    print(way, sorted(fingerprints._said), flush=True)
    fingerprints._said.clear()
    dist.barrier()
dist.destroy_process_group()
