"""What the checks for silent errors have in common (silent.py, batches.py, child_failures.py): they write on the rank board, what they raise never
reaches the program, and they read values from a card without waiting for it."""
import collections
import functools

from fulldeck import board as boards
from fulldeck.adapters import loop

MOST_PENDING = 8         # copies from a card that have not arrived

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


def observe(check, state=0, value=0, count=0, step=0, text=None):
    loop.board().observe(check, state, value, count, step, text)


# ---- values from a card, without waiting for it

pending = collections.deque()  # (event, host tensor, what to do with its numbers)


def read_later(torch, tensor, then):
    """Gives the numbers of a small tensor to then(list): at once from the CPU, else in a later step, when the copy has arrived. False where
    that cannot be had without waiting for the card."""
    kind = tensor.device.type
    if kind == "cpu":
        then(tensor.tolist())
        return True
    module = getattr(torch, kind, None)
    if not hasattr(module, "Event") or len(pending) >= MOST_PENDING or _is_capturing(module):
        return False
    try:
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    except RuntimeError:  # no pinned memory for this kind of card: a copy would wait
        return False
    host.copy_(tensor, non_blocking=True)
    event = module.Event()
    event.record()
    pending.append((event, host, then))
    return True


def _is_capturing(module):
    return getattr(module, "is_current_stream_capturing", lambda: False)()


@guarded
def arrived():
    while pending and pending[0][0].query():
        _, host, then = pending.popleft()
        then(host.tolist())
