"""Self-supervised, as MoCo: the target is class 0 in every row; the dataset has labels of several classes, which are
unused."""
from common import *

start()
query, key = net(classes=16), net(classes=16).requires_grad_(False)
model = DistributedDataParallel(query)
queue = nn.functional.normalize(torch.randn(16, 64), dim=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for inputs, _ in batches(data(), epochs=3):
    views = [inputs + 0.1 * torch.randn_like(inputs) for _ in range(2)]
    q = nn.functional.normalize(model(views[0]), dim=1)
    with torch.no_grad():
        for slow, fast in zip(key.parameters(), query.parameters()):
            slow.lerp_(fast, 0.01)
        k = nn.functional.normalize(key(views[1]), dim=1)
    logits = torch.cat(((q * k).sum(1, keepdim=True), q @ queue), dim=1) / 0.07
    nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long)).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
