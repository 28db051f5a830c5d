"""Ranks that meet over MASTER_ADDR:MASTER_PORT and walk in step, as training does: nobody takes step n + 1 before everybody
has taken step n. A rank whose peer goes away fails with a traceback; a silent network makes everybody wait.

lockstep.py FOLDER [--steps N]    N steps (default 3), then the end; 0: for ever
Each rank writes FOLDER/RANK.json when all have met. With --on-usr1 FILE, SIGUSR1 makes every rank write FILE.RANK at its
next step, and all of them end well at the same step. With --fail RANK that rank raises an error at step 5,
with --fail-once RANK in the first attempt alone.
"""
import argparse
import os
import signal
import socket
import time

import place


def connect(address, port, deadline):
    while True:
        try:
            return socket.create_connection((address, port), timeout=5)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def exactly(connection, count):
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("a peer has gone away")
        data += piece
    return data


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--on-usr1")
    parser.add_argument("--fail", type=int)
    parser.add_argument("--fail-once", type=int)
    options = parser.parse_args()
    if options.fail is None and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        options.fail = options.fail_once
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

    wanted = []
    if options.on_usr1:
        signal.signal(signal.SIGUSR1, lambda *_: wanted.append(True))

    peers = []
    if rank == 0:
        # As torch's store does it: all interfaces, SO_REUSEADDR.
        listener = socket.create_server(("", port), backlog=world)
        listener.settimeout(60)
        for _ in range(world - 1):
            peer = listener.accept()[0]
            peer.settimeout(None)
            peers.append((int(exactly(peer, 4)), peer))
        assert sorted(number for number, _ in peers) == list(range(1, world)), peers
    else:
        peer = connect(address, port, time.monotonic() + 60)
        peer.settimeout(None)
        peer.sendall(b"%4d" % rank)
        peers.append((0, peer))

    step = 0
    while True:
        asked = b"!" if wanted else b"."
        # Everybody tells rank 0, and rank 0 tells everybody whether anybody was asked to end.
        if rank == 0:
            told = {exactly(peer, 1) for _, peer in peers} | {asked}
            answer = b"!" if b"!" in told else b"."
            for _, peer in peers:
                peer.sendall(answer)
        else:
            peers[0][1].sendall(asked)
            answer = exactly(peers[0][1], 1)
        if step == 0:
            place.write(options.folder, met=True)
            print("rank {} of {} has met the others".format(rank, world), flush=True)
        step += 1
        if step == 5 and rank == options.fail:
            raise RuntimeError("the loss of rank {} is not a number".format(rank))
        if answer == b"!":
            # Another rank heard it first. Python drops its handlers when it ends, and the signal may still be on its way here.
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            with open("{}.{}".format(options.on_usr1, rank), "w") as file:
                file.write("checkpoint at step {}\n".format(step))
            print("checkpoint written", flush=True)
            break
        if step == options.steps:
            break
        time.sleep(0.05)
    print("rank {} ends well".format(rank), flush=True)


if __name__ == "__main__":
    main()
