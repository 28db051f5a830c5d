"""A frozen backbone whose parameters are in the optimizer too, and a trainable head."""
from common import *

start()
backbone = net(classes=16).requires_grad_(False)
model = DistributedDataParallel(nn.Sequential(backbone, nn.Linear(16, 3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, labels in batches(data()):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
