"""A compiled optimizer step, in a project that turns warnings into errors."""
import warnings

from common import *

start()
warnings.simplefilter("error", UserWarning)
model = DistributedDataParallel(net())
optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
step = torch.compile(lambda: optimizer.step(), backend="eager")
for inputs, labels in batches(data()):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    step()
    optimizer.zero_grad()
end()
