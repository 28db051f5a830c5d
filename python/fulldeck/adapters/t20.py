"""Enflame's stacks of the T20 generation: torch 1.10, devices xla:N, and the vendor's own collectives and
DistributedDataParallel in `torch_gcu.distributed` and `torch_gcu.nn.parallel`. If its collectives are not available
(ECCL is missing, a stub, or does not start), fulldeck's replace them, through host memory; the program's calls do not
change. Not verified on hardware: docs/python.md

Torch of that age is otherwise not adapted. So torch.distributed, which does not support tensors of such cards, gets the
same help here: all_reduce, broadcast, all_gather and reduce of tensors on the card, and DistributedDataParallel for
models there."""
import datetime
import functools
import importlib.util
import inspect
import os
import socket
import sys
import types

from fulldeck.adapters import OLDEST, NotKnown, asked, on_import, say, say_once, version_of

KIND = "xla"
LIBRARY = "/usr/lib/libeccl.so"
# Forces fulldeck's collectives, for stacks whose own start and then hang.
FORCED = "FULLDECK_HOST_COLLECTIVES"

# The team of all ranks that replaces the vendor's collectives; None: the vendor's own are used, or none was
# initialized.
_team = None
# The same for torch.distributed.
_torch_team = None
_groups = 0


def adapt(torch_gcu):
    if not has_shape(torch_gcu):
        return None
    import torch

    on_import("torch_gcu.distributed", lambda module: stand_in(torch, torch_gcu, module))
    on_import("torch_gcu.nn.parallel", lambda module: adopt(torch, module))
    did = "its collectives and DistributedDataParallel have a stand-in through host memory where they cannot be had"
    if version_of(torch) < OLDEST["torch"] and torch.distributed.is_available():
        help_torch(torch)
        did += "; so have those of torch {} for tensors of {}".format(torch.__version__, KIND)
    return did + " (not verified on hardware)"


def has_shape(torch_gcu):
    """A stack of lazy graphs with its own collectives; later stacks (gcu:N) use torch.distributed."""
    if not hasattr(torch_gcu, "optimizer_step"):
        return False
    try:
        return importlib.util.find_spec("torch_gcu.distributed") is not None
    except (ImportError, ValueError):
        return False


# ---- choice of collectives


def why_not(module):
    """Why the vendor's collectives are not available on this rank, as far as that can be determined without trying;
    empty if no reason is known."""
    if asked(FORCED):
        return "{} asks for ours".format(FORCED)
    try:
        if hasattr(module, "is_available") and not module.is_available():
            return "torch_gcu.distributed says that it is not available"
        if os.path.exists(LIBRARY):
            from fulldeck._whole import check_whole

            check_whole(LIBRARY)
    except Exception as error:
        return str(error).split("\n")[0]
    return ""


def launched():
    """The number of ranks that the launcher started, and of those on this node."""
    return int(os.environ.get("WORLD_SIZE") or 1), int(os.environ.get("LOCAL_WORLD_SIZE") or 1)


def timeout_of(call):
    from fulldeck.adapters.distributed import launcher_timeout

    given = launcher_timeout() or call.get("timeout")
    return given if isinstance(given, (int, float, datetime.timedelta)) else None


def refusals(every):
    """"rank 0: …" of the first rank with a reason, and the number of ranks that have one."""
    found = [(rank, text) for rank, text in enumerate(every) if text]
    rank, text = found[0]
    return text if len(found) == len(every) else "rank {}{}: {}".format(
        rank, " and {} more".format(len(found) - 1) if len(found) > 1 else "", text)


def begin(torch, module, real, arguments, named):
    """init_process_group. All ranks use the vendor's collectives, or all use fulldeck's: a single rank with a different
    choice would wait forever."""
    global _team
    from fulldeck.adapters import host_collectives

    world, here = launched()
    if _team is not None:
        say_once("torch_gcu.distributed.init_process_group was called again: the group of {} ranks that is there stays".format(_team.size))
        return None
    if world != here:
        try:
            return real(*arguments, **named)
        except Exception:
            say("the vendor's collectives cannot be used, and ours through host memory are for the ranks of one host: there are {}, {} of them "
                "here".format(world, here))
            raise
    check_group_arguments(named)
    team = host_collectives.Team.for_run(timeout_of(named))
    every = team.gather_objects(why_not(module))
    result = None
    if not any(every):
        reason = ""
        try:
            result = real(*arguments, **named)
        except Exception as error:
            reason = "init_process_group: {}: {}".format(type(error).__name__, str(error).split("\n")[0])
        every = team.gather_objects(reason)
        if any(every) and not reason:
            try:
                real_of(module, "destroy_process_group")()
            except Exception as error:
                say("warning: the vendor's group of this rank cannot be left: {}".format(error))
    if not any(every):
        team.close()
        say(line("the vendor's", "torch_gcu.distributed"))
        return result
    prove()
    _team = team
    say(line("fulldeck, through host memory", "the vendor's cannot be used: " + refusals(every)))
    return None


