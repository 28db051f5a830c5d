"""Two ranks on simulated cards in one run: how the adapters change torch.distributed, DistributedDataParallel and
meshes, and what they reject. Prints a line for each successful check."""
import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])
card = os.environ["FULLDECK_DEVICE"]


def refused(action, error):
    try:
        action()
    except error as message:
        return str(message)
    raise AssertionError("nothing was raised")


# No backend named, the device by CUDA's name, and a second call for the same group.
dist.init_process_group(device_id=torch.device("cuda", rank))
assert dist.get_backend() == "fulldeck"
dist.init_process_group("nccl")
assert "twice" in refused(lambda: dist.init_process_group("nccl", rank=0, world_size=7), ValueError)
print("one group")

dist.monitored_barrier()
dist.monitored_barrier(timeout=datetime.timedelta(seconds=60), wait_all_ranks=True)
dist.barrier(device_ids=[rank])
dist.barrier()
gathered = [None, None]
dist.all_gather_object(gathered, {"rank": rank})
assert gathered == [{"rank": 0}, {"rank": 1}]
for tensor in (torch.ones(2), torch.ones(2, device="cuda")):
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2, 2]
for backend, where in (("nccl", "cuda"), ("gloo", "cpu"), (None, "cuda")):
    tensor = torch.ones(2, device=where)
    dist.all_reduce(tensor, group=dist.new_group([0, 1], backend=backend))
    assert tensor.tolist() == [2, 2]
if rank == 0:
    message = refused(lambda: dist.monitored_barrier(timeout=datetime.timedelta(milliseconds=200)), RuntimeError)
    assert message == "fulldeck: rank 1 did not come to monitored_barrier within 0.2 s.", message
dist.barrier()
print("groups and barriers")

# The module is still on the CPU: a report, and a rejection; with --place it is moved.
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
message = refused(lambda: DistributedDataParallel(model, device_ids=[rank]), RuntimeError)
assert message.startswith("fulldeck: DistributedDataParallel is refused: 8 of 8 parameters are not on {}, the device of rank {}.\n".format(card, rank))
for line in ("placement of Sequential on rank {0} of 2 (local rank {0}):".format(rank), "  wanted            " + card, "  module            cpu",
             "  first parameter   cpu", "  current devices   " + card, "  parameters        8 (53 elements): 8 on cpu", "    0.weight  cpu  [4, 4]",
             "    … and 3 more", "  verdict           case B: the module is still on the CPU, and this rank trains on {}.".format(card)):
    assert line in message, (line, message)
assert "RANK={} LOCAL_RANK={} WORLD_SIZE=2".format(rank, rank) in message
os.environ["FULLDECK_PLACE"] = "1"
wrapped = DistributedDataParallel(model, device_ids=[0])  # hard-coded: replaced with the module's own
del os.environ["FULLDECK_PLACE"]
assert wrapped.device_ids == [rank]
before = model[0].weight.detach().clone()
wrapped(torch.ones(3, 4) + torch.randn(3, 4)).square().sum().backward()  # an input on the CPU, which the wrapper moves
optimizer.step()
assert model[0].weight.device == torch.device(card) and not torch.equal(before, model[0].weight)
everyone = [torch.empty_like(before), torch.empty_like(before)]
dist.all_gather(everyone, model[0].weight.detach())
assert torch.equal(*everyone)

# Half of the parameters elsewhere, buffers elsewhere, on a different card.
spread = nn.Sequential(nn.Linear(2, 2).cuda(), nn.Linear(2, 2))
assert "case B: the module is spread over 2 devices" in refused(lambda: DistributedDataParallel(spread), RuntimeError)
norm = nn.BatchNorm1d(2).cuda()
norm.running_mean = norm.running_mean.cpu()
assert "but 1 of 3 buffers are not. Cure" in refused(lambda: DistributedDataParallel(norm), RuntimeError)
other = nn.Linear(2, 2).to("cuda:{}".format(1 - rank))
assert "the module is on another card than this rank's " + card in refused(lambda: DistributedDataParallel(other), RuntimeError)
print("placement")

from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).to("cuda")
mesh = init_device_mesh("cuda", (2,))
fully_shard(model[0], mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
losses = []
for _ in range(3):
    loss = model(torch.ones(2, 4, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
assert losses[0] > losses[2] and model[0].weight.device == torch.device(card)
print("FSDP2")

# torch's own layer and the one made of ordinary operators, on the same card with the same numbers.
from fulldeck.adapters import sync_batch_norm  # noqa: E402

results = {}
for name, kernels in (("torch's", True), ("ours", False)):
    sync_batch_norm._has_kernels["gcu"] = kernels
    for dtype in (torch.float32, torch.float16):
        torch.manual_seed(5 + rank)
        layer = nn.SyncBatchNorm(3, momentum=None if dtype == torch.float16 else 0.3).cuda()
        x = (torch.randn(2 + 3 * rank, 3, 4) * 3 + 100).to(dtype).cuda().requires_grad_()
        y = layer(x)
        (y.float() * torch.linspace(0, 1, y.numel(), device="cuda").reshape(y.shape)).sum().backward()
        results[name, dtype] = [each.detach().float().cpu() for each in (y, x.grad, layer.weight.grad, layer.bias.grad, layer.running_mean,
                                                                         layer.running_var)]
for dtype, close in ((torch.float32, 1e-3), (torch.float16, 3e-2)):
    for ours, theirs in zip(results["ours", dtype], results["torch's", dtype]):
        assert torch.allclose(ours, theirs, rtol=close, atol=close), (dtype, ours, theirs)
everyone = [None, None]
dist.all_gather_object(everyone, (results["ours", torch.float32][4], x.detach().float().mean().item()))
assert torch.equal(everyone[0][0], everyone[1][0]) and everyone[0][1] != everyone[1][1], "the statistics are those of all ranks"
layer.eval()
assert layer(x).shape == x.shape
print("SyncBatchNorm")

import torch_gcu  # noqa: E402

assert torch_gcu.is_available() and torch_gcu.device_count() == 8 and torch_gcu.current_device() == rank
assert torch_gcu.__version__ == "0+simulated" and "Simulated by fulldeck" in torch_gcu.__doc__
torch_gcu.set_device(rank)
torch_gcu.synchronize()
torch_gcu.empty_cache()
print("torch_gcu")
dist.destroy_process_group()
