"""Trainings with MMEngine's Runner as written for CUDA. They do not use fulldeck.

train_mmengine.py WORK_DIR CASE...: plain (batch norm), sync (SyncBN), amp (SyncBN and mixed precision), resume (from
sync's first epoch) on cards; cpu: one process that gets the batches of all ranks at once. Each writes
WORK_DIR/CASE.RANK.json."""
import json
import os
import sys

import torch
from mmengine.device import get_device
from mmengine.dist import get_comm_device, get_rank
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import Dataset

WORK, CASES = sys.argv[1], sys.argv[2:]
BATCH = 8  # total over all ranks


class Points(Dataset):
    """Samples of different scale, so that the statistics of a part of the batch differ from those of all of it."""

    metainfo = {}

    def __init__(self):
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(32, 6, generator=generator) * torch.arange(1, 33).float().view(-1, 1) / 8
        self.y = self.x.sum(1, keepdim=True).sin()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x, y, mode="tensor"):
        out = self.layers(x)
        return {"loss": nn.functional.mse_loss(out.float(), y)} if mode == "loss" else out


class Watch(Hook):
    def __init__(self):
        self.losses = []

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        value = outputs["loss"].detach().float().clone()
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(value)
            value /= torch.distributed.get_world_size()
        self.losses.append(float(value))


def train(case):
    on_cards = case != "cpu"
    torch.manual_seed(3)
    watch = Watch()
    folder = os.path.join(WORK, "sync" if case == "resume" else case)
    runner = Runner(
        model=Model(), work_dir=folder, experiment_name=case,
        train_dataloader=dict(dataset=Points(), batch_size=BATCH // int(os.environ.get("WORLD_SIZE", "1")), num_workers=0,
                              sampler=dict(type="DefaultSampler", shuffle=True), collate_fn=dict(type="default_collate")),
        train_cfg=dict(by_epoch=True, max_epochs=1 if case == "plain" else 2),
        optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.05, momentum=0.9), clip_grad=dict(max_norm=5.0), **(
            # Small enough that no step is skipped, and the losses can be compared.
            dict(type="AmpOptimWrapper", loss_scale=dict(init_scale=64.0)) if case == "amp" else dict(type="OptimWrapper"))),
        default_hooks=dict(checkpoint=dict(type="CheckpointHook", interval=1), logger=dict(type="LoggerHook", interval=2)),
        custom_hooks=[watch], launcher="pytorch" if on_cards else "none", env_cfg=dict(dist_cfg=dict(backend="nccl")),
        randomness=dict(seed=11), log_level="ERROR",
        resume=case == "resume", load_from=os.path.join(folder, "epoch_1.pth") if case == "resume" else None,
        cfg=dict(sync_bn="torch") if case in ("sync", "amp", "resume") else dict(case=case))
    runner.train()
    scaler = getattr(runner.optim_wrapper, "loss_scaler", None)
    seen = {
        "losses": watch.losses,
        "weights": [float(p.detach().double().sum()) for p in runner.model.parameters()],
        "device": str(next(runner.model.parameters()).device),
        "get_device": get_device(),
        "comm_device": str(get_comm_device()),
        "wrapper": type(runner.model).__name__,
        "scaling": None if scaler is None else scaler.is_enabled(),
        "norm": [type(m).__name__ for m in runner.model.modules() if "BatchNorm" in type(m).__name__],
    }
    with open(os.path.join(WORK, "{}.{}.json".format(case, get_rank())), "w") as out:
        json.dump(seen, out)


if __name__ == "__main__":
    if CASES != ["cpu"]:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    for each in CASES:
        train(each)
