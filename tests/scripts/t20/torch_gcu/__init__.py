"""A stand-in for tests, no vendor's code: the shape of Enflame's torch_gcu 1.10 for T20 (devices xla:N, collectives and
DistributedDataParallel of its own), on simulated cards. FAKE_ECCL: "missing" its init_process_group raises as where there is no ECCL,
"works" it begins (and reduces nothing), "one" it raises on rank 1 alone."""
__version__ = "1.10.0+2.5.136.stand_in"
__fulldeck_simulated__ = True  # so that the simulated cards do not take this for the vendor's

import torch

import fulldeck.simulator

fulldeck.simulator.load()


class JitRunMode:
    ASYNC, SAFEASYNC = 0, 1


def is_available():
    return device_count() > 0


def device_count():
    return torch.xla.device_count()


def set_device(number):
    torch.xla.set_device(number)


def current_device():
    return torch.xla.current_device()


def gcu_device(number=None):
    return torch.device("xla", current_device() if number is None else number)


def synchronize(device=None):
    torch.xla.synchronize(device)


def optimizer_step(optimizer, tensors=None, mode=JitRunMode.SAFEASYNC, model=None, device=None):
    optimizer.step()


def unlazy(tensors):
    pass


from torch_gcu import distributed, nn, utils  # noqa: E402,F401
