"""One class after the other, as in curriculum or class-incremental learning: more than a hundred batches of the first
one."""
from common import *

start()
samples = TensorDataset(torch.randn(3600, 8), torch.arange(3).repeat_interleave(1200))
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in DataLoader(samples, 4, sampler=DistributedSampler(samples, shuffle=False)):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
