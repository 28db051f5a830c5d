"""Probes the rank's card with a small computation before the program uses it: allocate, compute, compare, free. A card
that hangs, raises or computes wrongly ends the rank here with the card's name, instead of hours later with a
meaningless loss. FULLDECK_PROBE=0 (--no-probe) disables it."""
import os
import threading

# Far more than a card needs for its initialization.
SECONDS = 120
SIDE = 64
WORDS = 1 << 18

_done = False


class CardFailed(RuntimeError):
    """The card is not usable; the text says which one and why."""


def prove_once():
    """Raises CardFailed. A card that failed fails again: nothing is computed on it."""
    global _done
    if _done or os.environ.get("FULLDECK_PROBE") == "0":
        return
    _done = True
    from fulldeck import board
    from fulldeck.adapters import card

    try:
        prove(card.device())
    except CardFailed:
        _done = False
        raise
    finally:
        # The launcher does not attribute earlier work on the card to the program.
        board.ours().probed()


def prove(device, seconds=SECONDS):
    found = {}

    def run_in_thread():
        try:
            found["wrong"] = find_error(device)
        except BaseException as error:  # in the probe's thread; passed on to the waiting thread
            found["failure"] = error

    # A thread, because a hanging card never returns; a daemon, so that it does not block the exit.
    prover = threading.Thread(target=run_in_thread, name="fulldeck-proof", daemon=True)
    prover.start()
    prover.join(seconds)
    if prover.is_alive():
        raise CardFailed("fulldeck: the card {} did not compute a small test within {} s: it hangs. Reset it, or take it out of the run "
                         "(fulldeck run --devices).".format(device, seconds))
    if "failure" in found:
        text = str(found["failure"]).split("\n")[0] or type(found["failure"]).__name__
        raise CardFailed("fulldeck: the card {} cannot compute a small test: {} Take it out of the run (fulldeck run --devices), or see "
                         "fulldeck devices.".format(device, text)) from found["failure"]
    if found["wrong"]:
        raise CardFailed("fulldeck: the card {} computes wrongly: {}. Nothing that it trains can be trusted: take it out of the run "
                         "(fulldeck run --devices).".format(device, found["wrong"]))


def find_error(device):
    """Empty if the card computes like the CPU. Integers of at most 8 in magnitude, so that every sum is exact in any
    order."""
    import torch

    with torch.no_grad():
        words = torch.arange(WORDS, dtype=torch.int32, device="cpu")
        if not torch.equal(words.to(device).cpu(), words):
            return "memory does not give back what was written into it"
        a = torch.arange(SIDE * SIDE, device="cpu").remainder(17).sub(8).reshape(SIDE, SIDE)
        b = torch.arange(SIDE * SIDE, device="cpu").remainder(13).sub(6).reshape(SIDE, SIDE)
        right = (a.unsqueeze(2) * b.unsqueeze(0)).sum(1)
        product = a.float().to(device) @ b.float().to(device)
        if not torch.equal(product.cpu().long(), right):
            return "a product of two matrices is wrong"
        total = product.sum().cpu().item()
        if total != right.sum().item():
            return "a sum of {} numbers is {} and not {}".format(SIDE * SIDE, total, right.sum().item())
    return ""
