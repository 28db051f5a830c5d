"""An EMA copy of the weights that is evaluated on other data."""
import copy

from common import *

start()
student = net()
model = DistributedDataParallel(student)
average = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in batches(data()):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), student.parameters()):
            slow.lerp_(fast, 0.01)
average.eval()
with torch.inference_mode():
    for inputs, labels in DataLoader(data(seed=2), 32):
        average(inputs)
end()
