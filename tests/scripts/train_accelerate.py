"""A training with Accelerate as written for CUDA. Does not use fulldeck.

train_accelerate.py WORK_DIR [fp16]: three epochs with accumulation and clipping; after the second the state is saved,
loaded again, and the training continues. Writes WORK_DIR/RANK.json."""
import json
import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORK = sys.argv[1]
precision = sys.argv[2] if len(sys.argv) > 2 else None

accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision=precision)
set_seed(5)
generator = torch.Generator().manual_seed(7)
x = torch.randn(32, 6, generator=generator)
y = x.sum(1, keepdim=True).sin()
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
loader = DataLoader(TensorDataset(x, y), batch_size=4 // accelerator.num_processes)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)


def epoch():
    losses, norms = [], []
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            with accelerator.autocast():
                loss = nn.functional.mse_loss(model(inputs).float(), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norms.append(float(accelerator.clip_grad_norm_(model.parameters(), 0.5)))
            optimizer.step()
            optimizer.zero_grad()
        losses.append(float(accelerator.gather(loss.detach().reshape(1)).mean()))
    return losses, norms


first = epoch()
state = os.path.join(WORK, "state")
accelerator.save_state(state)
second = epoch()
accelerator.load_state(state)
again = epoch()
accelerator.wait_for_everyone()
with open(os.path.join(WORK, "{}.json".format(accelerator.process_index)), "w") as out:
    json.dump({"first": first, "second": second, "again": again, "device": str(next(model.parameters()).device),
               "accelerator_device": str(accelerator.device), "type": str(accelerator.distributed_type.value),
               "process": [accelerator.process_index, accelerator.num_processes, accelerator.local_process_index],
               "model": type(model).__name__, "precision": accelerator.mixed_precision, "dynamo": os.environ.get("ACCELERATE_DYNAMO_BACKEND"),
               "scaling": None if accelerator.scaler is None else accelerator.scaler.is_enabled()}, out)
accelerator.end_training()
