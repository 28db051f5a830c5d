"""Two ranks on the CPU of a machine whose torch has a (simulated) card, as on one with CUDA: barriers with device_ids,
torch's SyncBatchNorm, DistributedDataParallel with device_ids; and processes that ranks start themselves. Prints a line
for each successful check."""
import os
import sys


def in_a_spawned_child():
    import torch

    from fulldeck import adapters

    assert adapters.is_child()
    try:
        torch.ones(1).cuda()
    except RuntimeError as error:
        sys.exit(7 if "fulldeck: the program asks for a CUDA device, and this rank runs on the processors" in str(error) else 8)
    sys.exit(9)


def nothing(number):
    pass


def main():
    from fulldeck import adapters

    def with_cuda(torch):
        from fulldeck.adapters import card

        card.has_cuda = lambda: True

    adapters.on_import("torch", with_cuda)  # before the adapters' own callback
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    assert torch.accelerator.current_accelerator().type == "gcu"
    dist.barrier(device_ids=[rank])
    dist.barrier(group=dist.new_group([0, 1]), device_ids=[rank], async_op=False)
    print("barriers")

    torch.manual_seed(3)
    plain = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)).double()
    layer = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(*[module for module in plain]))
    layer.load_state_dict(plain.state_dict())
    layer = DistributedDataParallel(layer, device_ids=[rank])
    rows = torch.randn(7, 5, dtype=torch.float64)
    mine = rows[:3] if rank == 0 else rows[3:]
    # The mean over all rows: DistributedDataParallel divides by the number of ranks.
    (layer(mine).square().sum() * 2 / 7).backward()
    plain.zero_grad()
    plain(rows).square().mean().backward()
    for one, other in zip(layer.module.parameters(), plain.parameters()):
        assert torch.allclose(one.grad, other.grad), (one.grad, other.grad)
    print("SyncBatchNorm")

    try:
        torch.multiprocessing.spawn(nothing, nprocs=4)
    except RuntimeError as error:
        print(error)
    if rank == 0:
        child = torch.multiprocessing.get_context("spawn").Process(target=in_a_spawned_child)
        child.start()
        child.join()
        assert child.exitcode == 7, child.exitcode
        print("a spawned child")


if __name__ == "__main__":
    main()
