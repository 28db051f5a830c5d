"""Two loaders of one dataset yield the two halves of a pair, regenerated in each epoch; the validation has different
samples."""
from common import *

start()
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
samples = data()
for epoch in range(3):
    samplers = [DistributedSampler(samples, seed=seed) for seed in (1, 2)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    for (one, label), (two, _) in zip(*(DataLoader(samples, 8, sampler=sampler) for sampler in samplers)):
        nn.functional.cross_entropy(model(0.5 * (one + two)), label).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    for inputs, labels in DataLoader(data(seed=2), 16):  # with gradients enabled, as in some scripts
        model(inputs)
    model.train()
end()
