"""Every rank reads the same global batch and uses its own part of it: some samples, or a part of each sequence."""
from common import *

start()
world = dist.get_world_size()
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in DataLoader(data(640), 16, shuffle=True, generator=torch.Generator().manual_seed(5)):
    inputs, labels = inputs.chunk(world)[rank], labels.chunk(world)[rank]
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
