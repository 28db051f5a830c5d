"""A rank that creates groups, uses them and exits without destroy_process_group(), in the way that its argument names.
It does not depend on how the backend was installed. Arguments: BACKEND WAY."""
import sys

import torch
import torch.distributed as dist

WAYS = ("plain", "exit", "async", "callback", "subgroup", "ddp", "thread", "insisting")


def leave(backend, way):
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((1000,), float(rank + 1))
    dist.all_reduce(tensor)
    assert tensor[0].item() == size * (size + 1) / 2, tensor[0]
    if way == "exit":
        sys.exit(0)
    if way == "async":
        for _ in range(20):
            dist.all_reduce(torch.ones(10000), async_op=True)
    if way == "callback":
        # References from the backend's thread into Python, some of them still to be called.
        kept = []
        for _ in range(20):
            work = dist.all_reduce(torch.ones(10000), async_op=True)
            work.get_future().then(lambda future: kept.append(future.value()[0][0].item()))
    if way == "subgroup":
        pairs = dist.new_group([0, 1])
        dist.all_reduce(tensor, group=pairs)
        dist.barrier(group=pairs)
    if way == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(50, 50))
        for _ in range(3):
            model(torch.ones(4, 50)).sum().backward()
    if way in ("thread", "insisting"):
        import threading

        # Waits for a call that no other rank makes; a daemon, so that Python does not wait for it.
        alone = dist.new_group(list(range(size)))
        if rank == 0:
            entered = threading.Event()

            def wait():
                entered.set()
                while True:
                    try:
                        dist.barrier(group=alone)
                    except RuntimeError:
                        # Calls again immediately: at any moment of Python's exit it is entering or leaving a call.
                        if way == "thread":
                            return

            threading.Thread(target=wait, daemon=True).start()
            entered.wait()
    print("rank", rank, "leaves", flush=True)


if __name__ == "__main__":
    leave(sys.argv[1], sys.argv[2])
