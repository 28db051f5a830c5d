"""See the package: the functions of the vendor's collectives, without an implementation."""
import os

_begun = False


class ReduceOp:
    SUM, PRODUCT, MIN, MAX = "SUM", "PRODUCT", "MIN", "MAX"


def is_available():
    return True


def is_initialized():
    return _begun


def init_process_group(backend="eccl", init_method=None, timeout=None, world_size=-1, rank=-1):
    global _begun
    fault = os.environ.get("FAKE_ECCL", "missing")
    if fault == "missing" or (fault == "one" and os.environ["RANK"] == "1"):
        raise RuntimeError("ProcessGroupECCL is not available")
    _begun = True


def destroy_process_group(group=None):
    global _begun
    _begun = False


def get_rank(group=None):
    if not _begun:
        raise RuntimeError("Default process group has not been initialized, please make sure to call init_process_group.")
    return int(os.environ["RANK"])


def get_world_size(group=None):
    return int(os.environ["WORLD_SIZE"])


def _none(what):
    raise RuntimeError("the stand-in of the vendor's has no " + what)


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    _none("all_reduce")


def broadcast(tensor, src, group=None, async_op=False):
    _none("broadcast")


def all_gather(tensor_list, tensor, group=None, async_op=False):
    _none("all_gather")


def barrier(group=None):
    _none("barrier")


def batch_isend_irecv(operations):
    _none("batch_isend_irecv")
