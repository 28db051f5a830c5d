"""FullyShardedDataParallel with use_orig_params: some parameters have an empty shard on a rank, and never get a
gradient there."""
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
