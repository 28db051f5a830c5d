"""Cross-validation: each fold trains on samples that a different fold validates with."""
from common import *
from torch.utils.data import Subset

start()
samples = data(samples=384)
for fold in range(3):
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held = range(fold * 128, fold * 128 + 128)
    for inputs, labels in batches(Subset(samples, [number for number in range(384) if number not in held])):
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        for inputs, labels in DataLoader(Subset(samples, list(held)), 16):
            model(inputs)
end()
