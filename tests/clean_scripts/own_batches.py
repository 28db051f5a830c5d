"""The training uses slices of its tensors. Only the validation has a DataLoader, a new one each time, whose batches are
objects of the script's own class with `keys` and `values` attributes that are not functions. The validation does not
use no_grad."""
from common import *


class Batch:
    def __init__(self, samples):
        self.keys, self.values = ["inputs", "labels"], tensors(samples)


def tensors(samples):
    return [torch.stack(column) for column in zip(*samples)]


start()
inputs, labels = tensors(data())
mine = slice(dist.get_rank(), None, dist.get_world_size())
inputs, labels = inputs[mine], labels[mine]
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    chosen = torch.randint(len(inputs), (8,))
    nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 9:
        for batch in DataLoader(data(seed=2), 32, collate_fn=Batch):
            model.module(batch.values[0]).detach()
        for held_out, _ in DataLoader(data(seed=2), 32):
            model.module(held_out).detach()
end()
