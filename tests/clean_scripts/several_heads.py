"""Two alternating tasks with one optimizer, and an unused pooler in a model with many tensors."""
from common import *

start()
trunk = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(8, 8), nn.ReLU())])
model = DistributedDataParallel(nn.ModuleDict({"trunk": trunk, "one": nn.Linear(8, 3), "two": nn.Linear(8, 3), "pooler": nn.Linear(8, 8, bias=False)}),
                                find_unused_parameters=True)
model.module.forward = lambda inputs, task: model.module[task](model.module["trunk"](inputs) + inputs)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number, (inputs, labels) in enumerate(batches(data())):
    nn.functional.cross_entropy(model(inputs, ("one", "two")[number % 2]), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
