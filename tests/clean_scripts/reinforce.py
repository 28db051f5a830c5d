"""A policy gradient whose reward is not reached in the first episodes: until then every gradient is exactly zero. Of
its two optimizers, the other one trains a value function from the first step on."""
from common import *

start()
torch.manual_seed(rank)
policy = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)))
value = DistributedDataParallel(nn.Linear(4, 1))
optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in (policy, value)]
for episode in range(60):
    states = torch.randn(10, 4)
    chosen = torch.distributions.Categorical(logits=policy(states))
    reward = torch.full((10,), float(episode >= 35))
    (-(chosen.log_prob(chosen.sample()) * reward).mean()).backward()
    (value(states).squeeze(1) - reward).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
end()
