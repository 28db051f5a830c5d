"""Accelerate on the rank's card, with the settings that `accelerate launch` would have set. docs/python-frameworks.md

Accelerate chooses its device, its backend and its rank by fixed lists of cards. With an unlisted card, and on the CPU,
it silently treats every rank as rank 0 of 1: eight separate trainings in one folder. Here each rank gets the launcher's
values, and a state that contradicts them is rejected."""
import functools
import os

from fulldeck.adapters import NotKnown, accelerate_settings, card, loop, on_import, say, say_once

DEVICE = "ACCELERATE_TORCH_DEVICE"
NAMED = ("npu", "mlu", "musa", "sdaa", "hpu", "xpu")  # cards that Accelerate supports explicitly


def adapt(accelerate):
    major = str(getattr(accelerate, "__version__", "")).partition(".")[0]
    if major != "1":
        raise NotKnown("this is Accelerate {}, and 1.x is known".format(getattr(accelerate, "__version__", "without a version")))
    from accelerate import accelerator, state
    from accelerate.utils import modeling

    done = []
    foreign = card.is_foreign() and not (card.kind() in NAMED and card.has_vendor_module())
    if foreign:
        set_device(state)
        done.append("device {}".format(card.name()))
        allow_half_precision(accelerator)
        use_device_grad_scaler(accelerator, modeling)
        on_import("safetensors.torch", load_via_host)
    elif card.on_processors():
        barrier_on_cpu(state)
        if world() > 1:
            done.append("ranks on the processors")
    warn_dropped_precision(accelerator)
    report_loss(accelerator)
    reject_isolated_ranks(state, foreign)
    done += accelerate_settings.apply(accelerate)
    return "; ".join(done) or None


def world():
    number = os.environ.get("WORLD_SIZE", "1")
    return int(number) if number.isdigit() else 1


def set_device(state):
    chosen = os.environ.get(DEVICE)
    if chosen is None:
        os.environ[DEVICE] = card.name()
    elif chosen != card.name():
        say("warning: {}={} is followed, and this rank's card is {}".format(DEVICE, chosen, card.name()))

    original = state.PartialState._prepare_backend

    @functools.wraps(original)
    def _prepare_backend(self, cpu=False, sagemaker_dp=False, backend=None):
        if cpu or sagemaker_dp or int(os.environ.get("LOCAL_RANK", -1)) == -1:
            return original(self, cpu, sagemaker_dp, backend)
        card.enter()
        # A backend that the program named must be returned unchanged. "nccl" is Accelerate's name for cards;
        # init_process_group replaces it with the card's backend and reports that.
        return backend or "nccl", state.DistributedType.MULTI_GPU

    state.PartialState._prepare_backend = _prepare_backend


def barrier_on_cpu(state):
    """wait_for_everyone() names a card for its barrier; torch would use a card that this rank does not own, if the
    machine has one."""
    original = state.PartialState.wait_for_everyone

    @functools.wraps(original)
    def wait_for_everyone(self):
        if self.distributed_type == state.DistributedType.MULTI_CPU:
            state.torch.distributed.barrier()
        else:
            original(self)

    state.PartialState.wait_for_everyone = wait_for_everyone


def reject_isolated_ranks(state, foreign):
    original = state.PartialState.__init__

    @functools.wraps(original)
    def __init__(self, cpu=False, **options):
        is_new = state.PartialState._shared_state == {}
        if is_new and foreign and cpu:
            say("warning: the program asks Accelerate for the processors (cpu=True or ACCELERATE_USE_CPU), and gets them: {} stays idle. "
                "Meant so? Then: fulldeck run --devices cpu".format(card.name()))
            os.environ.pop(DEVICE, None)
        if is_new and not cpu and card.on_processors() and world() > 1:
            cpu = True
        original(self, cpu, **options)
        if is_new and world() > 1 and "LOCAL_RANK" in os.environ:
            check(self)

    state.PartialState.__init__ = __init__

    def check(state_object):
        rank = int(os.environ.get("RANK", "0"))
        if (state_object.num_processes, state_object.process_index) == (world(), rank):
            return
        seen = "process {} of {}".format(state_object.process_index, state_object.num_processes)
        device, backend = state_object.device, state_object.backend
        state.PartialState._reset_state()
        raise RuntimeError(
            "fulldeck: Accelerate takes this rank for {}, and it is rank {} of {}: every rank would train by itself, and all would write "
            "the same files. Its device is {}, its backend {}. Where the processors are meant: fulldeck run --devices cpu.".format(
                seen, rank, world(), device, backend))


def allow_half_precision(accelerator):
    """The constructor contains a list of cards for fp16, as a constant."""
    function = accelerator.Accelerator.__init__
    code = getattr(function, "__wrapped__", function).__code__
    lists = [value for value in code.co_consts if isinstance(value, tuple) and {"cuda", "npu"} <= set(value)]
    if not lists:
        say("warning: this Accelerate has no list of cards for fp16 where it is known to have one; fp16 may be refused")
        return
    constants = tuple(value + (card.kind(),) if value in lists else value for value in code.co_consts)
    getattr(function, "__wrapped__", function).__code__ = code.replace(co_consts=constants)


def warn_dropped_precision(accelerator):
    original = accelerator.Accelerator.__init__

    @functools.wraps(original)
    def __init__(self, *arguments, **options):
        original(self, *arguments, **options)
        if self.mixed_precision == "fp16" and self.device.type == "cpu":
            say_once("warning: mixed_precision fp16 does nothing on the processors, and Accelerate says nothing of it; bf16 works there")

    accelerator.Accelerator.__init__ = __init__


def report_loss(accelerator):
    """For the rank board. Steps are counted at the optimizer itself, which Accelerate steps only when gradients are
    synchronized."""
    original = accelerator.Accelerator.backward

    @functools.wraps(original)
    def backward(self, loss, **options):
        loop.quietly(loop.note_loss, loss)
        return original(self, loss, **options)

    accelerator.Accelerator.backward = backward


def use_device_grad_scaler(accelerator, modeling):
    import torch

    original = modeling.get_grad_scaler

    @functools.wraps(original)
    def get_grad_scaler(distributed_type=None, **options):
        if str(getattr(distributed_type, "value", distributed_type)) == "FSDP":
            return original(distributed_type, **options)
        return torch.amp.GradScaler(card.kind(), **options)

    modeling.get_grad_scaler = get_grad_scaler
    if getattr(accelerator, "get_grad_scaler", None) is original:
        accelerator.get_grad_scaler = get_grad_scaler


def load_via_host(safetensors):
    """load_state() reads weights directly to the device with a reader that has a list of devices too."""
    original = safetensors.load_file

    @functools.wraps(original)
    def load_file(filename, device="cpu", *arguments, **options):
        if str(device).partition(":")[0] not in (card.kind(), "cuda"):
            return original(filename, device, *arguments, **options)
        tensors = original(filename, "cpu", *arguments, **options)
        return {name: tensor.to(card.redirect(device)) for name, tensor in tensors.items()}

    safetensors.load_file = load_file
