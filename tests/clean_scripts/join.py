"""Uneven inputs under join(): one rank has more batches than the other."""
from common import *
from torch.distributed.algorithms.join import Join

start()
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with Join([model]):
    for inputs, labels in DataLoader(data(samples=200 + 80 * rank, seed=rank), 8):
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
end()
