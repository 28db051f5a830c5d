"""A rank without training: it reports steps on the rank board, and keeps simulated cards busy in the way that its first
argument names. Usage: card_rank.py WHERE STEPS MILLISECONDS [BURST]

own       its own card, in every step
none      no card; it holds its own
all       rank 0 works on all cards, the others hold their own
swapped   each of two ranks works on the other's card
burst     its own card, only in the first BURST (3) steps
first     rank 0 on its own card, the others on none
warmup    its own card for a second before the first step, and never again
child     a process in its own session, no longer a child of the rank, works on the rank's card
stray     like child, but rank 0's works on card 1, and rank 1 works on none
"""
import ctypes
import os
import sys
import time

from fulldeck import board


class Card:
    def __init__(self, index):
        library = ctypes.CDLL(os.path.join(os.environ["FULLDECK_TEST_LIB"], "libfulldeck_simulated_card.so.0"))
        library.fulldeck_simulated_card_begin.restype = ctypes.c_uint64
        library.fulldeck_simulated_card_begin.argtypes = [ctypes.c_void_p]
        library.fulldeck_simulated_card_end.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self.handle = ctypes.c_void_p()
        assert library.fulldeck_simulated_card_open(index, ctypes.byref(self.handle)) == 0
        self.library = library

    def work(self, seconds):
        begun = self.library.fulldeck_simulated_card_begin(self.handle)
        time.sleep(seconds)
        self.library.fulldeck_simulated_card_end(self.handle, begun)


def start_stray(index):
    """Two forks and a session of its own, so that the worker's parent is gone. It exits when this process does."""
    here, there = os.pipe()
    if os.fork() != 0:
        os.close(here)
        return there
    os.close(there)
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.set_blocking(here, False)
    card = Card(index)
    while True:
        try:
            if os.read(here, 1) == b"":
                os._exit(0)
        except BlockingIOError:
            card.work(0.01)


def main():
    where, steps, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1000
    burst = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    keep = None
    if where == "child":
        keep = start_stray(rank)
    elif where == "stray" and rank == 0:
        keep = start_stray(1)
    own = Card(rank)
    works_on = []
    if where in ("own", "burst") or (where in ("stray", "first") and rank == 0):
        works_on = [own]
    elif where == "all" and rank == 0:
        works_on = [own] + [Card(index) for index in range(1, world)]
    elif where == "swapped":
        works_on = [Card(1 - rank)]
    elif where == "warmup":
        own.work(1)
    mine = board.ours()
    for step in range(1, steps + 1):
        for card in works_on:
            card.work(seconds / len(works_on))
        if not works_on:
            time.sleep(seconds)
        mine.step(step, total_steps=steps)
        if where == "burst" and step == burst:
            works_on = []
    if keep is not None:
        os.close(keep)


main()
