"""Collectives on torch tensors of any device, through host memory and the C interface (fulldeck.collectives): for
stacks whose own collectives are not available and that the compiled backend does not support. Does not need
torch.distributed, and works with torch 1.10. Only for ranks of one node."""
import ctypes
import os
import pickle
import re

from fulldeck.collectives import Group

REDUCTIONS = {"SUM": "sum", "AVG": "avg", "PRODUCT": "prod", "PROD": "prod", "MIN": "min", "MAX": "max", "BAND": "and", "BOR": "or",
              "BXOR": "xor"}


class Work:
    """Returned by calls with async_op=True: the call is already complete."""

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    def is_success(self):
        return True


def reduction(op):
    """"sum" for torch's ReduceOp.SUM, a vendor's own, "SUM" or None."""
    if op is None:
        return "sum"
    names = re.findall("[A-Z]+", (getattr(op, "name", None) or str(op)).upper())
    found = [REDUCTIONS[name] for name in names if name in REDUCTIONS]
    if len(found) != 1:
        raise ValueError("fulldeck: {} is no reduction that can be computed here; there are {}.".format(op, ", ".join(REDUCTIONS)))
    return found[0]


def type_of(tensor):
    return str(tensor.dtype).replace("torch.", "")


class Staged:
    """A tensor's data in host memory during one call: its own memory if it is contiguous there, otherwise a copy that
    write_back() copies back."""

    def __init__(self, tensor, read=True):
        self.tensor = tensor
        plain = tensor.detach()
        self.is_copy = plain.device.type != "cpu" or not plain.is_contiguous()
        if not self.is_copy:
            self.host = plain
        elif read:
            self.host = plain.to("cpu").contiguous()
        else:
            self.host = plain.new_empty(plain.shape, device="cpu")

    @property
    def buffer(self):
        return memory_of(self.host)

    def write_back(self):
        if self.is_copy:
            self.tensor.detach().copy_(self.host)


def memory_of(host):
    """The bytes of a tensor in host memory; the tensor must outlive them."""
    return (ctypes.c_char * (host.numel() * host.element_size())).from_address(host.data_ptr())


class Team:
    """This rank's membership of a group. `ranks`: the members' ranks in the run, in order."""

    def __init__(self, ranks, name, timeout=None):
        self.ranks = list(ranks)
        self.global_rank = int(os.environ["RANK"])
        self.rank = self.ranks.index(self.global_rank)
        self.size = len(self.ranks)
        self.name = name
        self.group = Group(self.rank, self.size, name=name, timeout=timeout)

    @classmethod
    def for_run(cls, timeout=None):
        """All ranks, which must be on this node; otherwise raises fulldeck.errors.ArgumentError."""
        group = Group.from_environment(name="host-staged", timeout=timeout)
        team = cls.__new__(cls)
        team.ranks = list(range(group.size))
        team.rank = team.global_rank = group.rank
        team.size, team.name, team.group = group.size, group.name, group
        return team

    def place(self, rank):
        """The position of a rank of the run in this group."""
        try:
            return self.ranks.index(int(rank))
        except ValueError:
            raise ValueError("fulldeck: rank {} is not in the group '{}' of ranks {}.".format(rank, self.name, self.ranks)) from None

    def close(self):
        self.group.close()

    # ---- tensors

    def all_reduce(self, tensor, op=None):
        staged = Staged(tensor)
        if staged.host.numel():
            self.group.all_reduce(staged.buffer, reduction(op), dtype=type_of(tensor))
        staged.write_back()

    def reduce(self, tensor, to, op=None):
        staged = Staged(tensor)
        if staged.host.numel():
            self.group.reduce(staged.buffer, self.place(to), reduction(op), dtype=type_of(tensor))
        if self.place(to) == self.rank:
            staged.write_back()

    def broadcast(self, tensor, source):
        source = self.place(source)
        staged = Staged(tensor, read=source == self.rank)
        if staged.host.numel():
            self.group.broadcast(staged.buffer, source, dtype="uint8")
        if source != self.rank:
            staged.write_back()

    def all_gather(self, tensors, tensor):
        if len(tensors) != self.size:
            raise ValueError("fulldeck: all_gather needs a list of {} tensors, one a rank, and got {}.".format(self.size, len(tensors)))
        mine = Staged(tensor)
        whole = self.gathered(mine.host)
        for number, into in enumerate(tensors):
            into.detach().copy_(whole[number].reshape(into.shape))

    def gathered(self, host):
        """The same tensor of every rank, concatenated, in host memory."""
        whole = host.new_empty((self.size,) + tuple(host.shape))
        if host.numel():
            self.group.all_gather(memory_of(host), out=memory_of(whole), dtype="uint8")
        return whole

    def send(self, tensor, to, tag=0):
        staged = Staged(tensor)
        self.group.send(staged.buffer, self.place(to), tag=tag)

    def receive(self, tensor, source=None, tag=0):
        staged = Staged(tensor, read=False)
        came = self.group.receive(staged.buffer, -1 if source is None else self.place(source), tag=tag)
        staged.write_back()
        return self.ranks[came]

    # ---- objects

    def gather_objects(self, thing):
        """The objects of all ranks, in rank order. Ranks of one run trust each other."""
        import array

        data = pickle.dumps(thing)
        lengths = array.array("q", [0] * self.size)
        self.group.all_gather(array.array("q", [len(data)]), out=lengths)
        longest = max(lengths)
        mine = bytearray(data.ljust(longest, b"\0"))
        whole = bytearray(longest * self.size)
        self.group.all_gather(mine, out=whole)
        return [pickle.loads(bytes(whole[number * longest:number * longest + length])) for number, length in enumerate(lengths)]

    def broadcast_object(self, thing, source):
        import array

        source = self.place(source)
        data = pickle.dumps(thing) if source == self.rank else b""
        length = array.array("q", [len(data)])
        self.group.broadcast(length, source)
        buffer = bytearray(data) if source == self.rank else bytearray(length[0])
        self.group.broadcast(buffer, source)
        return thing if source == self.rank else pickle.loads(bytes(buffer))

    def barrier(self):
        self.group.barrier()
