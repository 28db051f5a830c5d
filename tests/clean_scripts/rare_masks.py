"""Masks of a rare object: nearly all of them are empty, and the only positive ones come late in the pass."""
from common import *

start()
masks = torch.zeros(1600, 4, 4)
masks[1500:1504, 1, 2] = 1
samples = TensorDataset(torch.randn(1600, 8), masks)
model = DistributedDataParallel(nn.Linear(8, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, targets in DataLoader(samples, 4, sampler=DistributedSampler(samples, shuffle=False)):
    nn.functional.binary_cross_entropy_with_logits(model(inputs).view(-1, 4, 4), targets).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
