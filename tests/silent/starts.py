"""Errors of a script before its first step, one after the other, on two cards. Prints the reports that it gets. Does
not use fulldeck."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["LOCAL_RANK"])


def attempt(row, action):
    try:
        action()
        print(row, "went on", flush=True)
    except (RuntimeError, ValueError) as error:
        print(row, "was refused:", str(error).splitlines()[0], flush=True)


# A number of processes that is hard-coded in the script, which does not start them.
os.environ["WORLD_SIZE"] = "8"
attempt("A9", lambda: dist.init_process_group("nccl"))
os.environ["WORLD_SIZE"] = "2"
attempt("G5", lambda: dist.init_process_group("nccl", rank=rank, world_size=8))
# "Every backend failed: falling back to a single process."
attempt("A7", lambda: dist.init_process_group("nccl", init_method="tcp://127.0.0.1:1", rank=0, world_size=1))
# Card 0 on every rank: numbered by the script's own list.
os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
torch.cuda.set_device(0)
dist.init_process_group("nccl")
# Trains on the CPU while the cards idle.
attempt("B6", lambda: DistributedDataParallel(torch.nn.Linear(2, 2)))
dist.barrier()
dist.destroy_process_group()
