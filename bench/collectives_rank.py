"""One rank of `fulldeck bench collectives` in torch: measures torch.distributed with any backend in the same way as the program
measures its own ranks. The program embeds this file and starts it; src/control/bench/rank_protocol.h describes the protocol.

collectives_rank.py SOCKET RANK SIZE BACKEND STORE TIMEOUT      Python 3.8
"""
import datetime
import gc
import json
import os
import platform
import socket
import sys
import time

SOCKET, RANK, SIZE, BACKEND, STORE, TIMEOUT = sys.argv[1:7]
RANK, SIZE, TIMEOUT = int(RANK), int(SIZE), float(TIMEOUT)
CALLS_BEFORE = 2

# As in src/control/bench/pattern.cc.
PERIOD = 4093
SHIFT = 1009
MOST_VALUES = 13
SUM_OF_ALL = -1
EXACT_TO = {"float16": 2048, "bfloat16": 256, "float32": 1 << 24, "float64": 1 << 53}

REFUSALS = ("not support", "nsupported", "not implemented", "nvalid scalar type", "nvalid dtype")


class Wrong(Exception):
    """A result is wrong."""


class Cannot(Exception):
    """The backend does not support the call."""


class Pattern:
    def __init__(self, torch, datatype, device):
        self.torch = torch
        self.device = device
        self.datatype = getattr(torch, datatype)
        self.values = min(MOST_VALUES, EXACT_TO.get(datatype, 1 << 62) // SIZE + 1)
        self.tables = {SUM_OF_ALL: sum(self.numbers(rank) for rank in range(SIZE))}

    def numbers(self, rank):
        index = self.torch.arange(PERIOD, dtype=self.torch.int64, device=self.device)
        return ((index * 2654435761 + rank * 40503 + 12345) & 0xffffffff) // 128 % self.values

    def period(self, rank, first, call):
        if rank not in self.tables:
            self.tables = {SUM_OF_ALL: self.tables[SUM_OF_ALL], rank: self.numbers(rank)}
        place = (first + call % PERIOD * SHIFT) % PERIOD
        return self.tables[rank].roll(-place).to(self.datatype)

    def write(self, tensor, rank, first, call):
        period = self.period(rank, first, call)
        whole = len(tensor) // PERIOD * PERIOD
        tensor[:whole].view(-1, PERIOD).copy_(period)
        tensor[whole:].copy_(period[:len(tensor) - whole])

    def check(self, tensor, rank, first, call, operation, offset=0):
        period = self.period(rank, first, call)
        rows = 256  # compared at a time, so that the data stays in the cache
        for begin in range(0, len(tensor), rows * PERIOD):
            part = tensor[begin:begin + rows * PERIOD]
            expected = period.repeat(rows)[:len(part)]
            if self.torch.equal(part, expected):
                continue
            at = int((part != expected).nonzero()[0])
            raise Wrong("rank {}: element {} of the result is {:g} and must be {:g}, in call {} of {}".format(
                RANK, offset + begin + at, float(part[at]), float(expected[at]), call, operation))
        return len(tensor)


class Call:
    """The buffers of one cell, the call, and the expected result."""

    def __init__(self, torch, order):
        self.torch, self.dist = torch, torch.distributed
        self.name = order["operation"]
        self.order = order
        self.device = torch.device(order["device"])
        self.pattern = Pattern(torch, order["datatype"], self.device)
        datatype = getattr(torch, order["datatype"])
        everything = order["bytes"] // torch.empty(0, dtype=datatype).element_size()
        self.part = -(-everything // SIZE)
        parts = self.part * SIZE
        self.partner = RANK ^ 1 if RANK ^ 1 < SIZE else None
        sent, came = {
            "all_gather": (self.part, parts), "reduce_scatter": (parts, self.part), "all_to_all": (parts, parts),
            "gather": (self.part, parts if RANK == 0 else 0), "scatter": (parts if RANK == 0 else 0, self.part),
            "send_receive": (everything, everything), "barrier": (0, 0),
        }.get(self.name, (everything, 0))
        self.input = torch.empty(sent, dtype=datatype, device=self.device)
        self.output = torch.empty(came, dtype=datatype, device=self.device) if came else self.input
        self.calls = 0
        self.checked = 0

    def do(self):
        dist = self.dist
        if self.name == "all_reduce":
            dist.all_reduce(self.input)
        elif self.name == "reduce":
            dist.reduce(self.input, 0)
        elif self.name == "broadcast":
            dist.broadcast(self.input, 0)
        elif self.name == "all_gather":
            dist.all_gather_into_tensor(self.output, self.input)
        elif self.name == "reduce_scatter":
            dist.reduce_scatter_tensor(self.output, self.input)
        elif self.name == "gather":
            dist.gather(self.input, list(self.output.split(self.part)) if RANK == 0 else None, 0)
        elif self.name == "scatter":
            dist.scatter(self.output, list(self.input.split(self.part)) if RANK == 0 else None, 0)
        elif self.name == "all_to_all":
            dist.all_to_all_single(self.output, self.input)
        elif self.name == "barrier":
            dist.barrier()
        elif self.name == "send_receive":
            self.round_trip()
        else:
            raise Cannot("it has no " + self.name)

    def round_trip(self):
        if self.partner is None:
            return
        if RANK < self.partner:
            self.dist.send(self.input, self.partner)
        self.dist.recv(self.output, self.partner)
        if RANK > self.partner:
            self.dist.send(self.input, self.partner)

    def check(self, call):
        def one(tensor, rank, first=0, offset=0):
            self.checked += self.pattern.check(tensor, rank, first, call, self.name, offset)

        if self.name == "all_reduce" or (self.name == "reduce" and RANK == 0):
            one(self.input, SUM_OF_ALL)
        elif self.name == "broadcast":
            one(self.input, 0)
        elif self.name == "reduce_scatter":
            one(self.output, SUM_OF_ALL, RANK * self.part)
        elif self.name == "scatter":
            one(self.output, 0, RANK * self.part)
        elif self.name in ("all_gather", "all_to_all") or (self.name == "gather" and RANK == 0):
            first = RANK * self.part if self.name == "all_to_all" else 0
            for rank, part in enumerate(self.output.split(self.part)):
                one(part, rank, first, rank * self.part)
        elif self.name == "send_receive" and self.partner is not None:
            one(self.output, self.partner)

    def finish(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def once(self):
        """Nanoseconds of one call, from a common start."""
        call, self.calls = self.calls, self.calls + 1
        self.pattern.write(self.input, RANK, 0, call)
        self.finish()
        self.dist.barrier()
        began = time.perf_counter_ns()
        self.do()
        self.finish()
        ended = time.perf_counter_ns()
        # Checking the result here would take CPU time from ranks that are still in the call.
        self.dist.barrier()
        if self.order["spoil"] and call == 0 and RANK == SIZE - 1 and len(self.output):
            self.output[0] += 1
        self.check(call)
        return ended - began

    def next_batch(self, made, passed):
        """As NextBatch in src/control/bench/measurement.h; rank 0 decides for all."""
        least, most, seconds = self.order["least_calls"], self.order["most_calls"], self.order["seconds"]
        if made < least:
            batch = least - made
        elif passed >= seconds or made >= most:
            batch = 0
        else:
            fitting = (seconds - passed) / (passed / made) / 2
            batch = 0 if fitting < 0.5 else max(1, min(int(fitting), most - made))
        agreed = self.torch.tensor([batch], dtype=self.torch.int64)
        self.dist.broadcast(agreed, 0)
        return int(agreed)

    def measure(self):
        for _ in range(CALLS_BEFORE):
            self.once()
        times = []
        began = time.perf_counter()
        while True:
            batch = self.next_batch(len(times), time.perf_counter() - began)
            if batch == 0:
                return times
            times += [self.once() for _ in range(batch)]


def has_call(torch, order):
    """Why the call is not possible; called before any rank begins. All ranks must return the same."""
    if not hasattr(torch, order["datatype"]):
        return "torch has no " + order["datatype"]
    if order["shared"]:
        return "its buffers are private here"
    if order["device"] == "cuda":
        if not torch.cuda.is_available():
            return "torch {} sees no CUDA card".format(torch.__version__)
        torch.cuda.set_device(RANK % torch.cuda.device_count())
    return None


def answer(torch, order):
    why_not = has_call(torch, order)
    if why_not:
        return {"cannot": why_not}
    gc.collect()
    gc.disable()
    try:
        call = Call(torch, order)
        times = call.measure()
        return {"times_ns": times, "checked": call.checked}
    except Wrong as error:
        return {"wrong": str(error)}
    except (Cannot, NotImplementedError) as error:
        return {"cannot": str(error)}
    except Exception as error:  # torch may raise any exception
        text = "{}: {}".format(type(error).__name__, error)
        # torch rejects an unsupported call on every rank, before anything is sent.
        return {"cannot" if any(words in text for words in REFUSALS) else "failed": text}
    finally:
        gc.enable()


def join():
    """Sends the greeting and imports torch if it is installed."""
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:  # an ImportError, or any exception of a broken installation
        return {"rank": RANK, "absent": "{} cannot import torch: {}".format(sys.executable, error)}, None
    if not dist.is_available():
        return {"rank": RANK, "absent": "torch {} has no distributed package".format(torch.__version__)}, None
    about = "torch {}, Python {}".format(torch.__version__, platform.python_version())
    if BACKEND == "gloo":
        if not dist.is_gloo_available():
            return {"rank": RANK, "absent": "torch {} has no Gloo".format(torch.__version__)}, None
    else:
        try:
            __import__(BACKEND + ".backend")
        except Exception as error:
            return {"rank": RANK, "absent": "{} cannot import {}: {}".format(sys.executable, BACKEND, error)}, None
    torch.set_num_threads(1)
    try:
        dist.init_process_group(BACKEND, init_method="file://" + STORE, rank=RANK, world_size=SIZE,
                                timeout=datetime.timedelta(seconds=TIMEOUT))
        dist.barrier()
    except Exception as error:
        return {"rank": RANK, "absent": "{} makes no group of {}: {}".format(about, BACKEND, error)}, None
    return {"rank": RANK, "about": about}, torch


def main():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(SOCKET)
    lines = connection.makefile("rw", encoding="utf-8")

    def say(words):
        lines.write(json.dumps(words) + "\n")
        lines.flush()

    greeting, torch = join()
    say(greeting)
    if torch is None:
        return
    for line in lines:
        say(answer(torch, json.loads(line)))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Gloo occasionally aborts while the interpreter finalizes, when the error can no longer be reported.
    os._exit(0)
