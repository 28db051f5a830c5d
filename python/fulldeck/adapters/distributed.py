"""torch.distributed in a rank of `fulldeck run`: chooses a backend that works on the rank's device if the program names
none or an unusable one; creates one group however often it is requested, and reports it in a line; applies the
launcher's timeout; rejects a group that is smaller than the run. docs/python.md"""
import datetime
import functools
import inspect
import os
import socket

from fulldeck.adapters import card, gloo_interface, is_child, probe, recorder, say, say_once, trace

OURS = "fulldeck"
TIMEOUT = "FULLDECK_TIMEOUT"


def adapt(torch):
    if not torch.distributed.is_available():
        return None
    c10d = torch.distributed.distributed_c10d
    real_init, real_new_group, real_monitored = c10d.init_process_group, c10d.new_group, c10d.monitored_barrier
    real_barrier = c10d.barrier
    signature, group_signature = inspect.signature(real_init), inspect.signature(real_new_group)
    barrier_signature = inspect.signature(real_barrier)
    trace.phase("torch was imported")

    @functools.wraps(real_init)
    def init_process_group(*arguments, **named):
        call = signature.bind(*arguments, **named).arguments
        if c10d.is_initialized() and _is_the_same(torch, c10d, call):
            say_once("init_process_group was called again: the group of {} ranks that is there stays".format(c10d.get_world_size()))
            wanted = launcher_timeout() or call.get("timeout")
            if wanted is not None and wanted != _first.get("timeout", wanted):
                say_once("warning: init_process_group was called again with timeout={}: it is not taken, the group has {}".format(
                    wanted, _first["timeout"]))
            return None
        trace.phase("in init_process_group")
        if not c10d.is_initialized():
            _check_requested_size(call)
        card.check_visibility()
        _probe_device()
        backend, reason = choose(torch, call.get("backend"))
        call["backend"] = backend
        timeout = launcher_timeout()
        if timeout is not None:
            call["timeout"] = timeout
        device_id = call.get("device_id")
        if card.is_foreign() and device_id is not None and not isinstance(device_id, int):
            call["device_id"] = card.redirect(device_id)
        gloo_interface.choose()
        first = not c10d.is_initialized()
        with recorder.Rendezvous():
            result = real_init(**_flat(call, signature))
        if first:
            _first.clear()
            _first.update(backend=backend, **({"timeout": call["timeout"]} if call.get("timeout") is not None else {}))
        recorder.start(c10d)
        _check_size(c10d)
        say(_line(c10d, reason, timeout))
        trace.phase("after init_process_group")
        return result

    @functools.wraps(real_new_group)
    def new_group(*arguments, **named):
        call = group_signature.bind(*arguments, **named).arguments
        requested = call.get("backend")
        unusable = why_unusable(torch, requested, for_card=False) if requested is not None else None
        if unusable is not None:
            call["backend"], _ = choose(torch, requested)
            say_once("new_group: backend {} in place of {}: {}".format(call["backend"], requested, unusable))
        timeout = launcher_timeout()
        if timeout is not None:
            call["timeout"] = timeout
        return real_new_group(**_flat(call, group_signature))

    @functools.wraps(real_monitored)
    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        if c10d._rank_not_in_group(group) or c10d.get_backend(group) == "gloo":
            return real_monitored(group, timeout, wait_all_ranks)
        return _monitored_barrier(c10d, group, timeout, wait_all_ranks)

    @functools.wraps(real_barrier)
    def barrier(*arguments, **named):
        call = barrier_signature.bind(*arguments, **named).arguments
        if call.get("device_ids") is not None and not _uses_device(torch, call.get("group")):
            del call["device_ids"]
            say_once("barrier: device_ids left out: the group has no backend for a card of this rank")
        return real_barrier(**call)

    for name, replacement in (("init_process_group", init_process_group), ("new_group", new_group),
                              ("monitored_barrier", monitored_barrier), ("barrier", barrier)):
        for module in (torch.distributed, c10d):
            setattr(module, name, replacement)
    if card.is_foreign():
        _redirect_meshes(torch)
    return "torch.distributed chooses a backend for {}".format(card.name()) if card.is_foreign() else None


def _flat(call, signature):
    """Named arguments as the caller passed them, **kwargs included."""
    flat = dict(call)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            flat.update(flat.pop(name, {}))
    return flat


# ---- which backend

