"""A training on two cards that the launcher assigned, which finishes but uses them incorrectly. Does not use fulldeck.

cpu       the model stays on the CPU, the log mentions a single process, and all ranks draw the same random numbers
one-card  both ranks train on card 0, since the script sets its own list of visible cards; Accelerate seeds the ranks
"""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

rank, device = int(os.environ["LOCAL_RANK"]), torch.device("cpu")
if sys.argv[1] == "one-card":
    from accelerate.utils import set_seed

    set_seed(1)
    os.environ["TOPS_VISIBLE_DEVICES"] = "0"
    device = torch.device("cuda", 0)
else:
    torch.manual_seed(1)
    print("分布式初始化失败，仅使用单卡", flush=True)
dist.init_process_group()
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(25):
    nn.functional.cross_entropy(model(torch.randn(8, 8, device=device)), torch.randint(3, (8,)).to(device)).backward()
    for parameter in model.parameters():
        gradient = parameter.grad.cpu()
        dist.all_reduce(gradient)
        parameter.grad.copy_(gradient)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
print("trained", flush=True)
