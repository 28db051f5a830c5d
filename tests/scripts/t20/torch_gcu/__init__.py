"""A stand-in for tests, without vendor code: the API of Enflame's torch_gcu 1.10 for T20 (devices xla:N, its own
collectives and DistributedDataParallel), on simulated cards. FAKE_ECCL: with "missing" its init_process_group raises as
without ECCL, with "works" it succeeds (and reduces nothing), with "one" it raises only on rank 1."""
__version__ = "1.10.0+2.5.136.stand_in"
__fulldeck_simulated__ = True  # so that the simulated cards do not mistake this for the vendor's

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
