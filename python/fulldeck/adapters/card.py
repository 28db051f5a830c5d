"""Which card this rank has. Reads what the launcher said, and asks torch only where its answer costs nothing: neither a driver nor a
vendor's runtime is woken, so that a program may still fork.

`import torch` first: these functions are for adapters, which run when that has ended."""
import functools
import importlib.util
import os
import sys

import torch

from fulldeck.adapters import probe, say_once

# Where one of these is, a driver of NVIDIA's (or AMD's, whose cards torch calls cuda too) may be.
CUDA_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")

real_device = torch.device

# Modules of vendors that are not called torch_KIND. Intel's cards need none: torch itself has torch.xpu.
MODULES = {"hpu": "habana_frameworks.torch", "xpu": "torch"}


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
    """Whether CUDA is, or may be, the right thing in this process: a rank whose card is another one must not compute on a CUDA card
    that is in the machine too."""
    if kind() not in (None, "cpu"):
        return kind() == "cuda"
    compiled = getattr(torch.cuda, "_is_compiled", lambda: hasattr(torch._C, "_cuda_getDeviceCount"))
    return bool(compiled()) and any(os.path.exists(path) for path in CUDA_FILES)


def is_foreign():
    """A card that torch does not call cuda: what was written for CUDA is redirected to it."""
    return kind() not in (None, "cpu", "cuda") and not has_cuda()


def is_simulated():
    """Whether the launcher gave this rank a card of FULLDECK_SIMULATE."""
    return kind() is not None and kind() == type_of(os.environ.get("FULLDECK_SIMULATE", ""))


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
        if is_simulated():
            raise no_simulated_cards() from None
        raise RuntimeError("fulldeck: this rank's card is {}, and torch {} knows no device of that name: the module of the card's "
                           "vendor ({}) is not installed or was not imported.".format(
                               name(), torch.__version__, vendor_module())) from error


def no_simulated_cards():
    """No vendor's module is missing: the simulated cards could not be loaded, and why."""
    from fulldeck import simulator

    reason = str(simulator.failure) if simulator.failure is not None else "they were not loaded (TORCH_DEVICE_BACKEND_AUTOLOAD=0?)"
    return RuntimeError("fulldeck: this rank's card {} is simulated, and there are no simulated cards in this process: {}".format(
        name(), reason.replace("fulldeck: ", "", 1)))


def vendor_module():
    return MODULES.get(kind(), "torch_" + (kind() or ""))


@functools.lru_cache(None)
def has_vendor_module():
    """Whether the software of the card's vendor is installed, as frameworks that have branches for the card need it. The vendor's
    module itself is not imported."""
    if kind() == "xpu":
        return bool(getattr(torch, "xpu", None)) and torch.xpu._is_compiled()
    found = sys.modules.get(vendor_module())
    if found is not None:
        return not getattr(found, "__fulldeck_simulated__", False)
    try:
        spec = importlib.util.find_spec(vendor_module())
    except (ImportError, ValueError):  # the package above is missing or half installed
        return False
    return spec is not None and not getattr(spec.loader, "fulldeck_simulated", False)


def module():
    """What torch.cuda is for CUDA: torch.gcu. Raises RuntimeError where there is none."""
    found = getattr(torch, kind() or "", None)
    if found is None or not hasattr(found, "device_count"):
        device()  # tells more, where torch does not know the card at all
        if is_simulated():
            raise no_simulated_cards()
        raise RuntimeError("fulldeck: this rank's card is {}, and there is no torch.{}: import {} first.".format(
            name(), kind(), vendor_module()))
    return found


# Lists of the cards that a process may see: CUDA's, and the vendors'.
VISIBILITY = ("CUDA_VISIBLE_DEVICES", "TOPS_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "MUSA_VISIBLE_DEVICES",
              "SDAA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def started_with():
    """The environment that the launcher gave; None where it cannot be read. A program may have changed its own since."""
    try:
        with open("/proc/self/environ", "rb") as file:
            return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in
                    (entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry)}
    except OSError:
        return None


def cuda_places():
    """Where this rank's CUDA card can be in this process. A program may give itself another list of visible cards before it uses CUDA, in
    which the card has another number, and after that the list counts no more: both numbers are right. Without the card in the new list
    there is the first one only."""
    places = [real_device("cuda", index())]
    before, now = (started_with() or {}).get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_VISIBLE_DEVICES")
    if before != now and now is not None:
        shown = [entry.strip() for entry in now.split(",")]
        given = [entry.strip() for entry in before.split(",")] if before is not None else None
        entry = str(index()) if given is None else given[index()] if index() < len(given) else None
        if entry in shown:
            places.append(real_device("cuda", shown.index(entry)))
    return places


def check_visibility():
    """A program that hides cards from itself, or shows itself more than the launcher did, and then counts them by LOCAL_RANK, counts twice.
    Where the cards are CUDA's that can be meant and work, as long as the rank's card is in the new list; elsewhere it is reported."""
    if kind() in (None, "cpu"):
        return
    started = started_with()
    if started is None:
        return
    if kind() == "cuda":
        before, now = started.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_VISIBLE_DEVICES")
        if before != now and now is not None and len(cuda_places()) == 1:
            say_once("WARNING: B9: the program has set CUDA_VISIBLE_DEVICES={}; the launcher had {}. This rank's card {} is not in that list: it "
                     "trains on another rank's card, or on none. Leave the variable alone, and take the card by LOCAL_RANK={}".format(
                         now, "not set it" if before is None else "set it to " + before, name(), os.environ.get("LOCAL_RANK")))
        return
    for variable in VISIBILITY:
        before = started.get(variable)
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
        kind_requested, colon, number = wanted.partition(":")
        if kind_requested != "cuda":
            return wanted
        enter()
        return kind() + colon + number
    if isinstance(wanted, real_device) and wanted.type == "cuda":
        enter()
        return real_device(kind()) if wanted.index is None else real_device(kind(), wanted.index)
    return wanted
