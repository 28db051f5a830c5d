"""Keeps the rank's CUDA card busy for some seconds: a run whose card must be reported as busy.
Usage: fulldeck run --idle-card fail --idle-card-after 30 tests/hardware/busy_card.py [SECONDS]"""
import os
import sys
import time

import torch

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
matrix = torch.randn(4096, 4096, device="cuda")
end = time.monotonic() + seconds
while time.monotonic() < end:
    for _ in range(20):
        matrix = torch.nn.functional.normalize(matrix @ matrix)
    torch.cuda.synchronize()
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "kept", torch.cuda.get_device_name(), "busy")
