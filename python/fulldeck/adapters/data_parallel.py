"""DistributedDataParallel in a rank of `fulldeck run`: a module that is not on the rank's card is rejected with a
report, or moved there (--place); `device_ids` is corrected to match the module's device. The class remains torch's own,
and so do its subclasses."""
import functools
import inspect

from fulldeck.adapters import asked, card, fingerprints, say, say_once, trace


class Refused(RuntimeError):
    """The module is not where this rank trains."""


def adapt(torch):
    wrapper = torch.nn.parallel.DistributedDataParallel
    init = wrapper.__init__
    signature = inspect.signature(init)

    @functools.wraps(init)
    def wrap(self, *arguments, **named):
        call = signature.bind(self, *arguments, **named).arguments
        module = call.get("module")
        if not isinstance(module, torch.nn.Module):
            return init(self, *arguments, **named)
        trace.wrapped()
        if trace.is_on():
            trace.log_report(module)
        check_place(module)
        if not card.has_cuda():
            choose_device_ids(call, module)
        elif card.kind() in (None, "cpu") and all(parameter.device.type == "cpu" for parameter in module.parameters()):
            choose_device_ids(call, module)  # a rank on the CPU of a machine with CUDA
        try:
            init(**call)
        except Exception:
            if not trace.is_on():
                trace.log_report(module)
            raise
        fingerprints.watch(self)

    wrapper.__init__ = wrap
    return None


def check_place(module):
    """The module must be on the rank's card. A rank without a card has nothing to compare with."""
    if card.kind() in (None, "cpu"):
        return
    wanted = card.cuda_places()[-1] if card.kind() == "cuda" else card.device()
    wrong = trace.misplaced(module, wanted)
    if not wrong or (wanted.type == "cuda" and is_fit_for_cuda(module, wrong)):
        return
    if asked("FULLDECK_PLACE"):
        before = list(map(id, module.parameters()))
        module.to(wanted)
        say("{} It was moved to {} (--place).{}".format(
            wrong, wanted, "" if before == list(map(id, module.parameters())) else
            " WARNING: its parameters are new objects: an optimizer that was made before now trains nothing. Make it after the wrap"))
        return
    raise Refused("fulldeck: DistributedDataParallel is refused: {}\n{}".format(wrong, trace.report(module, wanted)))


def is_fit_for_cuda(module, wrong):
    """CUDA models may be spread over several cards, or be on a card other than the launcher's: some programs have their
    own scheme. torch handles the first case; the second is reported. A model on the CPU (B6) is rejected as elsewhere.
    """
    devices = {parameter.device for parameter in module.parameters()}
    if not devices or not all(device.type == "cuda" for device in devices):
        return not devices or len({device.type for device in devices}) > 1  # torch itself rejects several device types
    if len(devices) == 1 and not devices & set(card.cuda_places()):
        say_once("WARNING: B8: {} The model is on {}: two ranks may share that card while {} is idle. Use cuda:LOCAL_RANK, or fulldeck run "
                 "--place".format(wrong, next(iter(devices)), card.name()))
        return not asked("FULLDECK_PLACE")
    return True


def choose_device_ids(call, module):
    """torch accepts device_ids only for modules on a card; then they are the module's own card, and inputs are moved
    there."""
    given = {name: call[name] for name in ("device_ids", "output_device") if call.get(name) is not None}
    if not given:
        return
    first = next(module.parameters(), None)
    if first is None:
        return
    if first.device.type == "cpu":
        for name in given:
            call[name] = None
        say_once("DistributedDataParallel: {} left out: the module is on the CPU".format(
            " and ".join("{}={}".format(name, value) for name, value in given.items())))
        return
    here = first.device.index
    for name, value in given.items():
        numbers = [_number(each) for each in (value if isinstance(value, (list, tuple)) else [value])]
        if numbers == [here]:
            continue
        if name == "device_ids" and len(numbers) != 1:
            continue  # none, or several: torch reports that itself
        say_once("DistributedDataParallel: {} is {}, where the module is, and not {}".format(name, here, value))
        call[name] = [here] if name == "device_ids" else here


def _number(device):
    if isinstance(device, int):
        return device
    return getattr(card.real_device(card.redirect(device)) if isinstance(device, str) else device, "index", None)