def _backend_by_device(backend):
    """{"cpu": "gloo", "cuda": "nccl"} for "cpu:gloo,cuda:nccl"; {"": "nccl"} for "nccl"."""
    parts = {}
    for part in str(backend).lower().split(","):
        device, colon, name = part.strip().partition(":")
        parts[device if colon else ""] = name if colon else device
    return parts


def why_unusable(torch, backend, for_card=True):
    """A short reason why a backend that the program named cannot work on this rank's device; None if it can."""
    c10d = torch.distributed.distributed_c10d
    device = card.kind() or "cpu"
    for where, name in _backend_by_device(backend).items():
        if name == "nccl" and not card.has_cuda():
            return "nccl is for NVIDIA cards"
        if where == "cuda" and not card.has_cuda():
            return "there is no CUDA card here"
        if name == "gloo" and for_card and where != "cpu" and device not in ("cpu", "cuda"):
            return "gloo moves tensors of cpu and cuda only"
        if name not in c10d.Backend.backend_list:
            return "there is no backend of the name {}".format(name)
    return None


def _why_ours_is_not_usable():
    try:
        from fulldeck import backend

        backend.load_extension()
        return None
    except Exception as error:
        return str(error).replace("fulldeck: ", "", 1)


def choose(torch, requested):
    """(backend, reason) for this rank's device; the program's own backend if it can work."""
    if card.has_cuda():
        return requested, "the program's"
    device = card.kind() or "cpu"
    if requested is not None:
        unusable = why_unusable(torch, requested)
        if unusable is None:
            return requested, "asked for by the program"
        reason = "the program asks for {}, and {}".format(requested, unusable)
    else:
        reason = "the program names none"
    vendors = torch.distributed.Backend.default_device_backend_map.get(device)
    # "fake" is torch's test backend: it communicates nothing, and is the registered backend of hpu.
    if device != "cpu" and vendors not in (None, OURS, "fake"):
        return "cpu:gloo,{}:{}".format(device, vendors), reason + "; {} is the vendor's".format(vendors)
    unavailable = _why_ours_is_not_usable()
    if unavailable is None:
        return OURS, reason
    if device == "cpu":
        return "gloo", "{}; {} cannot be used: {}".format(reason, OURS, unavailable)
    raise RuntimeError("fulldeck: no backend of torch.distributed can work on {}: {}; the card's vendor registered none; {}: {}".format(
        card.name(), reason, OURS, unavailable))


# ---- checks and reports

def launcher_timeout():
    """The launcher's --timeout; None if it is not set."""
    text = os.environ.get(TIMEOUT)
    if not text:
        return None
    try:
        seconds = float(text)
        if not 0 < seconds < 1e9:
            raise ValueError(text)
        return datetime.timedelta(seconds=seconds)
    except ValueError:
        raise ValueError("fulldeck: {}={}: it must be a number of seconds above 0.".format(TIMEOUT, text)) from None


# Arguments of the default group.
_first = {}


def _is_the_same(torch, c10d, call):
    """A size, rank or backend that differs from the group's is not a repeated call for the same group, and torch
    rejects it."""
    if call.get("world_size", -1) not in (-1, c10d.get_world_size()) or call.get("rank", -1) not in (-1, c10d.get_rank()):
        return False
    if call.get("backend") is None:
        return True
    wanted = choose(torch, call["backend"])[0]
    there = getattr(c10d, "get_backend_config", c10d.get_backend)()
    return wanted == _first.get("backend") or set(_backend_by_device(wanted).values()) <= set(_backend_by_device(there).values())


def started_ranks():
    """WORLD_SIZE as the launcher set it; a program may have changed it since."""
    try:
        with open("/proc/self/environ", "rb") as file:
            found = [entry[len(b"WORLD_SIZE="):] for entry in file.read().split(b"\0") if entry.startswith(b"WORLD_SIZE=")]
        return int(found[0])
    except (OSError, IndexError, ValueError):
        return None


def _why_not(size):
    """The reason to reject a group with this number of ranks; None if it matches the run. Ranks in separate groups
    train N copies on all of the data, in one folder; and a group that is larger than the run waits for ranks that do
    not exist, until it times out."""
    started = None if is_child() else started_ranks()
    if started is None or started == size:
        return None
    return ("fulldeck: the launcher started {} ranks, and the program asks for a group of {}{}. Let init_process_group take rank and size from "
            "the environment (no world_size, no rank, init_method env://), or start {}.".format(
                started, size, ": it would wait for ranks that nobody started" if size > started else "",
                "one rank (--nproc-per-node 1)" if size == 1 else "{} ranks".format(size)))


