"""Trains for two epochs with the errors that the arguments name (J1 to J5, G5); without arguments it is correct. Does
not use fulldeck.

J1  no sampler                      J2  no set_epoch
J3  one rank changes its weights    J4  forward around the wrapper, in the second epoch
J5  only rank 0 trains              G5  every rank saves to the same file
"""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

faults = set(sys.argv[1:])
dist.init_process_group()
data = TensorDataset(torch.randn(192, 4, generator=torch.Generator().manual_seed(1)))
torch.manual_seed(2)
sampler = DistributedSampler(data)
shared_out = DataLoader(data, 8, sampler=sampler)
the_same = DataLoader(data, 8)  # on all ranks
# The same on all ranks, which is allowed.
held_out = DataLoader(TensorDataset(torch.randn(64, 4, generator=torch.Generator().manual_seed(3))), 8)
parts = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 1))
model = parts if "J5" in faults else DistributedDataParallel(parts)
inner = parts
# A model with two optimizers, which step in turns.
optimizers = [torch.optim.SGD(inner[number].parameters(), lr=0.01) for number in (0, 2)]


def step(output):
    output.sum().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


for epoch in range(0 if "J5" in faults and dist.get_rank() > 0 else 2):
    if "J2" not in faults:
        sampler.set_epoch(epoch)
    if "J1" in faults and epoch == 0:
        for number, (batch,) in enumerate(the_same):
            if number < 4:
                step(model(batch))
    for number, (batch,) in enumerate(shared_out):
        if "J3" in faults and epoch == 0 and number == 3:
            with torch.no_grad():
                inner[0].weight[0, 0] += dist.get_rank()
        if "J5" not in faults:
            with model.no_sync():  # accumulation
                model(batch).sum().backward()
        step(inner(batch) if "J4" in faults and epoch == 1 else model(batch))
    with torch.no_grad():
        for batch, in held_out:
            model(batch)
if "G5" in faults or dist.get_rank() == 0:
    torch.save(inner.state_dict(), "model.pt")
torch.save(inner.state_dict(), "model-of-rank-{}.pt".format(dist.get_rank()) if "G5" not in faults else "/dev/null")
dist.barrier()
dist.destroy_process_group()
print("trained")
