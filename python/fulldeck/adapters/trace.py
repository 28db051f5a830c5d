"""`fulldeck run --trace-ddp`: reports where each rank's model is just before it is wrapped, with a verdict and the fix;
and for a rank that ended without a wrap, how far it got. The same report as fulldeck::PlacementReport of the C++
runtime (docs/data-parallel.md)."""
import atexit
import os
import sys

from fulldeck.adapters import FINDER, asked, card, say

SHOWN = 5
MAX_VALUE_LENGTH = 120
# Variables that determine which card a rank gets.
VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES",
             "TOPS_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ECCL_BACKEND", "ECCL_DEVICE_TYPE",
             "FULLDECK_SIMULATE")

_phase = None
_wrapped = False
_pid = None


def is_on():
    return asked("FULLDECK_TRACE_DDP")


def phase(name):
    """How far this rank has come; printed at its end if no model was wrapped."""
    global _phase, _pid
    _phase = name
    if is_on() and _pid is None:
        _pid = os.getpid()
        atexit.register(_at_exit)


def wrapped():
    global _wrapped
    _wrapped = True


def _at_exit():
    if not _wrapped and _pid == os.getpid():  # a forked child is not a rank
        say("rank {}: ended without wrapping a model in DistributedDataParallel; its last phase: {}".format(
            os.environ.get("RANK", "?"), _phase))


def printable(text):
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


class Placement:
    """The devices of a module's tensors."""

    def __init__(self, module, wanted):
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.parameters = [(name, tensor) for name, tensor in module.named_parameters() if name not in ignored]
        self.buffers = [tensor for name, tensor in module.named_buffers() if name not in ignored]
        self.by_device = {}
        for _, tensor in self.parameters:
            self.by_device[str(tensor.device)] = self.by_device.get(str(tensor.device), 0) + 1
        self.elsewhere = sum(not is_on_device(tensor, wanted) for _, tensor in self.parameters)
        self.buffers_elsewhere = sum(not is_on_device(tensor, wanted) for tensor in self.buffers)
        self.on_host = sum(tensor.device.type == "cpu" for _, tensor in self.parameters)


def is_on_device(tensor, wanted):
    return tensor.device.type == wanted.type and (wanted.index is None or tensor.device.index in (wanted.index, None))


def misplaced(module, wanted):
    """One sentence about tensors that are not where the rank trains; empty if there are none."""
    placement = Placement(module, wanted)
    rank = os.environ.get("RANK", "?")
    if placement.elsewhere:
        return "{} of {} parameters are not on {}, the device of rank {}.".format(
            placement.elsewhere, len(placement.parameters), wanted, rank)
    if placement.buffers_elsewhere:
        return "{} of {} buffers are not on {}, the device of rank {}.".format(
            placement.buffers_elsewhere, len(placement.buffers), wanted, rank)
    return ""


def verdict(placement, wanted):
    if not placement.parameters:
        return "no parameters: nothing can be trained."
    if not placement.elsewhere and not placement.buffers_elsewhere:
        return ("case A: the device is right ({0}). If wrapping or training still fails, the module is not the cause: look at the backend "
                "(is it made for {0}?), at the batch, and at the library of the card's vendor.".format(wanted))
    if not placement.elsewhere:
        return "the parameters are on {}, but {} of {} buffers are not. Cure: model.to(device) moves both.".format(
            wanted, placement.buffers_elsewhere, len(placement.buffers))
    if placement.on_host == len(placement.parameters):
        return ("case B: the module is still on the CPU, and this rank trains on {}. Cure: model.to(device) before it is wrapped, and before "
                "the optimizer is made; or fulldeck run --place.".format(wanted))
    if len(placement.by_device) > 1:
        return ("case B: the module is spread over {} devices, and this rank trains on {}. Cure: model.to(device) before it is wrapped; look "
                "for parameters that are made after it was moved.".format(len(placement.by_device), wanted))
    return ("the module is on another card than this rank's {}. Cure: model.to(device); look for a device that is written into the program "
            "instead of taken from the rank.".format(wanted))


def report(module, wanted=None):
    """The report of several lines. Never raises."""
    lines = []
    try:
        wanted = card.device() if wanted is None else wanted
        placement = Placement(module, wanted)
        devices = list(placement.by_device)
        get = os.environ.get
        lines += [
            "placement of {} on rank {} of {} (local rank {}):".format(printable(type(module).__name__), get("RANK", "?"),
                                                                       get("WORLD_SIZE", "?"), get("LOCAL_RANK", "?")),
            "  wanted            {}".format(wanted),
            "  module            {}".format("–" if not devices else devices[0] if len(devices) == 1 else "{} devices".format(len(devices))),
            "  first parameter   {}".format(placement.parameters[0][1].device if placement.parameters else "–"),
            "  current devices   {}".format(current_devices(placement, wanted)),
            "  parameters        {} ({} elements): {}".format(
                len(placement.parameters), sum(tensor.numel() for _, tensor in placement.parameters),
                ", ".join("{} on {}".format(count, device) for device, count in sorted(placement.by_device.items())) or "none"),
        ]
        for name, tensor in placement.parameters[:SHOWN]:
            lines.append("    {}  {}  {}".format(printable(name), tensor.device, "[" + ", ".join(map(str, tensor.shape)) + "]"))
        if len(placement.parameters) > SHOWN:
            lines.append("    … and {} more".format(len(placement.parameters) - SHOWN))
        environment = " ".join("{}={}".format(name, printable(os.environ[name][:MAX_VALUE_LENGTH])) for name in VARIABLES if name in os.environ)
        lines += ["  environment       {}".format(environment or "none of the variables that place a rank is set"),
                  "  verdict           {}".format(verdict(placement, wanted))]
    except Exception as error:
        lines.append("  the report could not be finished: {}".format(printable(error)))
    return "\n".join(lines)


def current_devices(placement, wanted):
    """Queries only kinds that the module or the rank uses, so that no unused library is initialized."""
    import torch

    found = []
    for kind in sorted({device.partition(":")[0] for device in placement.by_device} | {wanted.type}):
        module = getattr(torch, kind, None)
        if kind in ("cpu", "meta") or not hasattr(module, "current_device"):
            continue
        try:
            found.append("{}:{}".format(kind, module.current_device()))
        except Exception:
            found.append("{} cannot be asked".format(kind))
    return ", ".join(found) or "cpu alone"


def log_report(module, wanted=None):
    for line in report(module, wanted).split("\n"):
        say(line)


def before_wrap(model):
    """Called by the lines that `fulldeck patch mmengine` adds, also in programs that fulldeck did not start. Prints the
    report once: in a rank that already traces, the wrapper itself does so shortly afterwards. Never raises."""
    try:
        if not (is_on() and FINDER in sys.meta_path):
            log_report(model, None if card.name() else device_of_this_process())
    except Exception as error:
        say("the report before the wrap could not be made: {}".format(printable(error)))


def device_of_this_process():
    """If no launcher assigned a card: the current card of the first kind that torch has, otherwise the CPU."""
    import torch

    for kind in ("cuda", "gcu", "npu", "mlu", "musa", "sdaa", "hpu", "xpu"):
        module = getattr(torch, kind, None)
        try:
            if module is not None and module.is_available() and module.device_count() > 0:
                return card.real_device(kind, module.current_device())
        except Exception:  # a driver that does not respond
            continue
    return card.real_device("cpu")
