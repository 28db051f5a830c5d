"""torch.compile of the model and of the loss, as one graph."""
from common import *

start()
model = DistributedDataParallel(net())
loss_of = torch.compile(lambda outputs, labels: nn.functional.cross_entropy(outputs, labels), backend="aot_eager", fullgraph=True)
forward = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in batches(data()):
    loss_of(forward(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