def _check_requested_size(call):
    """Checks the size before any rank waits, as far as it is known."""
    size = call.get("world_size", -1)
    if size in (-1, None) and call.get("store") is None and call.get("init_method") in (None, "env://"):
        text = os.environ.get("WORLD_SIZE", "")
        size = int(text) if text.isdigit() else -1
    if isinstance(size, int) and size > 0:
        reason = _why_not(size)
        if reason is not None:
            raise RuntimeError(reason)


def _check_size(c10d):
    reason = _why_not(c10d.get_world_size())
    if reason is not None:
        c10d.destroy_process_group()
        raise RuntimeError(reason)


def _line(c10d, reason, timeout):
    serial = os.environ.get("FULLDECK_CARD_SERIAL")
    backend = c10d.get_backend()
    return "rank {}/{}, backend {} ({}), device {}{}, host {}{}".format(
        c10d.get_rank(), c10d.get_world_size(), backend, reason, card.name() or "cpu", ", card serial " + serial if serial else "",
        socket.gethostname(), ", timeout {:g} s".format(timeout.total_seconds()) if timeout else "")


def _probe_device():
    if card.is_foreign():
        card.enter()
    elif card.kind() == "cuda":
        probe.prove_once()


def _uses_device(torch, group):
    """Whether device_ids of a barrier have an effect: torch creates a tensor on the machine's card for it, in any
    group."""
    if card.kind() in (None, "cpu"):
        return False
    try:
        group = group or torch.distributed.distributed_c10d._get_default_group()
        return any(device.type == card.kind() for device in group._device_types)
    except (AttributeError, RuntimeError, ValueError):  # an older torch, or no group yet: torch reports that itself
        return True


# ---- features that torch has only for Gloo or CUDA

_barriers = {}


def _monitored_barrier(c10d, group, timeout, wait_all_ranks):
    """Like Gloo's: rank 0 of the group waits for each of the others and names the missing ones; all ranks receive the
    result."""
    group = group or c10d._get_default_group()
    store, name = c10d._world.pg_map[group][1], group.group_name
    if timeout is None:
        timeout = c10d._get_default_timeout("gloo")
    elif not isinstance(timeout, datetime.timedelta):
        timeout = datetime.timedelta(seconds=timeout)
    number = _barriers[name] = _barriers.get(name, 0) + 1
    key = "fulldeck_monitored_barrier/{}/{}/".format(name, number)
    rank, size = group.rank(), group.size()
    if rank != 0:
        store.set(key + str(rank), "here")
        # Rank 0 may need its whole timeout before it knows.
        store.wait([key + "verdict"], timeout + datetime.timedelta(seconds=10))
        verdict = store.get(key + "verdict").decode()
        if verdict:
            raise RuntimeError(verdict)
        return
    deadline = datetime.datetime.now() + timeout
    missing = []
    for other in range(1, size):
        left = max(deadline - datetime.datetime.now(), datetime.timedelta(milliseconds=1))
        try:
            store.wait([key + str(other)], left)
        except Exception:  # the type depends on torch's version
            missing.append(c10d.get_global_rank(group, other))
            if not wait_all_ranks:
                break
    verdict = ""
    if missing:
        verdict = "fulldeck: {} did not come to monitored_barrier within {:g} s.".format(
            "rank {}".format(missing[0]) if len(missing) == 1 else "ranks " + ", ".join(map(str, missing)), timeout.total_seconds())
    store.set(key + "verdict", verdict)
    if verdict:
        raise RuntimeError(verdict)


def _redirect_meshes(torch):
    """init_device_mesh("cuda", …) and DeviceMesh("cuda", …)."""
    mesh = getattr(torch.distributed, "device_mesh", None)
    if mesh is None or not hasattr(mesh, "DeviceMesh"):
        return
    real, init = mesh.init_device_mesh, mesh.DeviceMesh.__init__

    def kind_of(device_type):
        return card.kind() if device_type == "cuda" else device_type

    @functools.wraps(real)
    def init_device_mesh(device_type, *arguments, **named):
        return real(kind_of(device_type), *arguments, **named)

    @functools.wraps(init)
    def init_mesh(self, device_type, *arguments, **named):
        return init(self, kind_of(device_type), *arguments, **named)

    mesh.DeviceMesh.__init__ = init_mesh
    for module in (mesh, torch.distributed):
        if getattr(module, "init_device_mesh", None) is real:
            module.init_device_mesh = init_device_mesh
