"""Which card this rank has. Reads what the launcher said, and asks torch only where its answer costs nothing: neither a driver nor a
vendor's runtime is woken, so that a program may still fork.

`import torch` first: these functions are for adapters, which run when that has ended."""
import functools
import os

import torch

from fulldeck.adapters import probe, say_once

# Where one of these is, a driver of NVIDIA's (or AMD's, whose cards torch calls cuda too) may be.
CUDA_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")

real_device = torch.device


# What the launcher said does not change, and every step asks for it.
@functools.lru_cache(None)
def name():
    """The card as torch calls it, "gcu:3"; None for a rank on the processors."""
    return os.environ.get("FULLDECK_DEVICE") or None


def type_of(device):
    return device.partition(":")[0]


@functools.lru_cache(None)
def kind():
    """"gcu" of "gcu:3"; None without a card."""
    return type_of(name()) if name() else None


def index():
    """3 of "gcu:3", 0 of "gcu"; None without a card."""
    if not name():
        return None
    number = name().partition(":")[2]
    return int(number) if number.isdigit() else 0


def has_cuda():
    """Whether CUDA is, or may be, the right thing in this process. Then nothing of it is touched."""
    if kind() == "cuda":
        return True
    compiled = getattr(torch.cuda, "_is_compiled", lambda: hasattr(torch._C, "_cuda_getDeviceCount"))
    return bool(compiled()) and any(os.path.exists(path) for path in CUDA_FILES)


def is_foreign():
    """A card that torch does not call cuda: what was written for CUDA is redirected to it."""
    return kind() not in (None, "cpu", "cuda") and not has_cuda()


def on_processors():
    """A rank that was given no card, on a machine without CUDA."""
    return kind() in (None, "cpu") and not has_cuda()


def device():
    """torch.device of the card, cpu without one. Raises RuntimeError where torch does not know that kind of card."""
    if not name():
        return real_device("cpu")
    try:
        return real_device(name())
    except RuntimeError as error:
        raise RuntimeError("fulldeck: this rank's card is {}, and torch {} knows no device of that name: the module of the card's "
                           "vendor ({}) is not installed or was not imported.".format(
                               name(), torch.__version__, vendor_module())) from error


def vendor_module():
    return "torch_" + (kind() or "")


def module():
    """What torch.cuda is for CUDA: torch.gcu. Raises RuntimeError where there is none."""
    found = getattr(torch, kind() or "", None)
    if found is None or not hasattr(found, "device_count"):
        device()  # tells more, where torch does not know the card at all
        raise RuntimeError("fulldeck: this rank's card is {}, and there is no torch.{}: import {} first.".format(
            name(), kind(), vendor_module()))
    return found


# Lists of the cards that a process may see: CUDA's, and the vendors'.
VISIBILITY = ("CUDA_VISIBLE_DEVICES", "TOPS_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "MUSA_VISIBLE_DEVICES",
              "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def check_visibility():
    """A program that hides cards from itself, or shows itself more than the launcher did, and then counts them by LOCAL_RANK, counts twice.
    Where the cards are CUDA's that can be meant and work; elsewhere it is said."""
    if not is_foreign():
        return
    try:
        with open("/proc/self/environ", "rb") as file:
            started = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    except OSError:
        return
    for variable in VISIBILITY:
        before = started.get(variable.encode())
        before = None if before is None else before.decode("utf-8", "replace")
        now = os.environ.get(variable)
        if before != now:
            say_once("WARNING: B9: the program {}; the launcher had {}. This rank has LOCAL_RANK={} and the card {}: a number behind cuda: counts "
                     "the cards that the launcher gave, and is not counted twice. Leave the variable alone".format(
                         "has deleted " + variable if now is None else "has set {}={}".format(variable, now),
                         "not set it" if before is None else "set {}={}".format(variable, before), os.environ.get("LOCAL_RANK"), name()))


_entered = False


def enter():
    """To be called before the card is used for the program: the first time it is proven, and becomes the current one unless the program
    has chosen one. Where it says "cuda" without a number it means its own card and not the first."""
    global _entered
    if not _entered:
        probe.prove_once()
        module().set_device(index())
        _entered = True


def is_entered():
    return _entered


def choose(number):
    """What torch.cuda.set_device does: `number` is the card's, or the device."""
    global _entered
    probe.prove_once()
    module().set_device(number)
    _entered = True
    if module().current_device() != index():
        say_once("warning: the program chose {}:{} with set_device, and this rank's card is {}: two ranks may share a card".format(
            kind(), module().current_device(), name()))


def current():
    """"gcu:3": the current card."""
    enter()
    return "{}:{}".format(kind(), module().current_device())


def redirect(wanted):
    """gcu:3 of cuda:3 and gcu of cuda, for strings and torch.device; everything else as it is."""
    if isinstance(wanted, str):
        asked, colon, number = wanted.partition(":")
        if asked != "cuda":
            return wanted
        enter()
        return kind() + colon + number
    if isinstance(wanted, real_device) and wanted.type == "cuda":
        enter()
        return real_device(kind()) if wanted.index is None else real_device(kind(), wanted.index)
    return wanted
