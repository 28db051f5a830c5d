"""Accumulates the gradients of four batches in one step."""
from common import *

start()
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number, (inputs, labels) in enumerate(batches(data(), epochs=4)):
    if number % 4 < 3:
        with model.no_sync():
            nn.functional.cross_entropy(model(inputs), labels).backward()
        continue
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
