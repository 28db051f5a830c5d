"""Losses that torch.jit compiles, and per-sample gradients with torch.func."""
from common import *

start()
model = DistributedDataParallel(net())
loss = torch.jit.script(nn.CrossEntropyLoss())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in batches(data()):
    loss(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
torch.jit.script(nn.BCEWithLogitsLoss())(model(inputs), torch.rand(len(inputs), 3)).backward()
inner = nn.Linear(8, 3)
weights = {name: tensor.detach() for name, tensor in inner.named_parameters()}


def of_one(parameters, one, label):
    return nn.functional.cross_entropy(torch.func.functional_call(inner, parameters, (one[None],)), label[None])


inputs, labels = data()[:8]
torch.func.vmap(torch.func.grad(of_one), in_dims=(None, 0, 0))(weights, inputs, labels)
end()
