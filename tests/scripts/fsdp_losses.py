"""A small transformer trained with FSDP2 (fully_shard) on the host's processors, as a script for torchrun is written. Prints the
losses of each rank bit by bit, so that two runs can be compared.

fsdp_losses.py [--backend B] [--steps N] [--bfloat16-reduce] [--group-memory]
"""
import argparse

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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--bfloat16-reduce", action="store_true", help="reduce the gradients in bfloat16")
    parser.add_argument("--group-memory", action="store_true", help="take the memory of the collectives from the group")
    options = parser.parse_args()

    dist.init_process_group(options.backend)
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(7)
    model = SmallTransformer()
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
        words = torch.randint(0, 50, (4, 12), generator=generator)
        logits = model(words)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    print("rank {} losses {}\n".format(rank, " ".join(value.hex() for value in losses)), end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
