"""Shared contract of the checks for silent errors (silent.py, batches.py, child_failures.py): they write to the rank
board, their exceptions never reach the program, and they read values from a card without waiting for it."""
import collections
import contextlib
import functools

from fulldeck import board as boards
from fulldeck.adapters import loop

MAX_PENDING = 8         # copies from a card that have not arrived

_functions = {}          # check -> the guarded function; tests replace them
_off = {}                # check -> why it is off


def guarded(function):
    """Decorator of a check: an exception disables the check, with one report, and never reaches the program."""
    name = function.__name__.strip("_")
    _functions[name] = function

    @functools.wraps(function)
    def run(*arguments):
        if name in _off:
            return None
        try:
            return _functions[name](*arguments)
        except Exception as error:
            _disable(name, error)
            return None

    return run


def _disable(name, error):
    try:
        _off[name] = "{}: {}".format(type(error).__name__, error)
        first = next(iter(_off))
        observe(boards.CHECK_DISABLED, count=len(_off), text="{}: {}".format(first, _off[first]))
    except Exception:
        pass  # the board itself failed, so there is nowhere to report to


def compiling(torch):
    """Returns the function that reports whether torch.compile is tracing, under its newer or its older name."""
    for name in ("compiler", "_dynamo"):
        is_compiling = getattr(getattr(torch, name, None), "is_compiling", None)
        if is_compiling is not None:
            return is_compiling
    return lambda: False


def untraced(torch, hook):
    """A hook that torch.compile excludes from its graph and calls between two graphs. Torch's own optimizers break the
    graph as well."""
    disable = getattr(torch, "_disable_dynamo", None) or getattr(getattr(torch, "_dynamo", None), "disable", None)
    return hook if disable is None else disable(hook)


def observe(check, state=0, value=0, count=0, step=0, text=None):
    loop.board().observe(check, state, value, count, step, text)


# ---- values from a card, without waiting for it

# (module of the card's kind, device, event, host tensor, callback for its values)
pending = collections.deque()
_no_copies = set()             # kinds of card without pinned memory


def _on(module, device):
    """Makes this card the current one: an event is recorded on a stream of the current card, and is_stream_capturing()
    applies to it."""
    context = getattr(module, "device", None)
    return contextlib.nullcontext() if context is None else context(device)


def _is_capturing(module, device):
    is_stream_capturing = getattr(module, "is_current_stream_capturing", None)
    if is_stream_capturing is None:
        return False
    with _on(module, device):
        return is_stream_capturing()


def is_capturing(torch, tensor):
    """Whether a CUDA graph is being captured on the tensor's card. Must be checked before a check launches anything
    there: a kernel of fulldeck would become a part of the program's graph, and querying an event or waiting for a value
    would break the capture."""
    kind = tensor.device.type
    return kind != "cpu" and _is_capturing(getattr(torch, kind, None), tensor.device)


def has_to_wait(torch, kind):
    """Whether values of this kind of card require waiting for it: torch has no events or no pinned memory for it."""
    return kind in _no_copies or not hasattr(getattr(torch, kind, None), "Event")


def read_later(torch, tensor, then):
    """Passes the values of a small tensor to then(list): immediately from the CPU, otherwise in a later step, when the
    copy has arrived. Returns False if they will not arrive: has_to_wait(), is_capturing(), or too many pending copies.
    """
    kind = tensor.device.type
    if kind == "cpu":
        then(tensor.tolist())
        return True
    if has_to_wait(torch, kind) or len(pending) >= MAX_PENDING or is_capturing(torch, tensor):
        return False
    module = getattr(torch, kind)
    try:
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    except RuntimeError:
        _no_copies.add(kind)
        return False
    with _on(module, tensor.device):
        host.copy_(tensor, non_blocking=True)
        event = module.Event()
        event.record()
    pending.append((module, tensor.device, event, host, then))
    return True


@guarded
def arrived():
    """Processes the copies that have arrived. Does not query events while a graph is captured."""
    while pending and not _is_capturing(*pending[0][:2]) and pending[0][2].query():
        _, _, _, host, then = pending.popleft()
        then(host.tolist())
