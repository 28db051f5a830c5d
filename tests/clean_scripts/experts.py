"""A mixture of experts: most of them get no token for a long time."""
from common import *


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.head = nn.Linear(8, 16), nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(16))

    def forward(self, inputs):
        chosen = self.router(inputs).softmax(1)
        best = int(chosen.mean(0).argmax())
        return self.head(self.experts[best](inputs) * chosen[:, best:best + 1])


start()
model = DistributedDataParallel(Mixture(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in batches(data()):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
