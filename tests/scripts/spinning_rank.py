"""Rank 0 spins in one place for some seconds while rank 1 waits for it in an all_reduce, as a rank does whose main thread waits for a kernel
in the driver. "works": its simulated card is at work all the time; "rests": it is not.
Usage: spinning_rank.py works|rests SECONDS"""
import ctypes
import os
import sys
import threading
import time

import numpy

from fulldeck import board
from fulldeck.collectives import Group


def work(end):
    library = ctypes.CDLL(os.path.join(os.environ["FULLDECK_TEST_LIB"], "libfulldeck_simulated_card.so.0"))
    library.fulldeck_simulated_card_begin.restype = ctypes.c_uint64
    library.fulldeck_simulated_card_begin.argtypes = [ctypes.c_void_p]
    library.fulldeck_simulated_card_end.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    card = ctypes.c_void_p()
    assert library.fulldeck_simulated_card_open(0, ctypes.byref(card)) == 0
    while time.monotonic() < end:
        begun = library.fulldeck_simulated_card_begin(card)
        time.sleep(0.05)
        library.fulldeck_simulated_card_end(card, begun)


def main():
    works, seconds = sys.argv[1] == "works", float(sys.argv[2])
    mine = board.ours()
    group = Group.from_environment()
    data = numpy.ones(4, dtype="float32")
    for step in range(1, 4):
        group.all_reduce(data)
        mine.step(step)
    if int(os.environ["RANK"]) == 0:
        end = time.monotonic() + seconds
        if works:
            threading.Thread(target=work, args=(end,), daemon=True).start()
        while time.monotonic() < end:
            pass
    group.all_reduce(data)
    group.close()


main()
