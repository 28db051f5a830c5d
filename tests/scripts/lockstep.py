"""Ranks that connect over MASTER_ADDR:MASTER_PORT and run in step, like a training: no rank takes step n + 1 before all
have taken step n. A rank whose peer disappears fails with a traceback; a silent network makes all ranks wait.

lockstep.py FOLDER [--steps N]    N steps (default 3), then the end; 0: forever

Each rank writes FOLDER/RANK.json when all are connected. With --on-usr1 FILE, SIGUSR1 makes every rank write FILE.RANK
at its next step, and all of them exit successfully at the same step. With --fail RANK that rank raises an error at step
5, with --fail-once RANK only in the first attempt.
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
        # Like torch's store: all interfaces, SO_REUSEADDR.
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
        # All ranks report to rank 0, which broadcasts whether any rank was asked to end.
        if rank == 0:
            requests = {exactly(peer, 1) for _, peer in peers} | {asked}
            answer = b"!" if b"!" in requests else b"."
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
            # A different rank received it first. Python removes its handlers when it exits, and the signal may still be
            # pending here.
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
