"""torch.gcu (npu, mlu, musa, sdaa, hpu): the device module of the simulated cards, the counterpart of torch.cuda.
Registered by fulldeck.simulator; unusable before that."""
import collections
import contextlib
import ctypes

import torch

_NAME = None
_plugin = None
# torch.utils.checkpoint checks it before it saves the random state.
_initialized = True

Stream = torch.Stream
Event = torch.Event
DeviceProperties = collections.namedtuple("DeviceProperties", "name total_memory multi_processor_count major minor")


def start(name, plugin):
    global _NAME, _plugin
    _NAME, _plugin = name, plugin


def _get_device_index(device=None, optional=True, allow_cpu=False):
    """0 for "gcu:0", torch.device("gcu", 0) and 0; the current card for None and "gcu"."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        return current_device() if device < 0 else device
    device = torch.device(device)
    if device.type != _NAME:
        raise ValueError("Expected a {} device, but got: {}".format(_NAME, device))
    return current_device() if device.index is None else device.index


def _lazy_init():
    pass


init = _lazy_init


def is_initialized():
    return True


def _is_in_bad_fork():
    return False


def is_available():
    return device_count() > 0


def device_count():
    return _plugin.fulldeck_simulator_cards()


def current_device():
    return torch._C._accelerator_getDeviceIndex()


def set_device(device):
    torch._C._accelerator_setDeviceIndex(_get_device_index(device))


def _exchange_device(device):
    return torch._C._accelerator_exchangeDevice(device) if device >= 0 else current_device()


_maybe_exchange_device = _exchange_device


class device:
    """Context manager that makes the card the current one."""

    def __init__(self, device):
        self.idx = _get_device_index(device)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = current_device()
        set_device(self.idx)

    def __exit__(self, *unused):
        set_device(self.prev_idx)
        return False


class device_of(device):
    """The same for the card of a tensor; no effect for a tensor of another device."""

    def __init__(self, tensor):
        super().__init__(tensor.device.index if tensor.device.type == _NAME else None)


def get_device_name(device=None):
    return get_device_properties(device).name


def get_device_capability(device=None):
    return (0, 0)


def get_device_properties(device=None):
    return DeviceProperties("simulated " + _NAME, _figures(device).total, 1, 0, 0)


def can_device_access_peer(device, peer):
    return True


def synchronize(device=None):
    torch._C._accelerator_synchronizeDevice(_get_device_index(device))


# Streams and events: a simulated card has no queue, so all work is done when the call returns.
def current_stream(device=None):
    return torch._C._accelerator_getStream(_get_device_index(device))


def default_stream(device=None):
    kind = current_stream(device).device_type
    return torch.Stream(stream_id=0, device_index=_get_device_index(device), device_type=kind)


def set_stream(stream):
    if stream is not None:
        torch._C._accelerator_setStream(stream)


@contextlib.contextmanager
def stream(stream):
    if stream is None:
        yield
        return
    before_card, before = current_device(), current_stream(stream.device_index)
    set_device(stream.device_index)
    set_stream(stream)
    try:
        yield
    finally:
        set_stream(before)
        set_device(before_card)


# Random numbers
def get_rng_state(device=None):
    card = _get_device_index(device)
    size = _plugin.fulldeck_simulator_get_state(card, None, 0)
    if size == 0:
        raise RuntimeError("There is no device {}:{}".format(_NAME, card))
    state = torch.empty(size, dtype=torch.uint8, device="cpu")
    _plugin.fulldeck_simulator_get_state(card, state.data_ptr(), size)
    return state


def set_rng_state(new_state, device=None):
    card = _get_device_index(device)
    state = new_state.detach().to("cpu", torch.uint8).contiguous()
    if _plugin.fulldeck_simulator_set_state(card, state.data_ptr(), state.numel()) != 0:
        raise RuntimeError("This is no state of a generator of {}:{}".format(_NAME, card))


def get_rng_state_all():
    return [get_rng_state(card) for card in range(device_count())]


def set_rng_state_all(new_states):
    for card, state in enumerate(new_states):
        set_rng_state(state, card)


def manual_seed(seed):
    _plugin.fulldeck_simulator_set_seed(current_device(), int(seed) & 0xFFFFFFFFFFFFFFFF)


def manual_seed_all(seed):
    for card in range(device_count()):
        _plugin.fulldeck_simulator_set_seed(card, int(seed) & 0xFFFFFFFFFFFFFFFF)


def seed():
    import secrets

    chosen = secrets.randbits(53)
    manual_seed(chosen)
    return chosen


def seed_all():
    import secrets

    manual_seed_all(secrets.randbits(53))


def initial_seed():
    return _plugin.fulldeck_simulator_seed(current_device())


# Memory: there is no caching allocator, so reserved memory equals allocated memory.
def _figures(device=None):
    from fulldeck.simulator import Figures

    found = Figures()
    card = _get_device_index(device)
    if _plugin.fulldeck_simulator_memory(card, ctypes.byref(found)) != 0:
        raise RuntimeError("There is no device {}:{}".format(_NAME, card))
    return found


def memory_allocated(device=None):
    return _figures(device).held


def max_memory_allocated(device=None):
    return _figures(device).peak


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(device=None):
    _plugin.fulldeck_simulator_reset_peak(_get_device_index(device))


reset_max_memory_allocated = reset_peak_memory_stats


def reset_accumulated_memory_stats(device=None):
    pass


def memory_stats(device=None):
    figures = _figures(device)
    return {"{}_bytes.all.{}".format(kind, when): value for kind in ("allocated", "reserved", "active")
            for when, value in (("current", figures.held), ("peak", figures.peak))}


def mem_get_info(device=None):
    figures = _figures(device)
    return figures.free, figures.total


def empty_cache():
    pass


def ipc_collect():
    pass


# Types by name, such as torch.npu.FloatTensor, which vendors' modules have and frameworks use.
def _typed(name, dtype):
    class Typed(type):
        def __instancecheck__(cls, instance):
            return isinstance(instance, torch.Tensor) and instance.device.type == _NAME and instance.dtype == dtype

        def __call__(cls, *arguments):
            return getattr(torch, name)(*arguments).to(torch.device(_NAME, current_device()))

    return Typed(name, (), {"__module__": __name__})


for _name, _dtype in (("BFloat16", torch.bfloat16), ("Bool", torch.bool), ("Byte", torch.uint8), ("Char", torch.int8), ("Double", torch.float64),
                      ("Float", torch.float32), ("Half", torch.float16), ("Int", torch.int32), ("Long", torch.int64), ("Short", torch.int16)):
    globals()[_name + "Tensor"] = _typed(_name + "Tensor", _dtype)


# Autocast
def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation=True):
    return True
