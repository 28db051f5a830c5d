"""A GradScaler that finds Inf and skips the step."""
from common import *

start()
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 40, growth_interval=5)
for number, (inputs, labels) in enumerate(batches(data())):
    scaler.scale(nn.functional.cross_entropy(model(inputs), labels)).backward()
    if number % 7 == 3:
        next(model.parameters()).grad.mul_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
end()
