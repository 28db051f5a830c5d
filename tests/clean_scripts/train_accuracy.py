"""After each epoch the score on the training data, with its own loader, and on the validation data."""
from common import *

start()
train = data()
sampler = DistributedSampler(train)
loader = DataLoader(train, 8, sampler=sampler)
again = DataLoader(train, 32)
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for which in (loader, again, DataLoader(data(seed=2), 32)):
            for inputs, labels in which:
                model.module(inputs)
    model.train()
end()
