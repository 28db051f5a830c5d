"""Reports the progress of this rank's training loop on the rank board: steps, loss, time for data and for the rest. The
launcher's progress line, `fulldeck top` and the checks for silent errors read it there.

A step is an optimizer step in any loop: a torch hook counts it. If several optimizers step in turns, the turns are
counted. A framework that counts steps itself (MMEngine) takes precedence, and so does a program that reports its steps
through fulldeck.board. The first thread that steps is the loop's; other threads are ignored. Without a board nothing is
reported."""
import sys
import threading
import time

from fulldeck import board as boards
from fulldeck.adapters import say

LOSS_EVERY_NS = 1000000000  # minimum interval between two losses that are read from a card

_now = time.perf_counter_ns
_ident = threading.get_ident

steps = 0           # turns of the optimizers in this process
_turn = set()       # optimizers that have stepped in this turn
_thread = 0         # of the loop; 0 until it is known
_leads = False      # a framework reports the steps
_mark = 0           # time is counted up to here
_loss = None        # a tensor or a number that was not reported yet
_loss_read_at = 0
_broken = False     # something here failed once and is not tried again


_ours = None


def board():
    global _ours
    if _ours is None:
        _ours = boards.ours()
        # The launcher attributes work on the card to the program only after the probe of these adapters.
        _ours.identity(boards.HOOK)
    return _ours


def figures():
    return (_ours or board()).figures


def quietly(step, *arguments):
    """No failure here may end a training."""
    global _broken
    if _broken:
        return None
    try:
        return step(*arguments)
    except Exception as error:
        _broken = True
        say("warning: this rank's steps are no longer shown: {}: {}".format(type(error).__name__, error))
        return None


# ---- steps

def stepped(optimizer):
    """An optimizer has stepped; returns True for the first one of a turn."""
    global steps, _thread, _mark
    number = id(optimizer)
    if number not in _turn and _turn:
        _turn.add(number)
        return False
    _turn.clear()
    _turn.add(number)
    steps += 1
    _thread = _ident()
    now = _now()
    reported = figures()
    if _mark:
        reported.compute_ns += now - _mark
    _mark = now
    return True


def tell():
    """Called after stepped(), and after the rest of this step was reported."""
    if not _leads and not board().steps_reported:
        figures().step = steps
        _publish_step()


def lead(on):
    """Whether the framework reports the steps itself, by report_step()."""
    global _leads
    _leads = on


def report_step(step, total_steps=0, epoch=0):
    """Number of steps that the framework's loop has done."""
    reported = figures()
    reported.step = max(reported.step, step)
    reported.total_steps = max(0, total_steps)
    reported.epoch = max(0, epoch)
    _publish_step()


def _publish_step():
    global _loss, _loss_read_at
    if _loss is not None:
        device = getattr(_loss, "device", None)
        now = _now()
        if device is None or device.type == "cpu":
            _show_loss([float(_loss)])
            _loss = None
        elif now - _loss_read_at >= LOSS_EVERY_NS:
            from fulldeck.adapters import observing
            torch = sys.modules["torch"]
            # A card without events or pinned memory requires a wait, but never while a graph is captured.
            if not observing.read_later(torch, _loss.reshape(1), _show_loss) and observing.has_to_wait(torch, device.type):
                if not observing.is_capturing(torch, _loss):
                    _show_loss([float(_loss)])
            _loss, _loss_read_at = None, now
    board().tell()


def _show_loss(values):
    reported = figures()
    reported.loss, reported.has_loss = values[0], 1


def note_loss(loss):
    """The loss of the current step: a tensor of one element, or a number. Read later, when that costs little."""
    global _loss
    if isinstance(loss, (int, float)):
        _loss = loss
    elif getattr(loss, "numel", lambda: 0)() == 1:
        _loss = loss.detach()


# ---- time per phase

def phase(number):
    if _thread in (0, _ident()):
        board().phase(number)


def data_begins(trains):
    """A batch was requested: by the loop for training or, with `trains` False, for something else, or by another
    thread. Returns a value for data_ended: the time, -1 for something else, 0 for another thread."""
    if _thread != _ident():
        if _thread or threading.current_thread() is not threading.main_thread():
            return 0
    now = _now()
    if not trains:
        board().phase(boards.VALIDATION)
        return -1
    if _mark:
        figures().compute_ns += now - _mark
    board().phase(boards.DATA)
    return now


def data_ended(wait_started, samples):
    global _mark
    now = _now()
    if wait_started > 0:
        reported = figures()
        reported.data_ns += now - wait_started
        reported.samples += samples
        board().phase(boards.COMPUTE)
    _mark = now
