"""One rank on a simulated card: settings that the adapters ignore are supported, or reported once. Prints a line for
each successful check; reports go to the rank's log."""
import datetime
import os

import torch
import torch.distributed as dist

KIND = os.environ["FULLDECK_DEVICE"].split(":")[0]


def refused(action, error):
    try:
        action()
    except error as output:
        return str(output)
    raise AssertionError("nothing was raised")


# Classes of the program keep their methods, and their constructor arguments are redirected to the card.
class Stream(torch.cuda.Stream):
    def label(self):
        return "mine"


class Generator(torch.Generator):
    seeds = 0

    def manual_seed(self, seed):
        self.seeds += 1
        return super().manual_seed(seed)


class Event(torch.cuda.Event):
    def __init__(self, *arguments, **named):
        super().__init__()
        self.named = named


stream, generator, event = Stream(), Generator(device="cuda"), Event(enable_timing=True)
assert type(stream) is Stream and stream.label() == "mine" and isinstance(stream, torch.cuda.Stream) and stream.device.type == KIND
assert issubclass(Stream, torch.cuda.Stream) and issubclass(Generator, torch.Generator)
generator.manual_seed(3)
assert type(generator) is Generator and generator.seeds == 1 and generator.device.type == KIND
assert torch.rand(2, generator=generator, device="cuda").device.type == KIND
event.record(stream)
assert type(event) is Event and event.named == {"enable_timing": True}
print("classes")

# Settings of CUDA's libraries: each is set twice and reported once; a setting that does not change is not reported.
for _ in range(2):
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = False
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.enabled = True
    torch.backends.cudnn.enabled = False
    torch.backends.cudnn.enabled = True
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        assert torch.backends.cudnn.benchmark is False and torch.backends.cudnn.deterministic is True
    torch.backends.cuda.enable_flash_sdp(True)
    torch.backends.cuda.enable_math_sdp(enabled=True)
assert torch.backends.cudnn.benchmark is True and torch.backends.cudnn.enabled is True
torch.backends.cuda.matmul.allow_tf32 = False
torch.set_float32_matmul_precision("highest")
for _ in range(2):
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(enabled=False)
    if hasattr(torch.backends.cuda.matmul, "allow_fp16_accumulation"):
        torch.backends.cuda.matmul.allow_fp16_accumulation = True
assert torch.get_float32_matmul_precision() == "high" and not torch.backends.cuda.flash_sdp_enabled()
if hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # then the older name can be set, but not read
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.cuda.matmul.allow_tf32 = False
print("settings")

dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=70))
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=71))
dist.init_process_group()
assert "twice" in refused(lambda: dist.init_process_group("cpu:gloo"), ValueError)
for _ in range(2):
    dist.new_group([0], backend="nccl")
print("groups")

# The recorder of collectives ends with exactly one line.
from fulldeck.adapters import recorder  # noqa: E402

recorder._started.look = lambda: 1 / 0
recorder._started.thread.join(30)
assert not recorder._started.thread.is_alive()
print("recorder")

# J1 cannot compare data outside host memory; J3 detects positions, not only sums.
from fulldeck.adapters import fingerprints  # noqa: E402

keep = type("Wrapper", (), {})()
fingerprints._watched[keep] = None
for batch in ("text", {"x": torch.ones(2, device="cuda")}, torch.ones(2, device="cuda")):
    fingerprints._observe_batch(torch, batch, 0)
del fingerprints._watched[keep]


def hash_of(tensor):
    holder = torch.nn.Module()
    holder.weight = torch.nn.Parameter(tensor, requires_grad=False)
    return fingerprints.hash_of(torch, holder)


for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.complex64):
    whole = torch.arange(150000).to(dtype)
    for swapped in ((0, 1), (3, 70003), (5, 131077), (149998, 149999)):
        other = whole.clone()
        other[list(swapped)] = whole[list(swapped[::-1])]
        if not torch.equal(whole, other):
            assert hash_of(other) != hash_of(whole), (dtype, swapped)
    assert hash_of(whole) == hash_of(whole.clone()) == hash_of(whole.cuda()), dtype
compensated = torch.zeros(8, dtype=torch.int32)
compensated[:3] = torch.tensor([1, -2, 1])
assert len({hash_of(compensated), hash_of(compensated.roll(1)), hash_of(torch.zeros(8, dtype=torch.int32))}) == 3
print("fingerprints")
dist.destroy_process_group()
