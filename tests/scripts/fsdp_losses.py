"""A small transformer trained with FSDP2 (fully_shard), written like a script for torchrun: on the CPU, or written for
CUDA. Prints the losses of each rank bit by bit, so that two runs can be compared, and the device that it trained on.

fsdp_losses.py [--backend B] [--device cpu cuda] [--steps N] [--bfloat16-reduce] [--group-memory]
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class SmallTransformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 24)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(24, 3, 40, dropout=0.0, batch_first=True) for _ in range(2))
        self.head = torch.nn.Linear(24, 50)

    def forward(self, words):
        hidden = self.embed(words)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden.flatten(0, 1)).unflatten(0, words.shape).clone()


def train(device, options):
    rank = dist.get_rank()
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    torch.manual_seed(7)
    model = SmallTransformer().to(device)
    policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if options.bfloat16_reduce else None)
    parts = list(model.layers) + [model]
    for part in parts:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    if options.group_memory:
        for part in parts:
            part.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(options.steps):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        words = torch.randint(0, 50, (4, 12), generator=generator).to(device)
        logits = model(words)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    print("rank {} losses {}\n".format(rank, " ".join(value.hex() for value in losses)), end="", flush=True)
    if device != "cpu":
        print("rank {} on {}\n".format(rank, next(model.parameters()).to_local().device), end="", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--device", nargs="+", default=["cpu"], choices=["cpu", "cuda"], help="one after the other")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--bfloat16-reduce", action="store_true", help="reduce the gradients in bfloat16")
    parser.add_argument("--group-memory", action="store_true", help="take the memory of the collectives from the group")
    options = parser.parse_args()

    if "cuda" in options.device:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(options.backend)
    for device in options.device:
        train(device, options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
