"""An IterableDataset without a length, split by rank, with workers."""
from common import *


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(rank)
        for _ in range(256):
            yield torch.randn(8, generator=generator), torch.randint(3, (), generator=generator)


start()
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in DataLoader(Stream(), 8, num_workers=1):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
