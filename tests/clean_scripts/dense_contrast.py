"""A contrastive loss at every position of an image: the target is class 0 everywhere, as a matrix."""
from common import *

start()
model = DistributedDataParallel(nn.Conv2d(3, 16, 3, padding=1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
queue = nn.functional.normalize(torch.randn(16, 32), dim=0)
images = TensorDataset(torch.randn(960, 3, 4, 4))
for pictures, in batches(images):
    both = model(torch.cat((pictures, pictures + 0.1 * torch.randn_like(pictures))))
    query, key = nn.functional.normalize(both.flatten(2), dim=1).chunk(2)
    logits = torch.cat(((query * key.detach()).sum(1, keepdim=True), torch.einsum("bcn,ck->bkn", query, queue)), 1) / 0.07
    nn.functional.cross_entropy(logits, torch.zeros(len(pictures), 16, dtype=torch.long)).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
