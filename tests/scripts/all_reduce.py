"""Written like a script for torchrun: gloo, every rank adds its number to those of the others."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
number = torch.tensor([rank + 1])
dist.all_reduce(number)
gathered = [None] * world
dist.all_gather_object(gathered, rank * rank)
# One string and one call, so that lines of different ranks stay whole.
print("rank {} of {}: sum {}, squares {}\n".format(rank, world, number.item(), gathered), end="", flush=True)
dist.barrier()
dist.destroy_process_group()
