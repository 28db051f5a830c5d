"""Training scripts as T20 servers have them, on the stand-in of torch_gcu next to this file. Losses and parameters must
equal those of one process with the whole batch.

  train.py vendor     torch_gcu.distributed and torch_gcu.nn.parallel.DistributedDataParallel, as the vendor's own examples
  train.py torch      torch.distributed and torch's DistributedDataParallel with devices xla:N, as scripts that were
                      ported by hand; then which collectives a run uses
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fulldeck import adapters  # noqa: E402

adapters.OLDEST["torch"] = (99, 0)  # a current torch, not adapted, stands in for the 1.10 of these servers

import torch  # noqa: E402

STEPS, ROWS, WORLD = 5, 32, int(os.environ["WORLD_SIZE"])


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(6, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3)
        self.unused = torch.nn.Linear(2, 2)
        self.scale = torch.nn.Parameter(torch.ones(16, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))) * self.scale.to(x.dtype))


def data(step, rank, size):
    """The batch of a step is the same whatever the number of ranks."""
    torch.manual_seed(100 + step)
    x, y = torch.randn(ROWS, 6), torch.randint(0, 3, (ROWS,))
    return x[rank::size], y[rank::size]


def train(model, device, rank, size, step_optimizer, mean):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for step in range(STEPS):
        x, y = (each.to(device) for each in data(step, rank, size))
        optimizer.zero_grad()
        # Two backwards per step, the first without a reduction.
        halves = [slice(None, None, 2), slice(1, None, 2)]
        with getattr(model, "no_sync", lambda: open(os.devnull))():
            (torch.nn.functional.cross_entropy(model(x[halves[0]]), y[halves[0]]) / 2).backward()
        loss = torch.nn.functional.cross_entropy(model(x[halves[1]]), y[halves[1]]) / 2
        loss.backward()
        step_optimizer(optimizer, loss, model)
        losses.append(mean(loss.detach()).item())
    unused = getattr(model, "module", model).unused
    assert all(parameter.grad is None for parameter in unused.parameters())
    right_losses, right = alone()
    for parameter, wanted in zip(model.parameters(), right.parameters()):
        assert torch.allclose(parameter.cpu(), wanted, atol=2e-6), (parameter, wanted)
    assert max(abs(one - other) for one, other in zip(losses, right_losses)) < 2e-6, (losses, right_losses)
    print("rank {} on {}: as one process, losses {:.4f} to {:.4f}".format(rank, next(model.parameters()).device, losses[0], losses[-1]))


def alone():
    """Losses and model of one process on the CPU."""
    torch.manual_seed(7)
    model, losses = Net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        # In each half, a rank takes every other one of its rows.
        x, y = data(step, 0, 1)
        second = torch.arange(len(x)) // WORLD % 2 == 1
        (torch.nn.functional.cross_entropy(model(x[~second]), y[~second]) / 2).backward()
        loss = torch.nn.functional.cross_entropy(model(x[second]), y[second]) / 2
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def with_vendor():
    import torch_gcu
    import torch_gcu.distributed as dist
    from torch_gcu.nn.parallel import DistributedDataParallel as DDP

    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch_gcu.set_device(local)
    device = torch_gcu.gcu_device(local)
    dist.init_process_group(backend="eccl")
    assert (dist.get_rank(), dist.get_world_size(), dist.is_initialized(), dist.get_backend()) == (rank, WORLD, True, "fulldeck")
    sampler = torch_gcu.utils.data.distributed.DistributedSampler(range(64), shuffle=False)
    assert list(sampler)[:2] == [rank, rank + WORLD]

    ones = torch.full((3,), rank + 1.0, device=device)
    assert dist.all_reduce(ones, op=dist.ReduceOp.SUM, async_op=True).wait() and ones.tolist() == [36.0] * 3
    largest = torch.tensor([rank, -rank], device=device).t()
    dist.all_reduce(largest, dist.ReduceOp.MAX, None)
    assert largest.tolist() == [7, 0]
    every = [torch.zeros(2, 2, device=device) for _ in range(WORLD)]
    dist.all_gather(every, torch.full((2, 2), float(rank), device=device).t())
    assert [each[1, 1].item() for each in every] == list(range(WORLD))
    word = [None if rank != 5 else {"from": 5}]
    dist.broadcast_object_list(word, src=5)
    assert word == [{"from": 5}]
    pair = dist.new_group([2, 3])
    mine = torch.tensor([float(rank)], device=device)
    dist.all_reduce(mine, group=pair)
    assert mine.item() == (5.0 if rank in (2, 3) else rank) and dist.get_rank(pair) == {2: 0, 3: 1}.get(rank, -1)
    dist.barrier()
    if rank in (0, 7):
        note = torch.arange(4, device=device) * (1 if rank == 0 else 0)
        dist.send(note, 7) if rank == 0 else dist.recv(note, 0)
        assert note.tolist() == [0, 1, 2, 3]
    try:
        dist.batch_isend_irecv([])
    except RuntimeError as error:
        if rank == 0:
            print(error)

    try:
        DDP(Net(), device_ids=[local])
    except RuntimeError as error:
        if rank == 0:
            print(str(error).split("\n")[0])
    in_a_group(DDP, dist, pair, device, rank)
    torch.manual_seed(7 if rank == 0 else 1000 + rank)  # the wrap makes them equal
    model = DDP(Net().to(device), device_ids=[local], find_unused_parameters=True, bucket_cap_mb=1, gradient_as_bucket_view=True)
    model.module.seen += rank

    def mean(loss):
        dist.all_reduce(loss, op=dist.ReduceOp.SUM)
        return loss / WORLD

    train(model, device, rank, WORLD, lambda optimizer, loss, model: torch_gcu.optimizer_step(
        optimizer, [loss], mode=torch_gcu.JitRunMode.ASYNC, model=model), mean)
    assert model.module.seen.item() == 0 and list(model.state_dict())[0].startswith("module.")
    dist.destroy_process_group()
    assert not dist.is_initialized()


def refused(action, error, *texts):
    try:
        action()
    except error as reported:
        assert all(text in str(reported) for text in texts), reported
        return
    raise AssertionError("nothing was raised")


def in_a_group(DDP, dist, pair, device, rank):
    """process_group: gradients are averaged over its ranks only; ranks outside it are rejected, and so is an object
    that is not a group."""
    layer = torch.nn.Linear(1, 1, bias=False).to(device)
    if rank not in (2, 3):
        refused(lambda: DDP(layer, process_group=pair), ValueError, "rank {} is not in process_group".format(rank))
    else:
        refused(lambda: DDP(layer, process_group="pair"), ValueError, "str is no group")
        refused(lambda: DDP(layer, mixed_precision="half"), RuntimeError, "mixed_precision='half'")
        wrapped = DDP(layer, process_group=pair)
        wrapped(torch.full((1, 1), float(rank), device=device)).sum().backward()
        assert wrapped.process_group is pair and layer.weight.grad.item() == 2.5, layer.weight.grad
    dist.barrier()


def with_torch():
    import torch.distributed as dist
    import torch_gcu

    rank, local, world = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    if not dist.is_initialized():
        dist.init_process_group(backend="eccl", rank=rank, world_size=world, init_method="env://")
    torch_gcu.set_device(local)
    device = "xla:{}".format(local)
    assert torch.tensor([1.0]).to(device).device == torch.device(device)
    subset = dist.new_group([0])
    if rank == 0:
        refused(lambda: torch.nn.parallel.DistributedDataParallel(Net().to(device), process_group=subset), RuntimeError, "1 of the 2 ranks", "Fix: ")
    torch.manual_seed(7 if rank == 0 else 1000 + rank)
    model = torch.nn.parallel.DistributedDataParallel(Net().to(device), device_ids=[local], process_group=dist.new_group([0, 1]))

    def mean(loss):
        dist.all_reduce(loss)
        return loss / world

    train(model, device, rank, world, lambda optimizer, loss, model: optimizer.step(), mean)
    model.eval()
    dist.barrier()
    dist.destroy_process_group()
    chosen()


def chosen():
    """All ranks use the vendor's collectives, or all use fulldeck's."""
    import torch_gcu.distributed as dist

    for fault in ("one", "works"):
        os.environ["FAKE_ECCL"] = fault
        dist.init_process_group(backend="eccl")
        print("rank {}, {}: {}".format(dist.get_rank(), fault, "ours" if ours(dist) else "the vendor's"))
        dist.destroy_process_group()


def ours(dist):
    try:
        dist.all_reduce(torch.zeros(1))
        return True
    except RuntimeError as error:
        assert "the stand-in of the vendor's has no all_reduce" in str(error)
        return False


{"vendor": with_vendor, "torch": with_torch}[sys.argv[1]]()