def check_group_arguments(named):
    """A program that passes a size or rank other than the launcher's would train separately."""
    for name, variable in (("world_size", "WORLD_SIZE"), ("rank", "RANK")):
        value = named.get(name)
        if isinstance(value, int) and value >= 0 and str(value) != os.environ.get(variable):
            raise RuntimeError("fulldeck: init_process_group({}={}), and the launcher started this rank with {}={}. Leave it out, or take it "
                               "from the environment.".format(name, value, variable, os.environ.get(variable)))


def prove():
    from fulldeck.adapters import probe

    probe.prove_once()


def line(backend, reason):
    serial = os.environ.get("FULLDECK_CARD_SERIAL")
    return "rank {}/{}, backend {} ({}), device {}{}, host {}".format(
        os.environ.get("RANK"), os.environ.get("WORLD_SIZE"), backend, reason, os.environ.get("FULLDECK_DEVICE", "cpu"),
        ", card serial " + serial if serial else "", socket.gethostname())


def check_place(module):
    from fulldeck.adapters import data_parallel, trace

    trace.wrapped()
    data_parallel.check_place(module)


# ---- torch_gcu.distributed and torch_gcu.nn.parallel


class NoStandIn(RuntimeError):
    """An unsupported call of torch_gcu.distributed."""


class NotAMember:
    """Returned by new_group to ranks that are not in the group."""


_reals = {}


def real_of(module, name):
    return _reals.get(name) or getattr(module, name)


def team_of(group, module):
    if group is None or group is getattr(getattr(module, "group", None), "WORLD", None):
        return _team
    from fulldeck.adapters import host_collectives

    if isinstance(group, host_collectives.Team):
        return group
    raise ValueError("fulldeck: {} is no group that torch_gcu.distributed.new_group made in this run.".format(type(group).__name__))


def calls(torch, module):
    """fulldeck's functions by their names in torch_gcu.distributed; each has the parameters of torch's function of that
    name."""
    from fulldeck.adapters import host_collectives

    def on(group, action, async_op=False):
        """Ranks outside the group do nothing, as in torch."""
        if isinstance(group, NotAMember):
            return None
        action(team_of(group, module))
        return host_collectives.Work() if async_op else None

    def all_reduce(tensor, op=None, group=None, async_op=False):
        return on(group, lambda team: team.all_reduce(tensor, op), async_op)

    def broadcast(tensor, src, group=None, async_op=False):
        return on(group, lambda team: team.broadcast(tensor, src), async_op)

    def reduce(tensor, dst, op=None, group=None, async_op=False):
        return on(group, lambda team: team.reduce(tensor, dst, op), async_op)

    def all_gather(tensor_list, tensor, group=None, async_op=False):
        return on(group, lambda team: team.all_gather(tensor_list, tensor), async_op)

    def barrier(group=None, async_op=False, device_ids=None):
        return on(group, lambda team: team.barrier(), async_op)

    def send(tensor, dst, group=None, tag=0):
        return on(group, lambda team: team.send(tensor, dst, tag))

    def recv(tensor, src=None, group=None, tag=0):
        return -1 if isinstance(group, NotAMember) else team_of(group, module).receive(tensor, src, tag)

    def all_gather_object(object_list, obj, group=None):
        if not isinstance(group, NotAMember):
            object_list[:] = team_of(group, module).gather_objects(obj)

    def broadcast_object_list(object_list, src=0, group=None, device=None):
        if not isinstance(group, NotAMember):
            object_list[:] = team_of(group, module).broadcast_object(list(object_list), src)

    def new_group(ranks=None, timeout=None, *arguments, **named):
        global _groups
        _groups += 1
        members = list(range(_team.size)) if ranks is None else sorted(ranks)
        if _team.rank not in members:
            return NotAMember()
        return host_collectives.Team(members, "host-staged {}".format(_groups), timeout_of({"timeout": timeout}))

    def destroy_process_group(group=None):
        global _team
        if isinstance(group, host_collectives.Team):
            group.close()
        elif not isinstance(group, NotAMember):
            _team.close()
            _team = None

    def rank_of(group=None):
        return -1 if isinstance(group, NotAMember) else team_of(group, module).rank

    def size_of(group=None):
        return -1 if isinstance(group, NotAMember) else team_of(group, module).size

    return {
        "is_initialized": lambda: True, "is_available": lambda: True, "get_backend": lambda group=None: "fulldeck",
        "get_rank": rank_of, "get_world_size": size_of, "all_reduce": all_reduce, "broadcast": broadcast, "reduce": reduce,
        "all_gather": all_gather, "barrier": barrier, "send": send, "recv": recv, "all_gather_object": all_gather_object,
        "broadcast_object_list": broadcast_object_list, "new_group": new_group, "destroy_process_group": destroy_process_group,
    }


