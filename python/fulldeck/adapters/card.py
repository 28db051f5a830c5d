"""The card of this rank. Reads the launcher's environment, and queries torch only if that is free: it initializes
neither a driver nor a vendor's runtime, so that a program may still fork.

These functions are for adapters, which run after `import torch`."""
import functools
import importlib.util
import os
import sys

import torch

from fulldeck.adapters import probe, say_once

# If one of these exists, there may be a driver of NVIDIA (or AMD, whose cards torch calls cuda too).
CUDA_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")

real_device = torch.device

# Vendors' modules that are not named torch_KIND. Intel's cards need none: torch itself has torch.xpu.
MODULES = {"hpu": "habana_frameworks.torch", "xpu": "torch"}


# The launcher's value is constant, and every step needs it.
@functools.lru_cache(None)
def name():
    """The card as torch names it, "gcu:3"; None for a rank on the CPU."""
    return os.environ.get("FULLDECK_DEVICE") or None


def type_of(device):
    return device.partition(":")[0]


@functools.lru_cache(None)
def kind():
    """"gcu" for "gcu:3"; None without a card."""
    return type_of(name()) if name() else None


def index():
    """3 for "gcu:3", 0 for "gcu"; None without a card."""
    if not name():
        return None
    number = name().partition(":")[2]
    return int(number) if number.isdigit() else 0


def has_cuda():
    """Whether CUDA is, or may be, the right device in this process: a rank with a different card must not compute on a
    CUDA card that the machine also has."""
    if kind() not in (None, "cpu"):
        return kind() == "cuda"
    compiled = getattr(torch.cuda, "_is_compiled", lambda: hasattr(torch._C, "_cuda_getDeviceCount"))
    return bool(compiled()) and any(os.path.exists(path) for path in CUDA_FILES)


def is_foreign():
    """A card that torch does not call cuda: CUDA calls are redirected to it."""
    return kind() not in (None, "cpu", "cuda") and not has_cuda()


def is_simulated():
    """Whether the launcher assigned a card of FULLDECK_SIMULATE to this rank."""
    return kind() is not None and kind() == type_of(os.environ.get("FULLDECK_SIMULATE", ""))


def on_processors():
    """A rank without a card, on a machine without CUDA."""
    return kind() in (None, "cpu") and not has_cuda()


def device():
    """torch.device of the card; cpu without a card. Raises RuntimeError if torch does not know that kind of card."""
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
    """Simulated cards need no vendor's module: this reports why they could not be loaded."""
    from fulldeck import simulator

    reason = str(simulator.failure) if simulator.failure is not None else "they were not loaded (TORCH_DEVICE_BACKEND_AUTOLOAD=0?)"
    return RuntimeError("fulldeck: this rank's card {} is simulated, and there are no simulated cards in this process: {}".format(
        name(), reason.replace("fulldeck: ", "", 1)))


def vendor_module():
    return MODULES.get(kind(), "torch_" + (kind() or ""))


@functools.lru_cache(None)
def has_vendor_module():
    """Whether the software of the card's vendor is installed, which frameworks with support for the card need. Does not
    import the vendor's module."""
    if kind() == "xpu":
        return bool(getattr(torch, "xpu", None)) and torch.xpu._is_compiled()
    found = sys.modules.get(vendor_module())
    if found is not None:
        return not getattr(found, "__fulldeck_simulated__", False)
    try:
        spec = importlib.util.find_spec(vendor_module())
    except (ImportError, ValueError):  # the parent package is missing or half installed
        return False
    return spec is not None and not getattr(spec.loader, "fulldeck_simulated", False)


def module():
    """The counterpart of torch.cuda, such as torch.gcu. Raises RuntimeError if it does not exist."""
    found = getattr(torch, kind() or "", None)
    if found is None or not hasattr(found, "device_count"):
        device()  # more precise, if torch does not know the card at all
        if is_simulated():
            raise no_simulated_cards()
        raise RuntimeError("fulldeck: this rank's card is {}, and there is no torch.{}: import {} first.".format(
            name(), kind(), vendor_module()))
    return found


# Lists of the cards that are visible to a process: CUDA's, and the vendors'.
VISIBILITY = ("CUDA_VISIBLE_DEVICES", "TOPS_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "MUSA_VISIBLE_DEVICES",
              "SDAA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def started_with():
    """The environment that the launcher set; None if it cannot be read. A program may have changed its own since."""
    try:
        with open("/proc/self/environ", "rb") as file:
            return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in
                    (entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry)}
    except OSError:
        return None


def cuda_places():
    """The possible indices of this rank's CUDA card in this process. A program may set a different list of visible
    cards before it uses CUDA, which gives the card a new number; once CUDA is in use, the list has no effect. So both
    numbers are valid. If the new list does not contain the card, only the first one is."""
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
    """Detects a program that hides cards from itself, or shows itself more than the launcher did, and then indexes them
    by LOCAL_RANK: the index is applied twice. With CUDA that can be intended and works as long as the rank's card is in
    the new list; with other cards it is reported."""
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
    """Called before the program uses the card: the first call probes the card and makes it the current one unless the
    program has chosen one. "cuda" without a number then means the rank's own card, not the first."""
    global _entered
    if not _entered:
        probe.prove_once()
        module().set_device(index())
        _entered = True


def is_entered():
    return _entered


def choose(number):
    """The counterpart of torch.cuda.set_device: `number` is the card's number, or the device."""
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
    """gcu:3 for cuda:3 and gcu for cuda, for strings and torch.device; everything else is unchanged."""
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
