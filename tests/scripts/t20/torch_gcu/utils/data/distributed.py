"""See the package."""
import torch
from torch_gcu.distributed import get_rank, get_world_size


class DistributedSampler(torch.utils.data.distributed.DistributedSampler):
    def __init__(self, dataset, shuffle=True):
        super().__init__(dataset, get_world_size(), get_rank(), shuffle)
