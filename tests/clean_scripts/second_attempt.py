"""A checkpoint with a prefix: the first attempt to load it matches nothing, the second one succeeds. Queries its
environment through children that may fail."""
import subprocess
import sys

from common import *

start()
inner = net()
saved = {"module." + name: tensor for name, tensor in net().state_dict().items()}
if inner.load_state_dict(saved, strict=False).missing_keys:
    inner.load_state_dict({name[len("module."):]: tensor for name, tensor in saved.items()}, strict=False)
subprocess.run([sys.executable, "-c", "import no_such_module"], stderr=subprocess.DEVNULL)
subprocess.run(["git", "rev-parse", "HEAD"], cwd="/", stderr=subprocess.DEVNULL)
server = subprocess.Popen([sys.executable, "-m", "http.server", "0"], stdout=subprocess.DEVNULL)
server.terminate()
server.wait()
model = DistributedDataParallel(inner)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in batches(data()):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
