"""Rank 0 uploads to a store that stays silent until the file OVER exists; rank 1, which runs the store, waits for rank
0 in an all_reduce. Usage: quiet_upload.py loop|child-threads|child-timeout OVER"""
import asyncio
import os
import socket
import subprocess
import sys
import threading
import time

import numpy

from fulldeck.collectives import Group

CHILD = """
import socket, sys, threading
def upload():
    socket.create_connection(("127.0.0.1", int(sys.argv[1]))).recv(1)
if sys.argv[2] == "child-threads":
    thread = threading.Thread(target=upload)
    thread.start()
    thread.join()
else:
    upload()
"""


def serve(server, over):
    client, _ = server.accept()
    while not os.path.exists(over):
        time.sleep(0.05)
    client.sendall(b"x")


def upload_in_a_loop(port):
    """Like fsspec's asynchronous file systems: an event loop in a thread, and the caller polls for its completion."""
    done = threading.Event()

    async def upload():
        reader, _ = await asyncio.open_connection("127.0.0.1", port)
        await reader.read(1)
        done.set()

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(upload(), loop)
    while not done.wait(1):
        pass


def main():
    kind, over = sys.argv[1:]
    group = Group.from_environment()
    data = numpy.zeros(1, dtype="float32")
    rank = int(os.environ["RANK"])
    if rank == 1:
        server = socket.socket()
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        threading.Thread(target=serve, args=(server, over), daemon=True).start()
        data[0] = server.getsockname()[1]
    for _ in range(20):
        port = data.copy()
        group.all_reduce(port)
    if rank == 0:
        if kind == "loop":
            upload_in_a_loop(int(port[0]))
        else:
            subprocess.run([sys.executable, "-S", "-c", CHILD, str(int(port[0])), kind], check=True, timeout=600 if kind == "child-timeout" else None)
    group.all_reduce(data)
    group.close()


main()
