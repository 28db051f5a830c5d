"""Jobs for a RankSet (ranks.py), run inside a rank with torch by fulldeck's own tests of the backend. Each receives its
Place and returns JSON values. They call only torch, never the backend, so that they also run with Gloo."""
import contextlib
import hashlib
import io
import os
import runpy
import sys
import threading
import time
from unittest import mock

import torch
import torch.distributed as dist


def plain(value):
    """A value for JSON: tensors become nested lists, complex numbers pairs, sparse tensors dense ones."""
    if isinstance(value, torch.Tensor):
        if value.is_sparse:
            value = value.to_dense()
        if value.is_complex():
            value = torch.view_as_real(value)
        if value.dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn):
            value = value.float()
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def mapping_of(tensor):
    """What backs the memory of a tensor, by its name in /proc/self/maps ('' for anonymous memory)."""
    address = tensor.data_ptr()
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split(None, 5)
            first, last = (int(word, 16) for word in fields[0].split("-"))
            if first <= address < last:
                return fields[5].strip() if len(fields) > 5 else ""
    return "not mapped"


# ---- values ----


def sums(place, sizes, seed=1):
    """A digest of all-reduced random numbers per size, and the largest relative error compared with float64."""
    found = []
    for size in sizes:
        inputs = [torch.randn(size, generator=torch.Generator().manual_seed(seed + 1000 * rank)) for rank in range(place.size)]
        mine = inputs[place.rank].clone()
        dist.all_reduce(mine)
        exact = sum(one.double() for one in inputs)
        scale = sum(one.double().abs() for one in inputs)
        error = ((mine.double() - exact).abs() / scale).max().item()
        found.append([hashlib.sha256(mine.numpy().tobytes()).hexdigest(), error])
    return found


def every_collective(place):
    """The result of each collective on small integers, which every order of summation gives exactly."""
    rank, size = place.rank, place.size
    mine = torch.arange(5, dtype=torch.float32) + 10 * rank
    found = {}

    for name in ("SUM", "MIN", "MAX", "PRODUCT"):
        value = mine.double()  # products of eight of them exceed float32's precision
        dist.all_reduce(value, getattr(dist.ReduceOp, name))
        found["all_reduce " + name] = value
    for name in ("BAND", "BOR", "BXOR"):
        value = torch.arange(5) + 3 * rank
        dist.all_reduce(value, getattr(dist.ReduceOp, name))
        found["all_reduce " + name] = value
    for dtype in (torch.float64, torch.float16, torch.int8, torch.uint8, torch.int32, torch.int64, torch.bfloat16):
        value = (torch.arange(7) + rank).to(dtype)
        dist.all_reduce(value)
        found["all_reduce {}".format(dtype)] = value
    value = mine.clone()
    dist.broadcast(value, size - 1)
    found["broadcast"] = value
    value = mine.clone()
    dist.reduce(value, 1)
    found["reduce"] = value if rank == 1 else None
    parts = [torch.empty(5) for _ in range(size)]
    dist.all_gather(parts, mine)
    found["all_gather"] = parts
    whole = torch.empty(5 * size)
    dist.all_gather_into_tensor(whole, mine)
    found["all_gather_into_tensor"] = whole
    parts = [torch.empty(5) for _ in range(size)] if rank == 0 else None
    dist.gather(mine, parts, 0)
    found["gather"] = parts
    value = torch.empty(5)
    dist.scatter(value, [mine + other for other in range(size)] if rank == 1 else None, 1)
    found["scatter"] = value
    value = torch.empty(5)
    dist.reduce_scatter(value, [mine * other for other in range(size)])
    found["reduce_scatter"] = value
    value = torch.empty(3)
    dist.reduce_scatter_tensor(value, torch.arange(3.0 * size) + rank)
    found["reduce_scatter_tensor"] = value
    value = torch.empty(2 * size)
    dist.all_to_all_single(value, torch.arange(2.0 * size) + 100 * rank)
    found["all_to_all_single"] = value
    splits_in = [other + 1 for other in range(size)]
    value = torch.empty((rank + 1) * size)
    dist.all_to_all_single(value, torch.arange(float(sum(splits_in))) + 100 * rank, [rank + 1] * size, splits_in)
    found["all_to_all_single uneven"] = value
    parts = [torch.empty(4) for _ in range(size)]
    dist.all_to_all(parts, [torch.full((4,), 10.0 * rank + other) for other in range(size)])
    found["all_to_all"] = parts
    other = rank ^ 1
    if other < size:
        value = torch.empty(5)
        if rank < other:
            dist.send(mine, other, tag=3)
            dist.recv(value, other, tag=4)
        else:
            dist.recv(value, other, tag=3)
            dist.send(mine, other, tag=4)
        found["send and recv"] = value
    if rank == 0:
        came = [[dist.recv(value), value.clone()] for value in [torch.empty(5) for _ in range(size - 1)]]
        found["recv from any"] = sorted(plain(came))
    else:
        dist.send(mine, 0)
    dist.barrier()
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    found["all_gather_object"] = objects
    return {name: plain(value) for name, value in found.items()}


