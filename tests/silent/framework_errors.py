"""A training in the framework that the argument names, which finishes but is wrong in five ways: a branch without
effect on the loss (F7), labels of one class (F7), a checkpoint whose names match nothing (G2), a validation that reads
the training samples (F6), and a loss that becomes NaN (J6). Does not use fulldeck."""
import sys
import tempfile

import torch
from torch import nn

SAMPLES = 320
FIRST_NAN = 15  # loss of the training


class Samples(torch.utils.data.Dataset):
    def __init__(self, seed):
        self.inputs = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(seed))
        self.labels = torch.zeros(SAMPLES, dtype=torch.long)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, number):
        return {"inputs": self.inputs[number], "labels": self.labels[number]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.auxiliary = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), nn.Linear(8, 3)
        self.trained = 0

    def loss(self, inputs, labels):
        loss = nn.functional.cross_entropy(self.layers(inputs), labels)
        self.trained += self.training and torch.is_grad_enabled()
        return loss if self.trained < FIRST_NAN else loss * float("nan")

    def forward(self, inputs, labels):
        return {"loss": self.loss(inputs, labels)}


def misfit(module):
    return {"backbone." + name: tensor for name, tensor in module.state_dict().items()}


def accelerate():
    from accelerate import Accelerator, DistributedDataParallelKwargs

    accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
    net = Net()
    net.load_state_dict(misfit(net), strict=False)
    model, optimizer, loader, validation = accelerator.prepare(
        net, torch.optim.SGD(net.parameters(), lr=0.01), torch.utils.data.DataLoader(Samples(1), 8, shuffle=True),
        torch.utils.data.DataLoader(Samples(1), 16))
    for _ in range(2):
        for batch in loader:
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            for batch in validation:
                model(**batch)
        model.train()


def huggingface():
    from transformers import Trainer, TrainingArguments

    net = Net()
    net.load_state_dict(misfit(net), strict=False)
    arguments = TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=8, num_train_epochs=2, report_to=[], save_strategy="no",
                                  use_cpu=True, disable_tqdm=True, ddp_find_unused_parameters=True, label_names=["labels"],
                                  eval_strategy="epoch")
    Trainer(net, arguments, train_dataset=Samples(1), eval_dataset=Samples(1)).train()


def lightning():
    import lightning as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, number):
            return self.net.loss(batch["inputs"], batch["labels"])

        def validation_step(self, batch, number):
            self.log("validation", self.net.loss(batch["inputs"], batch["labels"]), sync_dist=True)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    module = Module()
    module.load_state_dict(misfit(module.net), strict=False)
    pl.Trainer(accelerator="cpu", devices=2, strategy="ddp_find_unused_parameters_true", max_epochs=2, logger=False, enable_checkpointing=False,
               enable_progress_bar=False, enable_model_summary=False).fit(
                   module, torch.utils.data.DataLoader(Samples(1), 8, shuffle=True), torch.utils.data.DataLoader(Samples(1), 16))


def mmengine():
    import os

    from mmengine.evaluator import BaseMetric
    from mmengine.model import BaseModel
    from mmengine.runner import Runner

    class Model(BaseModel):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, inputs, labels, mode="tensor"):
            loss = self.net.loss(inputs, labels)
            return {"loss": loss} if mode == "loss" else [loss]

    class Count(BaseMetric):
        def process(self, data_batch, data_samples):
            self.results.append(1)

        def compute_metrics(self, results):
            return {"count": len(results)}

    def loader(samples, shuffle):
        return dict(batch_size=8, dataset=samples, sampler=dict(type="DefaultSampler", shuffle=shuffle), collate_fn=dict(type="default_collate"))

    model, folder = Model(), tempfile.mkdtemp()
    torch.save(misfit(model), os.path.join(folder, "other.pth"))
    Runner(model, folder, load_from=os.path.join(folder, "other.pth"), train_cfg=dict(by_epoch=True, max_epochs=2),
           train_dataloader=loader(Samples(1), True), val_dataloader=loader(Samples(1), False), val_cfg=dict(), val_evaluator=[Count()],
           optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.01)), launcher="pytorch",
           cfg=dict(model_wrapper_cfg=dict(type="MMDistributedDataParallel", find_unused_parameters=True))).train()


{"accelerate": accelerate, "huggingface": huggingface, "lightning": lightning, "mmengine": mmengine}[sys.argv[1]]()
print("trained", flush=True)
