"""A training script like PyTorch's DDP tutorials, written only for CUDA and NCCL, without any reference to fulldeck or
to other cards. Prints the loss of each step, and whether the loaded checkpoint equals the saved state."""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--on-cpu", action="store_true")  # the reference: the same training without a card
parser.add_argument("--checkpoint", default="checkpoint.pt")
options = parser.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
if options.on_cpu:
    dist.init_process_group("gloo")
    device = torch.device("cpu")
else:
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl", init_method="env://")
    device = torch.device("cuda", local_rank)
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.backends.cudnn.benchmark = True

torch.manual_seed(7)
features = torch.randn(64, 3, 6, 6)
labels = (features.mean((1, 2, 3)) > 0).long()
dataset = TensorDataset(features, labels)
sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True, seed=3)
loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=0, pin_memory=not options.on_cpu)

torch.manual_seed(11)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
if options.on_cpu:
    model = DDP(model)
else:
    model.cuda()
    model = DDP(model, device_ids=[local_rank], output_device=local_rank)
criterion = nn.CrossEntropyLoss().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
scaler = torch.amp.GradScaler("cuda", enabled=not options.on_cpu)
assert scaler.is_enabled() or options.on_cpu

for epoch in range(2):
    sampler.set_epoch(epoch)
    for images, target in loader:
        if not options.on_cpu:
            # As DDP with device_ids allows, the images stay on the CPU: the wrapper moves them.
            target = target.cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu" if options.on_cpu else "cuda", dtype=torch.bfloat16, enabled=False):
            loss = criterion(model(images), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print("loss {:.6f}".format(total.item() / world_size), flush=True)

if rank == 0:
    torch.save(model.state_dict(), options.checkpoint)
dist.barrier() if options.on_cpu else dist.barrier(device_ids=[local_rank])
where = "cpu" if options.on_cpu else {"cuda:%d" % 0: "cuda:%d" % rank}
state = torch.load(options.checkpoint, map_location=where)
assert all(value.device == next(model.parameters()).device for value in state.values()), {k: v.device for k, v in state.items()}
model.load_state_dict(state)
if not options.on_cpu:
    torch.cuda.synchronize()
    print("rank {} trained on {} with {} bytes at most".format(rank, next(model.parameters()).device,
                                                                torch.cuda.max_memory_allocated()), flush=True)
dist.destroy_process_group()
