"""FullyShardedDataParallel with use_orig_params: a rank has whole parameters of which its part is empty, and which never get a gradient there."""
from common import *
from torch.distributed.fsdp import FullyShardedDataParallel

start()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
model = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for inputs, labels in batches(data()):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
