"""A model that renames the keys of old checkpoints while it loads, and whose own checkpoints omit the frozen part."""
from common import *


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(8, 16).requires_grad_(False), nn.Linear(16, 3)
        self.register_load_state_dict_pre_hook(self.rename)

    @staticmethod
    def rename(module, state, prefix, *unused):
        for name in [name for name in state if name.startswith("module.")]:
            state[name[len("module."):]] = state.pop(name)

    def state_dict(self, *arguments, **named):
        return {name: tensor for name, tensor in super().state_dict(*arguments, **named).items() if "backbone" not in name}

    def forward(self, inputs):
        return self.head(self.backbone(inputs).relu())


start()
inner = Model()
inner.load_state_dict({"module." + name: tensor.clone() for name, tensor in inner.named_parameters()}, strict=False)
inner.load_state_dict({name: tensor.clone() for name, tensor in inner.named_parameters() if "backbone" in name}, strict=False)
model = DistributedDataParallel(inner)
optimizer = torch.optim.SGD(inner.head.parameters(), lr=0.01)
for inputs, labels in batches(data()):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
