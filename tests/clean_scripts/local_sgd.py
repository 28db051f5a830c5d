"""Torch's local SGD: the parameters of the ranks differ between two averages."""
import torch.distributed.algorithms.model_averaging.averagers as averagers
from common import *
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.optim import PostLocalSGDOptimizer

start()
alone, _ = dist.new_subgroups(group_size=1)
model = DistributedDataParallel(net())
model.register_comm_hook(PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=4), post_localSGD_hook)
optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), averagers.PeriodicModelAverager(period=4, warmup_steps=4))
for inputs, labels in batches(data()):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
