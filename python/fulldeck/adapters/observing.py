"""What the checks for silent errors have in common (silent.py, batches.py, child_failures.py): they write on the rank board, what they raise never
reaches the program, and they read values from a card without waiting for it."""
import collections
import contextlib
import functools

from fulldeck import board as boards
from fulldeck.adapters import loop

MAX_PENDING = 8         # copies from a card that have not arrived

_functions = {}          # check -> the function that is guarded; tests replace them
_off = {}                # check -> why it is off


def guarded(function):
    """A check: what it raises turns it off, with one report, and nothing reaches the program."""
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
        pass  # the board is what failed; there is nobody left to report to


def compiling(torch):
    """The function that says whether torch.compile traces right now, under its newer or its older name."""
    for name in ("compiler", "_dynamo"):
        is_compiling = getattr(getattr(torch, name, None), "is_compiling", None)
        if is_compiling is not None:
            return is_compiling
    return lambda: False


def untraced(torch, hook):
    """A hook that torch.compile leaves out of its graph, and calls between two. Torch's own optimizers break the graph as well."""
    disable = getattr(torch, "_disable_dynamo", None) or getattr(getattr(torch, "_dynamo", None), "disable", None)
    return hook if disable is None else disable(hook)


def observe(check, state=0, value=0, count=0, step=0, text=None):
    loop.board().observe(check, state, value, count, step, text)


# ---- values from a card, without waiting for it

pending = collections.deque()  # (module of the card's kind, device, event, host tensor, what to do with its numbers)
_no_copies = set()             # kinds of card that have no pinned memory


def _on(module, device):
    """Makes this card the current one: an event is recorded on a stream of the current card, and a capture is_stream_capturing for there."""
    context = getattr(module, "device", None)
    return contextlib.nullcontext() if context is None else context(device)


def _is_capturing(module, device):
    is_stream_capturing = getattr(module, "is_current_stream_capturing", None)
    if is_stream_capturing is None:
        return False
    with _on(module, device):
        return is_stream_capturing()


def is_capturing(torch, tensor):
    """Whether a CUDA graph is being captured on the tensor's card. To be is_stream_capturing before a check launches anything there: a kernel of fulldeck would become
    a part of the program's graph, and an event that is is_stream_capturing for, or a value that is waited for, would break the capture."""
    kind = tensor.device.type
    return kind != "cpu" and _is_capturing(getattr(torch, kind, None), tensor.device)


def has_to_wait(torch, kind):
    """Whether values of this kind of card cannot be had without waiting for it: torch has no events or no pinned memory for it."""
    return kind in _no_copies or not hasattr(getattr(torch, kind, None), "Event")


def read_later(torch, tensor, then):
    """Gives the numbers of a small tensor to then(list): at once from the CPU, else in a later step, when the copy has arrived. False where
    they will not come: has_to_wait(), is_capturing(), or too many are under way."""
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
    """Takes what has come. Asks for no event while a graph is captured."""
    while pending and not _is_capturing(*pending[0][:2]) and pending[0][2].query():
        _, _, _, host, then = pending.popleft()
        then(host.tolist())
