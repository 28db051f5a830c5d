"""A GradScaler with a fused optimizer: gradients are unscaled and clipped, and the optimizer itself skips the steps
with Inf."""
from common import *

start()
model = DistributedDataParallel(net())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 16)
for number, (inputs, labels) in enumerate(batches(data())):
    scaler.scale(nn.functional.cross_entropy(model(inputs), labels)).backward()
    if number < 2:
        next(model.parameters()).grad.mul_(float("inf"))
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
end()
