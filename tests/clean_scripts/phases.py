"""All parameters are in one optimizer from the start but join one after the other: only the head in the first epoch,
more layers later, and two tasks in blocks of 40 batches."""
from common import *

start()
layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
model = nn.ModuleDict({"layers": layers, "one": nn.Linear(8, 3), "two": nn.Linear(8, 3)})


def forward(inputs, step):
    features = inputs
    with torch.set_grad_enabled(step >= 32):
        for layer in layers[:1 + step // 40]:
            features = features + layer(features).relu()
    return model["one" if step // 40 % 2 == 0 else "two"](features)


model.forward = forward
wrapped = DistributedDataParallel(model, find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (inputs, labels) in enumerate(batches(data(), epochs=6)):
    nn.functional.cross_entropy(wrapped(inputs, step), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
