"""MMEngine's Runner with separate loaders for training and validation."""
import sys
import tempfile

import torch
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch.utils.data import Dataset


class Points(Dataset):
    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.inputs, self.labels = torch.randn(128, 8, generator=generator), torch.randint(3, (128,), generator=generator)

    def __len__(self):
        return 128

    def __getitem__(self, number):
        return {"inputs": self.inputs[number], "labels": self.labels[number]}


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    def forward(self, inputs, labels, mode="tensor"):
        outputs = self.layers(inputs)
        return {"loss": torch.nn.functional.cross_entropy(outputs, labels)} if mode == "loss" else [outputs]


class Count(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results.append(1)

    def compute_metrics(self, results):
        return {"count": len(results)}


def loader(seed, shuffle):
    return dict(batch_size=4, dataset=Points(seed), sampler=dict(type="DefaultSampler", shuffle=shuffle), collate_fn=dict(type="default_collate"))


Runner(Model(), sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(), train_dataloader=loader(1, True), val_dataloader=loader(2, False),
       train_cfg=dict(by_epoch=True, max_epochs=2), val_cfg=dict(), val_evaluator=[Count()],
       optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.01)), launcher="pytorch").train()
print("trained", flush=True)
