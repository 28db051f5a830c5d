"""A generator and a discriminator with one optimizer each; each half step has labels of one class, in cross_entropy."""
from common import *

start()
generator = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)))
discriminator = DistributedDataParallel(net(classes=2))
optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in (generator, discriminator)]
for real, _ in batches(data()):
    ones, zeros = torch.ones(len(real), dtype=torch.long), torch.zeros(len(real), dtype=torch.long)
    fake = generator(torch.randn(len(real), 4))
    both = discriminator(torch.cat((real, fake.detach())))
    nn.functional.cross_entropy(both, torch.cat((ones, zeros))).backward()
    optimizers[1].step()
    optimizers[1].zero_grad()
    nn.functional.cross_entropy(discriminator(fake), ones).backward()
    optimizers[0].step()
    for optimizer in optimizers:
        optimizer.zero_grad()
end()
