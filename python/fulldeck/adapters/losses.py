"""Observes whether the losses of the user's script stay finite: those on which backward is called, and those that
torch.nn.functional computes. observing.py has the contract of this check; silent.py starts it, and batches.py calls it
for the latter.

A single NaN is not a fault: a GradScaler skips a few steps at first, and a batch may have no label at all. ENOUGH
consecutive ones are a fault: the training makes no progress, even if a scaler, the script or nan_to_num() keeps the
parameters finite. A loss without backward counts only while nothing trains: a head with rare labels may have none for a
long time."""
import functools
import math

from fulldeck.adapters.observing import arrived, compiling, guarded, is_capturing, pending, read_later

ENOUGH = 20              # consecutive losses
READ_EVERY = 7           # losses on a card per copy: a copy costs more than a number on the host
# Losses without a step; fewer may be several losses of one step, or gradient accumulation.
IDLE = 4


class NonfiniteStreak:
    """A series of non-finite losses."""

    def __init__(self):
        self.seen = 0        # losses
        self.since = 0       # losses since the latest step
        self.length = 0
        self.began = 0       # step


_backward, _computed = NonfiniteStreak(), NonfiniteStreak()
_reported = False
_steps = None            # returns the number of steps so far
_report = None           # called with the first step of the series


def watch_losses(torch, steps, report):
    global _steps, _report
    _steps, _report = steps, report
    autograd = torch.autograd
    real = autograd.backward
    is_compiling = compiling(torch)

    @functools.wraps(real)
    def backward(tensors, grad_tensors=None, *arguments, **named):
        if grad_tensors is None and not is_compiling():
            check_loss(torch, tensors[0] if isinstance(tensors, (tuple, list)) and len(tensors) == 1 else tensors, _backward)
        return real(tensors, grad_tensors, *arguments, **named)

    autograd.backward = backward  # torch.Tensor.backward calls it there


def computed(torch, loss):
    _computed.since += 1
    if _computed.since > IDLE:
        check_loss(torch, loss, _computed)


@guarded
def check_loss(torch, loss, streak):
    if (_reported or type(loss) is not torch.Tensor or loss.numel() != 1 or not loss.requires_grad or torch.jit.is_tracing()
            or torch._C._len_torch_dispatch_stack() or torch._C._functorch.maybe_current_level() is not None):
        return
    if loss.device.type == "cpu":
        judge(streak, [loss.item()], 1, _steps())
        return
    if pending and streak is _computed:  # there are no steps in which values could arrive
        arrived()
    streak.seen += 1
    if streak.seen % READ_EVERY == 0 and not is_capturing(torch, loss):
        step = _steps()
        read_later(torch, loss.detach().reshape(1), lambda values: judge(streak, values, READ_EVERY, step))


def judge(streak, values, count, step):
    """`count`: number of losses that this one represents."""
    global _reported
    if math.isfinite(values[0]):
        streak.length = 0
        if streak is _backward:
            _computed.length = 0
        return
    if not streak.length:
        streak.began = step + 1
    streak.length += count
    if streak.length >= ENOUGH and not _reported:
        _reported = True
        _report(streak.began)


def after_step():
    _computed.since = _computed.length = 0
