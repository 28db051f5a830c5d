"""An optimizer that calls forward and backward itself."""
from common import *

start()
model = DistributedDataParallel(nn.Linear(8, 3))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
for inputs, labels in batches(data(samples=256)):
    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        return loss
    optimizer.step(closure)
end()
