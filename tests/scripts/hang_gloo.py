"""hang_gloo.py NOTES: a plain script of torch.distributed with Gloo that imports nothing of fulldeck and has faults on
demand, for tests/grids/hang_grid.py; the orders are those of tests/programs/hang_rank.c. skip and mismatch happen in a
separate group whose timeout ends them, so that the run continues."""
import datetime
import os
import signal
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist

FAULTS = ["none", "loop", "deadlock", "stop", "skip", "mismatch", "leave", "slow", "checkpoint", "end", "sleep", "upload", "fifo"]
notes = sys.argv[1]
options = dict(argument.split("=", 1) for argument in sys.argv[2:])
GROUP_TIMEOUT = float(options.get("timeout", "9"))
released = [False]
sleeping = [False]
lock = threading.Lock()


class Released(Exception):
    pass


def release(*unused):
    released[0] = True
    if lock.locked():
        lock.release()
    if sleeping[0]:
        raise Released


def note_fault(group, call):
    """Time, rank, and the call of the group in which the others will wait, by torch's own count."""
    number = group._get_sequence_number_for_group() + 1
    note("fault-{}".format(done), "{} {} {} {}".format(time.monotonic_ns(), os.getpid(), call, number))


def note(name, text):
    path = os.path.join(notes, name)
    temporary = "{}.{}".format(path, dist.get_rank())
    with open(temporary, "w") as file:
        file.write(text)
    os.rename(temporary, path)


def spin_in_place():
    while not released[0]:
        pass


def deadlock():
    with lock:
        lock.acquire()
        # The handler of SIGUSR1 releases the lock; then this acquire succeeds, and the block above releases it again.


def sleep():
    sleeping[0] = True
    try:
        time.sleep(60)
    except Released:
        pass
    finally:
        sleeping[0] = False


def upload(milliseconds):
    """Waits for the response of a store that stays silent for that time."""
    here, store = socket.socketpair()
    threading.Timer(milliseconds / 1000, store.send, (b"x",)).start()
    here.recv(1)


def read_fifo(milliseconds):
    ends = os.pipe()
    threading.Timer(milliseconds / 1000, os.write, (ends[1], b"x")).start()
    os.read(ends[0], 1)


def checkpoint(milliseconds):
    end = time.monotonic() + milliseconds / 1000
    while time.monotonic() < end:
        with open(os.path.join(notes, "checkpoint"), "wb") as file:
            file.write(bytes(1 << 16))
            file.flush()
            os.fsync(file.fileno())
        time.sleep(0.1)


def read_order(order):
    try:
        with open(os.path.join(notes, "order")) as file:
            number, fault, rank = file.read().split()
    except (OSError, ValueError):
        return order
    fault, _, argument = fault.partition(":")
    return torch.tensor([int(number), FAULTS.index(fault), int(rank), int(argument or 0)])


def differ(kind, victim):
    """In a separate group: some matching calls, then one rank skips a call or makes a different one."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=GROUP_TIMEOUT))
    values = torch.ones(1000)
    mine = dist.get_rank() == victim
    try:
        for _ in range(3):
            dist.all_reduce(values, group=group)
        if mine:
            note_fault(group, "all_reduce")
        if mine and kind == "mismatch":
            dist.all_gather([torch.ones(1000) for _ in range(dist.get_world_size())], values, group=group)
        elif not (mine and kind == "skip"):
            dist.all_reduce(values, group=group)
        dist.barrier(group=group)
    except RuntimeError as error:
        print("rank {}: {}".format(dist.get_rank(), str(error).splitlines()[0][:200]), flush=True)
    dist.destroy_process_group(group)


dist.init_process_group("gloo")
signal.signal(signal.SIGUSR1, release)
torch.set_num_threads(1)
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
order = torch.zeros(4, dtype=torch.int64)
done, step, percent = 0, 0, 0
work = float(options.get("work", "0.002"))
card = float(options.get("card", "0"))
while True:
    step += 1
    begin = time.thread_time()
    if step == 1 and dist.get_rank() == 1 and "first" in options:
        end = time.monotonic() + float(options["first"])
        while time.monotonic() < end:  # like a running compiler
            torch.randn(512, 512) @ torch.randn(512, 512)
    while time.thread_time() - begin < work * (1 + percent / 100):
        pass
    time.sleep(card * (1 + percent / 100))
    optimizer.zero_grad()
    model(torch.randn(4, 32)).sum().backward()
    optimizer.step()
    if step % 8 == 0:
        if dist.get_rank() == 0:
            note("steps", str(step))
            order = read_order(order)
        dist.broadcast(order, 0)
    fault, victim = "none", -1
    if int(order[0]) > done:
        done, fault, victim = int(order[0]), FAULTS[int(order[1])], int(order[2])
    if fault == "end":
        break
    if fault in ("skip", "mismatch"):
        differ(fault, victim)
    elif fault != "none" and victim == dist.get_rank():
        released[0] = False
        note_fault(dist.distributed_c10d._get_default_group(), "barrier")
        if fault == "loop":
            spin_in_place()
        elif fault == "deadlock":
            deadlock()
        elif fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault == "leave":
            os._exit(0)
        elif fault == "slow":
            percent = int(order[3])
        elif fault == "checkpoint":
            checkpoint(int(order[3]))
        elif fault == "sleep":
            sleep()
        elif fault == "upload":
            upload(int(order[3]))
        elif fault == "fifo":
            read_fifo(int(order[3]))
    dist.barrier()
dist.destroy_process_group()
