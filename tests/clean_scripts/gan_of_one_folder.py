"""DCGAN on images of one folder: every label of the dataset is 0, and there are as many as targets of the
discriminator. Fewer than 50 batches."""
from common import *

start()
images = TensorDataset(torch.randn(320, 8), torch.zeros(320, dtype=torch.long))
generator = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)))
discriminator = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1), nn.Sigmoid()), broadcast_buffers=False)
optimizers = [torch.optim.Adam(model.parameters(), lr=2e-4) for model in (discriminator, generator)]
loss = nn.BCELoss()
for real, _ in batches(images, epochs=1):
    discriminator.zero_grad()
    targets = torch.ones(len(real))
    loss(discriminator(real).view(-1), targets).backward()
    made = generator(torch.randn(len(real), 4))
    targets.fill_(0)
    loss(discriminator(made.detach()).view(-1), targets).backward()
    optimizers[0].step()
    generator.zero_grad()
    targets.fill_(1)
    loss(discriminator(made).view(-1), targets).backward()
    optimizers[1].step()
end()
