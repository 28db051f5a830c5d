"""Rank 0 spins in one place while rank 1 waits for it in an all_reduce, like a rank whose main thread waits for a
kernel in the driver. "works": its simulated card is busy all the time, until the file OVER exists; "rests": the card is
idle, and it spins forever. Usage: spinning_rank.py works|rests OVER"""
import ctypes
import os
import sys
import threading
import time

import numpy

from fulldeck import board
from fulldeck.collectives import Group

over = []


def work(until):
    library = ctypes.CDLL(os.path.join(os.environ["FULLDECK_TEST_LIB"], "libfulldeck_simulated_card.so.0"))
    library.fulldeck_simulated_card_begin.restype = ctypes.c_uint64
    library.fulldeck_simulated_card_begin.argtypes = [ctypes.c_void_p]
    library.fulldeck_simulated_card_end.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    card = ctypes.c_void_p()
    assert library.fulldeck_simulated_card_open(0, ctypes.byref(card)) == 0
    while not os.path.exists(until):
        begun = library.fulldeck_simulated_card_begin(card)
        time.sleep(0.05)
        library.fulldeck_simulated_card_end(card, begun)
    over.append(True)


def main():
    mine = board.ours()
    group = Group.from_environment()
    data = numpy.ones(4, dtype="float32")
    for step in range(1, 4):
        group.all_reduce(data)
        mine.step(step)
    if int(os.environ["RANK"]) == 0:
        if sys.argv[1] == "works":
            threading.Thread(target=work, args=(sys.argv[2],), daemon=True).start()
        while not over:
            pass
    group.all_reduce(data)
    group.close()


main()
