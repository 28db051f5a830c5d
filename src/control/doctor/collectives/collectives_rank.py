"""One rank of `fulldeck doctor --collectives --backend NAME`: torch.distributed with any backend, on CPUs or on a card.
Embedded in the program, which starts it. Steps, values and answers are those of src/control/doctor/collectives/collectives_step.h.

collectives_rank.py SOCKET PROGRESS RANK SIZE BACKEND STORE TIMEOUT DEVICE MODULE FAULT      Python 3.8
"""
import datetime
import importlib
import json
import os
import platform
import signal
import socket
import struct
import sys
import time

SOCKET, PROGRESS, RANK, SIZE, BACKEND, STORE, TIMEOUT, DEVICE, MODULE, FAULT = sys.argv[1:11]
RANK, SIZE, TIMEOUT = int(RANK), int(SIZE), float(TIMEOUT)

PERIOD, SHIFT, MOST_VALUES = 4093, 1009, 13
EXACT_TO = {"float16": 2048, "bfloat16": 256, "float32": 1 << 24, "float64": 1 << 53}
REDUCED = -1
WAITING, PREPARING, IN_CALL, CHECKING = range(4)
REDUCTIONS = {"sum": "SUM", "avg": "AVG", "min": "MIN", "max": "MAX", "prod": "PRODUCT", "and": "BAND", "or": "BOR", "xor": "BXOR"}
REFUSALS = ("not support", "nsupported", "not implemented", "nvalid scalar type", "nvalid dtype", "annot use", "only available", "does not have")

progress = os.open(PROGRESS, os.O_WRONLY | os.O_CREAT, 0o600)


