"""Two ranks, each on its own simulated card, with the backend fulldeck: SyncBatchNorm, DDP and FSDP2, each compared
with one process on the CPU with the whole batch. Uses nothing of fulldeck but the backend's name."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["RANK"])
card = torch.device("gcu", rank)


def close(one, other, tolerance=1e-5):
    torch.testing.assert_close(one.detach().cpu(), other.detach(), rtol=tolerance, atol=tolerance)


def sync_batch_norm():
    """The ranks have two and three samples."""
    numbers = torch.Generator().manual_seed(1)
    images, weights = torch.randn(5, 3, 8, 8, generator=numbers), torch.randn(5, 2, 6, 6, generator=numbers)
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    mine = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)))
    mine.load_state_dict(whole.state_dict())
    mine.to(card)
    part = slice(0, 2) if rank == 0 else slice(2, 5)
    all_in, my_in = images.clone().requires_grad_(), images[part].to(card).requires_grad_()
    expected, got = whole(all_in), mine(my_in)
    close(got, expected[part])
    (expected * weights).sum().backward()
    (got * weights[part].to(card)).sum().backward()
    close(my_in.grad, all_in.grad[part])
    for one, other in zip(mine.parameters(), whole.parameters()):
        dist.all_reduce(one.grad)
        close(one.grad, other.grad, 1e-4)
    close(mine[1].running_mean, whole[1].running_mean)
    close(mine[1].running_var, whole[1].running_var)
    mine.eval(), whole.eval()
    close(mine(my_in), whole(all_in)[part])


def blocks():
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)) for _ in range(3)])


def train(whole, mine, of_mine):
    numbers = torch.Generator().manual_seed(2)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (whole, mine)]
    for _ in range(3):
        samples = torch.randn(4, 8, generator=numbers)
        for model, optimizer, data in zip((whole, mine), optimizers, (samples, samples[rank * 2:rank * 2 + 2].to(card))):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
    for one, other in zip(mine.parameters(), whole.parameters()):
        close(of_mine(one), other)


def main():
    torch.set_num_threads(1)
    torch.gcu.set_device(card)
    dist.init_process_group("fulldeck")
    sync_batch_norm()
    print("SyncBatchNorm is right", flush=True)
    train(blocks(), nn.parallel.DistributedDataParallel(blocks().to(card), device_ids=[rank]), lambda value: value)
    print("DDP is right", flush=True)
    mesh = init_device_mesh("gcu", (2,))
    sharded = blocks().to(card)
    for block in sharded:
        fully_shard(block, mesh=mesh)
    train(blocks(), fully_shard(sharded, mesh=mesh), lambda value: value.full_tensor())
    print("FSDP2 is right", flush=True)
    dist.destroy_process_group()


main()
