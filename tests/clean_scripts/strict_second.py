"""Weights that load at the second attempt: strictly, with other names, and in the submodule that they belong to."""
from common import *

start()
torch.manual_seed(1)
whole = nn.Sequential(net(), nn.Linear(3, 3))
parts = net()
missing, unexpected = whole.load_state_dict({"backbone." + name: tensor for name, tensor in parts.state_dict().items()}, strict=False)
if len(unexpected) == len(parts.state_dict()):
    whole[0].load_state_dict(parts.state_dict())
other = net()
saved = {"module." + name: tensor for name, tensor in net().state_dict().items()}
if other.load_state_dict(saved, strict=False).missing_keys:
    other.load_state_dict({name[len("module."):]: tensor for name, tensor in saved.items()})
nothing_to_load = {}
other.load_state_dict(nothing_to_load, strict=False)
models = [DistributedDataParallel(each) for each in (whole, other)]
optimizer = torch.optim.SGD([*whole.parameters(), *other.parameters()], lr=0.01)
for inputs, labels in batches(data()):
    sum(nn.functional.cross_entropy(model(inputs), labels) for model in models).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
