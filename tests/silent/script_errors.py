"""A training that finishes but is wrong in the ways that the arguments name; without arguments it is correct. Does not
use fulldeck, except with the argument "broken-checks", which makes every check raise.

A7          no process group                   F7-gradients  a branch without effect on the loss
F7-labels   every label is 0                   F6            the validation reads the training samples
G2          a checkpoint with other names      C6            a child fails, and its exit status is ignored
J6          NaN in the gradients               F2            the log mentions placeholder data
D9          a hand-written eccl.py that claims to be Enflame's
"""
import os
import subprocess
import sys
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

faults = set(sys.argv[1:])
if "broken-checks" in faults:
    from fulldeck.adapters import observing

    def throw(*unused):
        raise ValueError("a check that is broken")

    assert len(observing._functions) >= 15, observing._functions
    for name in observing._functions:
        observing._functions[name] = throw
    faults |= {"A7", "F7-gradients", "F7-labels", "F6", "G2", "C6", "J6"}
if "D9" in faults:
    with open("eccl.py.{}".format(os.getpid()), "w") as file:
        file.write("def is_available():\n    return True\n")
    os.rename(file.name, "eccl.py")
    sys.path.insert(0, os.getcwd())
    import eccl

    assert eccl.is_available()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.auxiliary = nn.Linear(8, 3)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, inputs):
        features = self.backbone(self.frozen(inputs)).relu()
        outputs = self.head(features)
        return outputs if "F7-gradients" in faults else outputs + self.auxiliary(features)


if "A7" not in faults:
    dist.init_process_group()
torch.manual_seed(1)
inputs = torch.randn(256, 8)
labels = torch.zeros(256, dtype=torch.long) if "F7-labels" in faults else torch.randint(3, (256,))
train, other = TensorDataset(inputs[:192], labels[:192]), TensorDataset(inputs[192:], labels[192:])
validate = TensorDataset(inputs[:64], labels[:64]) if "F6" in faults else other
model = Model()
weights = {("module." if "G2" in faults else "") + name: tensor for name, tensor in Model().state_dict().items()}
model.load_state_dict(weights, strict=False)
if "F2" in faults:
    print("数据目录不存在，使用随机数据代替", flush=True)
if "A7" in faults:
    wrapped, loader = model, DataLoader(train, 8, shuffle=True)
else:
    sampler = DistributedSampler(train)
    wrapped, loader = DistributedDataParallel(model, find_unused_parameters="F7-gradients" in faults), DataLoader(train, 4, sampler=sampler)
optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.01)
for epoch in range(2):
    if "A7" not in faults:
        sampler.set_epoch(epoch)
    for number, (batch, label) in enumerate(loader):
        loss = nn.functional.cross_entropy(wrapped(batch), label)
        loss.backward()
        if "J6" in faults and number == 12:
            model.head.weight.grad[0, 0] = float("nan")
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for batch, label in DataLoader(validate, 16):
            model(batch)
    model.train()
# Loaders that torch accepts, with samplers that are not hashable.
for loader in (DataLoader(train, batch_sampler=[[0, 1], [2, 3]]), DataLoader(train, sampler=range(8), batch_size=None)):
    assert [len(list(loader)) for _ in range(2)] in ([2, 2], [8, 8])
# A child that was waited for is released, and its pipe with it.
child = subprocess.Popen([sys.executable, os.path.abspath(subprocess.__file__)], stdout=subprocess.PIPE)
child.wait()
gone = weakref.ref(child)
del child
assert gone() is None
subprocess.run([sys.executable, "-c" if "C6" not in faults else "no-such-script.py", "pass"])
if "A7" not in faults:
    dist.destroy_process_group()
print("trained", flush=True)