def beyond_gloo(place):
    """Calls that Gloo rejects and fulldeck supports."""
    uneven = [torch.empty(1 + rank, 2) for rank in range(place.size)]
    dist.all_to_all(uneven, [torch.full((1 + place.rank, 2), 10.0 * place.rank + other) for other in range(place.size)])
    small = torch.tensor([1 + place.rank, 2], dtype=torch.uint16)
    dist.broadcast(small, 1)
    eight_bits = torch.full((4,), 1.0 + place.rank).to(torch.float8_e4m3fn)
    dist.broadcast(eight_bits, 1)
    strided = (torch.arange(10.0) + place.rank)[::2]
    dist.all_reduce(strided)
    return {"all_to_all": plain(uneven), "uint16": small.tolist(), "float8": plain(eight_bits), "strided": plain(strided)}


def subgroups(place):
    """Groups that overlap, are listed out of order, and are used by several threads at the same time."""
    rank, size = place.rank, place.size
    lists = [[0, 1], list(range(size - 1, -1, -1)), [rank for rank in range(size) if rank % 2 == 0], [size - 1, 0], [1]]
    groups = [(ranks, dist.new_group(ranks)) for ranks in lists]
    found = []
    for ranks, group in groups:
        if rank not in ranks:
            continue
        value = torch.full((1000,), float(rank + 1))
        dist.all_reduce(value, group=group)
        parts = [torch.zeros(1) for _ in ranks]
        dist.all_gather(parts, torch.tensor([float(rank)]), group=group)
        found.append([value[0].item(), value[-1].item(), plain(parts), dist.get_group_rank(group, rank)])

    mine = [(ranks, group) for ranks, group in groups if rank in ranks]
    totals = [None] * len(mine)

    def add_up(index):
        total = 0.0
        for step in range(200):
            value = torch.full((17,), float(step + rank))
            dist.all_reduce(value, group=mine[index][1])
            total += value.sum().item()
        totals[index] = total

    threads = [threading.Thread(target=add_up, args=(index,)) for index in range(len(mine))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, group in mine:
        dist.destroy_process_group(group)
    value = torch.ones(1)
    dist.all_reduce(value)
    return [found, totals, value.item()]


def async_work(place):
    """Many pending calls, waited for in a different order; futures and their callbacks."""
    values = [torch.full((1 + 1000 * index,), float(place.rank + index)) for index in range(20)]
    works = [dist.all_reduce(value, async_op=True) for value in values]
    for work in reversed(works):
        work.wait()
    done = all(work.is_completed() for work in works)
    future = dist.all_reduce(torch.full((3,), float(place.rank)), async_op=True).get_future()
    doubled = future.then(lambda finished: finished.value()[0] * 2).wait()
    gathered = torch.empty(2 * place.size)
    dist.all_gather_into_tensor(gathered, torch.full((2,), float(place.rank)), async_op=True).wait()
    return [done, [value[-1].item() for value in values], plain(doubled), plain(gathered)]


# ---- DDP and its buckets ----


def ddp_buckets(place, steps=3):
    """Trains a little and returns what backs the memory of DDP's buckets, and the weights."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02)
    backed_by = set()

    def hook(_, bucket):
        backed_by.add(mapping_of(bucket.buffer()))
        return dist.all_reduce(bucket.buffer().div_(place.size), async_op=True).get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(100 * step + place.rank))
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    return [sorted(backed_by), sum(parameter.double().sum().item() for parameter in model.parameters())]


def fsdp_memory(place, from_group):
    """What backs the buffers of FSDP2's collectives: [of all_gather's outputs, of reduce_scatter's inputs]."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    mesh = init_device_mesh("cpu", (place.size,))
    for part in (model[0], model[1], model):
        fully_shard(part, mesh=mesh)
        if from_group:
            part.set_allocate_memory_from_process_group_for_comm(True)
    gathered, scattered = set(), set()

    def watch(name, position, argument, found):
        call = getattr(dist, name)

        def watched(*arguments, **named):
            found.add(mapping_of(named[argument] if argument in named else arguments[position]))
            return call(*arguments, **named)

        return mock.patch.object(dist, name, watched)

    # torch 2.13 renamed them.
    new = hasattr(dist, "all_gather_single")
    with watch("all_gather_single" if new else "all_gather_into_tensor", 0, "output_tensor", gathered), \
            watch("reduce_scatter_single" if new else "reduce_scatter_tensor", 1, "input", scattered):
        model(torch.ones(4, 64)).square().mean().backward()
    return [sorted(gathered), sorted(scattered)]


# ---- scripts ----


def run_script(place, path, arguments, port):
    """Runs a script for torchrun unchanged, in this process, and returns its output. For jobs without a group: the
    script creates its own."""
    os.environ.update(LOCAL_RANK=str(place.rank), LOCAL_WORLD_SIZE=str(place.size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), mock.patch.object(sys, "argv", [path] + arguments):
        runpy.run_path(path, run_name="__main__")
    return printed.getvalue()


# ---- several nodes ----


def sums_and_path(place, sizes):
    """sums(), every_collective(), subgroups(), and the number of calls of the default group per path."""
    from fulldeck import backend
    return {"sums": sums(place, sizes), "values": every_collective(place), "groups": subgroups(place),
            "paths": backend.paths()._asdict(), "description": backend.describe()}


# ---- invalid input ----


def _gather_into(shapes, value):
    outputs = [torch.full(shape, -1.0) for shape in shapes]
    dist.all_gather(outputs, value)
    return outputs


def _in_place(tensor, call, *arguments, **named):
    call(tensor, *arguments, **named)
    return tensor


def _sparse(rank):
    return torch.sparse_coo_tensor([[rank, 3]], [1.0, 2.0], (5,))


def _exchange(rank, mine, other):
    """Rank 0 sends to rank 1."""
    if rank == 0:
        dist.send(mine, 1)
        return mine
    if rank == 1:
        dist.recv(other, 0)
        return other
    return None


def _all_gather_overlapping(rank, size):
    memory = torch.full((size * 2 + 1,), -1.0)
    dist.all_gather([memory[2 * other:2 * other + 3] for other in range(size)], torch.full((3,), float(rank)))
    return memory


def _all_gather_in_place(rank, size):
    memory = torch.full((size * 3,), -1.0)
    memory[3 * rank:3 * rank + 3] = rank
    dist.all_gather_into_tensor(memory, memory[3 * rank:3 * rank + 3])
    return memory


def _reduce_scatter_in_place(rank, size):
    memory = torch.arange(3.0 * size) + rank
    dist.reduce_scatter_tensor(memory[3 * rank:3 * rank + 3], memory)
    return memory[3 * rank:3 * rank + 3]


def _empty_everywhere(rank, size):
    empty = torch.empty(0)
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)
    dist.all_gather([torch.empty(0) for _ in range(size)], empty)
    dist.gather(empty, [torch.empty(0) for _ in range(size)] if rank == 0 else None, 0)
    dist.scatter(empty, [torch.empty(0) for _ in range(size)] if rank == 0 else None, 0)
    dist.all_gather_into_tensor(torch.empty(0), empty)
    dist.all_to_all_single(torch.empty(0), empty)
    _exchange(rank, empty, torch.empty(0))
    return list(empty.shape)


# name: function(rank, size). With names that start with "ranks differ", the ranks make different calls.
BAD_INPUTS = {
    "non-contiguous all_reduce, a transpose":
        lambda rank, size: _in_place((torch.arange(6.0).reshape(2, 3) + rank).t(), dist.all_reduce),
    "non-contiguous all_reduce, every second element":
        lambda rank, size: _in_place((torch.arange(10.0) + rank)[::2], dist.all_reduce),
    "non-contiguous broadcast":
        lambda rank, size: _in_place((torch.arange(6.0).reshape(2, 3) + rank).t(), dist.broadcast, 0),
    "non-contiguous reduce":
        lambda rank, size: (lambda value: value if rank == 0 else None)(
            _in_place((torch.arange(6.0).reshape(2, 3) + rank).t(), dist.reduce, 0)),
    "non-contiguous all_gather input":
        lambda rank, size: _gather_into([(3, 2)] * size, (torch.arange(6.0).reshape(2, 3) + rank).t()),
    "non-contiguous all_gather output":
        lambda rank, size: (lambda memory: [dist.all_gather([column for column in memory.t()], torch.full((4,), float(rank))),
                                            memory][1])(torch.zeros(4, size)),
    "non-contiguous send and recv":
        lambda rank, size: _exchange(rank, torch.arange(6.0)[::2], torch.zeros(6)[::2]),
    "non-contiguous all_gather_into_tensor":
        lambda rank, size: _in_place(torch.zeros(3, 2 * size).t(), dist.all_gather_into_tensor,
                                     torch.arange(6.0).reshape(2, 3) + rank),
    "non-contiguous all_to_all_single":
        lambda rank, size: _in_place(torch.zeros(2, 2 * size).t(), dist.all_to_all_single,
                                     (torch.arange(4.0 * size).reshape(2, 2 * size) + rank).t()),
    "channels last all_reduce":
        lambda rank, size: _in_place((torch.arange(16.0).reshape(1, 2, 2, 4) + rank).to(memory_format=torch.channels_last),
                                     dist.all_reduce),
    "sparse all_reduce": lambda rank, size: _in_place(_sparse(rank), dist.all_reduce),
    "sparse all_reduce, max": lambda rank, size: _in_place(_sparse(rank), dist.all_reduce, dist.ReduceOp.MAX),
    "sparse broadcast": lambda rank, size: _in_place(_sparse(rank), dist.broadcast, 0),
    "sparse all_gather": lambda rank, size: _gather_into([(5,)] * size, _sparse(rank)),
    "complex all_reduce": lambda rank, size: _in_place(torch.tensor([1 + 2j, 3j]) * (rank + 1), dist.all_reduce),
    "complex all_reduce, max":
        lambda rank, size: _in_place(torch.tensor([1 + 2j, 3j]), dist.all_reduce, dist.ReduceOp.MAX),
    "complex broadcast": lambda rank, size: _in_place(torch.tensor([1 + 2j, 3j]) * (rank + 1), dist.broadcast, 1),
    "conjugate view all_reduce": lambda rank, size: _in_place((torch.tensor([1 + 2j, 3j]) * (rank + 1)).conj(), dist.all_reduce),
    "nothing in the tensors": _empty_everywhere,
    "no dimensions": lambda rank, size: _in_place(torch.tensor(2.0 + rank), dist.all_reduce),
    "elements that share memory, all_reduce": lambda rank, size: _in_place(torch.ones(1).expand(4), dist.all_reduce),
    "elements that share memory, broadcast": lambda rank, size: _in_place(torch.full((1,), rank + 1.0).expand(4), dist.broadcast, 1),
    "outputs that overlap, all_gather": _all_gather_overlapping,
    "input within the output, all_gather_into_tensor": _all_gather_in_place,
    "output within the input, reduce_scatter_tensor": _reduce_scatter_in_place,
    "meta tensor all_reduce": lambda rank, size: [dist.all_reduce(torch.empty(4, device="meta")), "nothing was told"][1],
    "meta tensor broadcast": lambda rank, size: [dist.broadcast(torch.empty(4, device="meta"), 0), "nothing was told"][1],
    "meta output all_gather":
        lambda rank, size: [dist.all_gather([torch.empty(4, device="meta")] * size, torch.ones(4)), "nothing was told"][1],
    "wrong shapes in all_gather": lambda rank, size: _gather_into([(3,)] * (size - 1) + [(4,)], torch.ones(3)),
    "too few outputs in all_gather": lambda rank, size: _gather_into([(3,)] * (size - 1), torch.ones(3)),
    "output of all_gather_into_tensor too small":
        lambda rank, size: _in_place(torch.zeros(3 * size - 1), dist.all_gather_into_tensor, torch.ones(3)),
    "input of reduce_scatter_tensor too small":
        lambda rank, size: _in_place(torch.zeros(3), dist.reduce_scatter_tensor, torch.ones(3 * size - 1)),
    "splits that do not add up":
        lambda rank, size: _in_place(torch.zeros(size), dist.all_to_all_single, torch.ones(size), [2] * size, [1] * size),
    "mixed types in all_gather":
        lambda rank, size: [dist.all_gather([torch.zeros(2, dtype=torch.int32)] * size, torch.ones(2)), "nothing was told"][1],
    "bool all_reduce": lambda rank, size: _in_place(torch.tensor([rank == 0, False, True]), dist.all_reduce),
    "bool all_reduce, max": lambda rank, size: _in_place(torch.tensor([rank == 0, False]), dist.all_reduce, dist.ReduceOp.MAX),
    "uint16 all_reduce": lambda rank, size: _in_place(torch.tensor([1, 2], dtype=torch.uint16), dist.all_reduce),
    "uint16 broadcast": lambda rank, size: _in_place(torch.tensor([1 + rank, 2], dtype=torch.uint16), dist.broadcast, 1),
    "float8 all_reduce": lambda rank, size: _in_place(torch.ones(4).to(torch.float8_e4m3fn), dist.all_reduce),
    "float8 broadcast":
        lambda rank, size: _in_place(torch.full((4,), 1.0 + rank).to(torch.float8_e4m3fn), dist.broadcast, 1),
    "quantized all_reduce":
        lambda rank, size: [dist.all_reduce(torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)),
                            "nothing was told"][1],
    "bits of floats": lambda rank, size: _in_place(torch.ones(4), dist.all_reduce, dist.ReduceOp.BAND),
    "premultiplied sum":
        lambda rank, size: _in_place(torch.ones(4), dist.all_reduce, dist._make_nccl_premul_sum(2.0)),
    "average of integers": lambda rank, size: _in_place(torch.tensor([3 + rank, -3 - rank]), dist.all_reduce, dist.ReduceOp.AVG),
    "a leaf that requires grad": lambda rank, size: _in_place(torch.ones(3, requires_grad=True), dist.all_reduce).detach(),
    "root that does not exist": lambda rank, size: _in_place(torch.ones(3), dist.broadcast, size + 3),
    "send to oneself": lambda rank, size: [dist.send(torch.ones(3), rank), "nothing was told"][1],
    "no tensor at all": lambda rank, size: [dist.all_reduce("gradients"), "nothing was told"][1],
    "an empty list, all_gather": lambda rank, size: [dist.all_gather([], torch.ones(2)), "nothing was told"][1],
    "ranks differ in shape, same number of elements":
        lambda rank, size: _in_place(torch.ones((2, 3) if rank == 0 else (3, 2)), dist.all_reduce),
    "ranks differ in size, all_reduce": lambda rank, size: _in_place(torch.ones(3 + rank), dist.all_reduce),
    "ranks differ in size, broadcast": lambda rank, size: _in_place(torch.ones(3 + rank), dist.broadcast, 0),
    "ranks differ in type": lambda rank, size: _in_place(torch.ones(4).to([torch.float32, torch.int32][rank % 2]), dist.all_reduce),
    "ranks differ in reduction":
        lambda rank, size: _in_place(torch.ones(4), dist.all_reduce, [dist.ReduceOp.SUM, dist.ReduceOp.MAX][rank % 2]),
    "ranks differ in root": lambda rank, size: _in_place(torch.ones(4) + rank, dist.broadcast, rank % 2),
    "ranks differ in the call":
        lambda rank, size: _in_place(torch.ones(4), dist.all_reduce) if rank == 0 else _in_place(torch.ones(4), dist.broadcast, 1),
    "ranks differ in the length of a message":
        lambda rank, size: _exchange(rank, torch.ones(4), torch.zeros(6)),
}