class Step:
    def __init__(self, torch, order):
        self.torch, self.dist, self.order = torch, torch.distributed, order
        self.name, self.count, self.root = order["operation"], order["count"], order["root"]
        self.device = torch.device(DEVICE)
        self.type = getattr(torch, order["datatype"])
        self.values = min(MOST_VALUES - 1, EXACT_TO.get(order["datatype"], 1 << 62) // SIZE) + 1
        self.reduces = self.name in ("all_reduce", "reduce", "reduce_scatter")
        self.tables = {}
        self.answer = {"times_ns": [], "checked": 0}

    # ---- values ----

    def numbers(self, rank):
        index = self.torch.arange(PERIOD, dtype=self.torch.int64)
        if self.reduces and self.order["reduction"] == "prod":
            return ((index + rank) % SIZE < 3).to(self.torch.int64) + 1
        if self.reduces and self.order["reduction"] == "avg":
            return index % 5 + 2 * ((index + rank) % SIZE)
        return ((index * 2654435761 + rank * 40503 + 12345) & 0xffffffff) // 128 % self.values

    def reduced(self):
        how, result = self.order["reduction"], self.numbers(0)
        for rank in range(1, SIZE):
            value = self.numbers(rank)
            if how == "min":
                result = self.torch.minimum(result, value)
            elif how == "max":
                result = self.torch.maximum(result, value)
            elif how == "prod":
                result = result * value
            elif how == "and":
                result = result & value
            elif how == "or":
                result = result | value
            elif how == "xor":
                result = result ^ value
            else:
                result = result + value
        return result // SIZE if how == "avg" else result

    def expected(self, count, rank, first, call):
        if rank not in self.tables:
            self.tables[rank] = (self.reduced() if rank == REDUCED else self.numbers(rank)).to(self.type)
        period = self.tables[rank].roll(-((first + call * SHIFT) % PERIOD))
        return period.repeat(-(-count // PERIOD))[:count]

    def check(self, tensor, rank, first, call, offset=0):
        found, expected = tensor.cpu(), self.expected(len(tensor), rank, first, call)
        self.answer["checked"] += len(tensor)
        if self.torch.equal(found, expected) or "wrong" in self.answer:
            return
        at = int((found != expected).nonzero()[0])
        self.answer["wrong"] = {"element": offset + at, "found": float(found[at]), "expected": float(expected[at]), "part_of": rank}

    # ---- faults, for tests ----

    def faulty(self, kind, peer=None):
        for fault in FAULT.split(",") if FAULT else ():
            parts = fault.split(":")
            if parts[:3] == [kind, str(RANK), self.name] and (len(parts) < 4 or int(parts[3]) == peer):
                return True
        return False

    # ---- the calls ----

    def be(self, phase):
        os.pwrite(progress, struct.pack("<QQ", self.order["number"] * 8 + phase, os.getpid()), 16 * RANK)

    def finish(self):
        """Waits until the work on the card is done."""
        module = getattr(self.torch, self.device.type, None)
        if self.device.type != "cpu" and hasattr(module, "synchronize"):
            module.synchronize()

    def partner(self):
        return self.order["to"] if RANK == self.order["from"] else self.order["from"]

    def is_pair(self):
        return self.order["from"] >= 0

    def buffers(self):
        sent = came = self.count
        if self.name in ("reduce_scatter", "all_to_all"):
            sent *= SIZE
        if self.name in ("all_gather", "all_to_all"):
            came *= SIZE
        if self.name == "gather":
            came = came * SIZE if RANK == self.root else 0
        if self.name == "scatter":
            sent = sent * SIZE if RANK == self.root else 0
        return sent, came

    def do(self, sent, came):
        dist, how = self.dist, getattr(self.dist.ReduceOp, REDUCTIONS[self.order["reduction"]])
        if self.name == "all_reduce":
            dist.all_reduce(came, op=how)
        elif self.name == "reduce":
            dist.reduce(came, self.root, op=how)
        elif self.name == "broadcast":
            dist.broadcast(came, self.root)
        elif self.name == "all_gather":
            dist.all_gather(list(came.split(self.count)), sent)
        elif self.name == "reduce_scatter":
            dist.reduce_scatter_tensor(came, sent, op=how)
        elif self.name == "gather":
            dist.gather(sent, list(came.split(self.count)) if RANK == self.root else None, self.root)
        elif self.name == "scatter":
            dist.scatter(came, list(sent.split(self.count)) if RANK == self.root else None, self.root)
        elif self.name == "all_to_all":
            dist.all_to_all_single(came, sent)
        elif self.name == "barrier":
            dist.barrier()
        else:
            first = RANK == self.order["from"]
            if first:
                dist.send(sent, self.partner())
            dist.recv(came, self.partner())
            if came.numel() * came.element_size() >= 64 << 10 and self.faulty("slow", self.partner()):
                time.sleep(0.15)
            if not first:
                dist.send(sent, self.partner())

    def sync_with_peers(self):
        if not self.is_pair():
            if self.order["sized"]:
                self.dist.barrier()
            return
        word = self.torch.zeros(1, device=self.device)
        if RANK == self.order["to"]:
            self.dist.send(word, self.partner())
        else:
            self.dist.recv(word, self.partner())

    def once(self, call):
        size, results = self.buffers()
        sent = self.expected(size, RANK, 0, call)
        if self.faulty("contribute") and call == 0 and size:
            sent[0] += 1
        sent = sent.to(self.device)
        in_place = self.name in ("all_reduce", "reduce") or (self.name == "broadcast" and RANK == self.root)
        came = sent.clone() if in_place else self.torch.full((results,), 99, dtype=self.type, device=self.device)
        self.finish()
        self.sync_with_peers()
        if self.faulty("exit"):
            os._exit(3)
        if self.faulty("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.faulty("hang"):
            time.sleep(3600)
        self.be(IN_CALL)
        if self.faulty("stop"):
            os.kill(os.getpid(), signal.SIGSTOP)
        began = time.perf_counter_ns()
        self.do(sent, came)
        self.finish()
        took = time.perf_counter_ns() - began
        if self.order["sized"] and not self.is_pair():
            self.dist.barrier()
        if not self.is_pair() or RANK == self.order["from"]:
            self.answer["times_ns"].append(took)
        self.be(CHECKING)
        if self.faulty("alter") and call == 0 and results:
            came[0] += 1
        self.check_result(came, call)

    def check_result(self, came, call):
        if self.name == "all_reduce" or (self.name == "reduce" and RANK == self.root):
            self.check(came, REDUCED, 0, call)
        elif self.name == "broadcast":
            self.check(came, self.root, 0, call)
        elif self.name == "reduce_scatter":
            self.check(came, REDUCED, RANK * self.count, call)
        elif self.name == "scatter":
            self.check(came, self.root, RANK * self.count, call)
        elif self.name in ("all_gather", "all_to_all") or (self.name == "gather" and RANK == self.root):
            first = RANK * self.count if self.name == "all_to_all" else 0
            for rank, part in enumerate(came.split(self.count)):
                self.check(part, rank, first, call, rank * self.count)
        elif self.is_pair():
            self.check(came, self.partner(), 0, call)

    def run(self):
        self.be(PREPARING)
        try:
            if not self.is_pair() or RANK in (self.order["from"], self.order["to"]):
                for call in range(self.order["calls"]):
                    self.once(call)
                    self.be(PREPARING)
        except Exception as error:
            text = "{}: {}".format(type(error).__name__, error)
            # torch rejects unsupported calls on every rank before it sends anything.
            self.answer["cannot" if any(words in text for words in REFUSALS) else "failed"] = text
        self.be(WAITING)
        return self.answer


def join():
    """Returns the greeting, and torch if it is available."""
    try:
        import torch
        import torch.distributed as dist
        if MODULE:
            importlib.import_module(MODULE)
    except Exception as error:  # an ImportError, or any other error of a broken installation
        return {"rank": RANK, "absent": "{} cannot import {}: {}".format(sys.executable, MODULE or "torch", error)}, None
    about = "torch {}, Python {}, {}".format(torch.__version__, platform.python_version(), "the processors" if DEVICE == "cpu" else "cards")
    if not dist.is_available():
        return {"rank": RANK, "absent": "torch {} has no distributed package".format(torch.__version__)}, None
    torch.set_num_threads(1)
    try:
        device = torch.device(DEVICE)
        if device.type != "cpu":
            getattr(torch, device.type).set_device(device)
        dist.init_process_group(BACKEND, init_method="file://" + STORE, rank=RANK, world_size=SIZE, timeout=datetime.timedelta(seconds=TIMEOUT))
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
        say(Step(torch, json.loads(line)).run())
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Gloo occasionally aborts during interpreter exit, after all results were sent.
    os._exit(0)
