"""No optimizer: loads weights, with a different head, and evaluates them."""
from common import *

start()
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
weights = nn.Sequential(nn.Linear(8, 16), nn.ReLU()).state_dict()
model.load_state_dict(weights, strict=False)
model.eval()
right = torch.zeros(1)
with torch.no_grad():
    for inputs, labels in DataLoader(data(), 8, sampler=DistributedSampler(data(), shuffle=False)):
        right += (model(inputs).argmax(1) == labels).sum()
dist.all_reduce(right)
end()