def bad_input(place, name):
    """{error, value, after}: what the call raised or returned, and the result of an all_reduce on the same group
    afterwards."""
    found = {"error": None, "value": None, "after": None}
    began = time.monotonic()
    try:
        found["value"] = plain(BAD_INPUTS[name](place.rank, place.size))
    except Exception as error:
        found["error"] = "{}: {}".format(type(error).__name__, error)[:2000]
    found["seconds"] = time.monotonic() - began
    try:
        value = torch.ones(3)
        dist.all_reduce(value)
        found["after"] = plain(value)
    except Exception as error:
        found["after"] = "{}: {}".format(type(error).__name__, error)[:2000]
    return found


# ---- death ----


def all_reduce_until_it_fails(place, mebibytes, started):
    """Endless large all_reduces. Creates a file in `started` after the first one; returns when it raised
    (time.monotonic), and what."""
    value = torch.ones(mebibytes * 2**18)
    calls = 0
    while True:
        try:
            dist.all_reduce(value)
        except Exception as error:
            return {"at": time.monotonic(), "error": "{}: {}".format(type(error).__name__, error)[:3000], "calls": calls}
        value.fill_(1.0)
        calls += 1
        if calls == 1:
            with open(os.path.join(started, str(place.rank)), "w"):
                pass
