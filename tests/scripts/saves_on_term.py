"""A rank that needs a second to save on SIGTERM: it writes FOLDER/saved.RANK and exits successfully."""
import os
import signal
import sys
import time

import place

asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
place.write(sys.argv[1])
while not asked:
    time.sleep(0.02)
until = time.monotonic() + 1
while time.monotonic() < until:
    time.sleep(0.02)
with open(os.path.join(sys.argv[1], "saved." + os.environ["RANK"]), "w") as saved:
    saved.write("saved\n")