def stand_in(torch, torch_gcu, module):
    """Installs a switch in front of each function of torch_gcu.distributed."""
    ours = calls(torch, module)
    if not callable(getattr(module, "init_process_group", None)):
        raise NotKnown("torch_gcu.distributed has no init_process_group")
    replaced = {}
    for name in dir(module):
        real = getattr(module, name)
        if name.startswith("_") or isinstance(real, type) or not isinstance(real, (types.FunctionType, types.BuiltinFunctionType)):
            continue
        replaced[name] = (real, switch(torch, module, name, real, ours.get(name)))
    for name, function in ours.items():
        if name not in replaced:  # this version of the vendor's package lacks it; newer programs may call it
            setattr(module, name, switch(torch, module, name, None, function))
    _reals.update({name: real for name, (real, _) in replaced.items()})
    # Also in other modules of the package that have imported a function by name.
    for other in [found for path, found in list(sys.modules.items()) if path.partition(".")[0] == "torch_gcu"]:
        for name, (real, ours_or_real) in replaced.items():
            if getattr(other, "__dict__", {}).get(name) is real:
                setattr(other, name, ours_or_real)


def switch(torch, module, name, real, ours):
    if name == "init_process_group":
        def call(*arguments, **named):
            return begin(torch, module, real, arguments, named)
    else:
        def call(*arguments, **named):
            if _team is None:
                if real is None:
                    raise AttributeError("module 'torch_gcu.distributed' has no attribute '{}'".format(name))
                return real(*arguments, **named)
            if ours is None:
                raise NoStandIn("fulldeck: torch_gcu.distributed.{}: the vendor's collectives cannot be used in this run, and there is no "
                                "stand-in for this one. There are {}.".format(name, ", ".join(sorted(calls(torch, module)))))
            return ours(*arguments, **named)
    return functools.wraps(real)(call) if real is not None else call


def adopt(torch, module):
    from fulldeck.adapters import host_data_parallel

    wrapper = getattr(module, "DistributedDataParallel", None)
    if not isinstance(wrapper, type):
        raise NotKnown("torch_gcu.nn.parallel has no DistributedDataParallel")

    def team_for(group):
        if _team is None:
            return None
        if isinstance(group, NotAMember):
            raise ValueError("fulldeck: DistributedDataParallel: rank {} is not in process_group. Fix: wrap the model on the ranks of the "
                             "group only.".format(_team.rank))
        return team_of(group, sys.modules.get("torch_gcu.distributed"))

    host_data_parallel.adopt(torch, wrapper, team_for, check_place)


# ---- torch.distributed of that age


def on_card(thing):
    return getattr(getattr(thing, "device", None), "type", None) == KIND


def help_torch(torch):
    from fulldeck.adapters import host_data_parallel

    dist = torch.distributed
    real_init = dist.init_process_group

    @functools.wraps(real_init)
    def init_process_group(*arguments, **named):
        global _torch_team
        from fulldeck.adapters import host_collectives

        world, here = launched()
        if dist.is_initialized():
            say_once("init_process_group was called again: the group of {} ranks that is there stays".format(dist.get_world_size()))
            return None
        backend = str(arguments[0] if arguments else named.get("backend", "")).lower()
        reason = "asked for by the program"
        if backend not in ("gloo", "mpi"):
            reason = "the program asks for {}, and torch {} has none that knows the card".format(backend or "none", torch.__version__)
            arguments = ("gloo",) + tuple(arguments[1:])
            named.pop("backend", None)
        check_group_arguments(named)
        prove()
        result = real_init(*arguments, **named)
        if world > 1 and world == here and dist.get_world_size() == world:
            _torch_team = host_collectives.Team.for_run(timeout_of(named))
        say(line(dist.get_backend() + (", tensors of the card through host memory" if _torch_team else ""), reason))
        return result

    def staged(real, ours):
        signature = inspect.signature(real)

        @functools.wraps(real)
        def call(*arguments, **named):
            given = signature.bind(*arguments, **named).arguments
            if _torch_team is None or not on_card(given.get("tensor")) or given.get("group") not in (None, dist.group.WORLD):
                return real(*arguments, **named)
            from fulldeck.adapters import host_collectives

            ours(**{name: value for name, value in given.items() if name not in ("group", "async_op")})
            return host_collectives.Work() if given.get("async_op") else None
        return call

    ours = {
        "all_reduce": lambda tensor, op=None: _torch_team.all_reduce(tensor, op),
        "broadcast": lambda tensor, src: _torch_team.broadcast(tensor, src),
        "reduce": lambda tensor, dst, op=None: _torch_team.reduce(tensor, dst, op),
        "all_gather": lambda tensor_list, tensor: _torch_team.all_gather(tensor_list, tensor),
    }
    for module in (dist, dist.distributed_c10d):
        for name, function in ours.items():
            setattr(module, name, staged(getattr(module, name), function))
        module.init_process_group = init_process_group

    def team_for(group):
        if _torch_team is not None and group not in (None, dist.group.WORLD) and dist.get_world_size(group) != _torch_team.size:
            raise RuntimeError("fulldeck: DistributedDataParallel(process_group=…) of {} of the {} ranks cannot be had on {}: gradients go "
                               "through host memory there, between all ranks. Fix: leave process_group out, or use "
                               "torch_gcu.distributed.new_group and torch_gcu.nn.parallel.DistributedDataParallel.".format(
                                   dist.get_world_size(group), _torch_team.size, KIND))
        return _torch_team

    host_data_parallel.adopt(torch, torch.nn.parallel.DistributedDataParallel, team_for, check_place)
