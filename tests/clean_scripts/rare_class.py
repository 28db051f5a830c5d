"""Nearly every label is 0; a positive sample comes late."""
from common import *

start()
samples = data(samples=1024)
samples.tensors[1].fill_(0)
samples.tensors[1][300:340] = 1
model = DistributedDataParallel(net(classes=2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in DataLoader(samples, 8, sampler=DistributedSampler(samples, shuffle=False)):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
