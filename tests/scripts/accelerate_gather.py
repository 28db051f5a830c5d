"""Written like a script for `accelerate launch`: a few training steps, then gathers the losses of all ranks."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
torch.manual_seed(0)
features = torch.randn(64, 4)
loader = DataLoader(TensorDataset(features, features.sum(dim=1, keepdim=True)), batch_size=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
seen = 0
for inputs, targets in loader:
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    seen += len(inputs)
everybody = accelerator.gather(torch.tensor([accelerator.process_index]))
weights = accelerator.gather(torch.stack([parameter.detach().double().sum() for parameter in model.parameters()]).sum().reshape(1))
print("process {} of {} on {}: saw {} samples, gathered {}, weights agree {}\n".format(
    accelerator.process_index, accelerator.num_processes, accelerator.device.type, seen, everybody.tolist(),
    bool((weights == weights[0]).all())), end="", flush=True)
accelerator.end_training()
