"""Data parallel training through host memory (host_collectives.py): parameters are those of rank 0 at the wrap,
gradients are averaged when a backward has ended, buffers follow rank 0 in training. Replaces the behavior of a wrapper
class whose own implementation is not available; the class remains the one that the program named. Works with torch
1.10."""
import contextlib
import functools
import hashlib

from fulldeck.adapters import say_once

# Bytes of gradients that are copied through host memory at once.
CHUNK_BYTES = 64 << 20
# Order of the positional arguments of torch's DistributedDataParallel after the module; later ones are always passed by
# name.
ORDER = ("device_ids", "output_device", "dim", "broadcast_buffers", "process_group")
# Arguments that change how gradients are communicated, not their values: they have no effect here.
WITHOUT_EFFECT = {"bucket_cap_mb": (None, 25), "gradient_as_bucket_view": (None, False), "check_reduction": (None, False),
                  "skip_all_reduce_unused_params": (None, False)}
# Arguments that are supported, or whose guarantee holds here whatever their value.
HONORED = frozenset(ORDER + ("module", "find_unused_parameters", "static_graph"))


class Replica:
    """One wrapped model of this rank."""

    def __init__(self, torch, wrapper, module, team, broadcast_buffers):
        self.torch, self.wrapper, self.team = torch, wrapper, team
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not self.trained:
            raise RuntimeError("fulldeck: DistributedDataParallel: no parameter of the module requires a gradient.")
        self.buffers = [buffer for buffer in module.buffers()] if broadcast_buffers else []
        self.is_wanted = True   # whether the next backward is reduced
        self.is_queued = False  # whether a reduction is queued for the end of the current backward
        self.check_models(module)
        for tensor in list(module.parameters()) + list(module.buffers()):
            team.broadcast(tensor, team.ranks[0])
        for parameter in self.trained:
            parameter.register_hook(self.on_gradient)

    def check_models(self, module):
        text = "\n".join("{} {} {} {}".format(name, tuple(tensor.shape), tensor.dtype, tensor.requires_grad)
                         for name, tensor in module.named_parameters())
        every = self.team.gather_objects(hashlib.sha256(text.encode()).hexdigest())
        others = [self.team.ranks[number] for number, found in enumerate(every) if found != every[0]]
        if others:
            raise RuntimeError("fulldeck: DistributedDataParallel: the model of rank {} has other parameters (names, shapes or types) than "
                               "that of rank {}.".format(", ".join(map(str, others)), self.team.ranks[0]))

    def before_forward(self):
        torch, wrapper = self.torch, self.wrapper
        if not (wrapper.training and torch.is_grad_enabled()):
            return
        self.is_wanted = wrapper.require_backward_grad_sync
        self.is_queued = False  # an earlier backward may have failed midway
        if self.is_wanted:
            for buffer in self.buffers:
                self.team.broadcast(buffer, self.team.ranks[0])

    def on_gradient(self, gradient):
        """Called in a backward for each parameter; the queued callback runs when it has ended and all gradients are in
        .grad."""
        if self.is_wanted and not self.is_queued:
            self.is_queued = True
            self.torch.autograd.Variable._execution_engine.queue_callback(self.average)

    def average(self):
        self.is_queued = False
        torch = self.torch
        with torch.no_grad():
            used = torch.tensor([0 if parameter.grad is None else 1 for parameter in self.trained], dtype=torch.int32, device="cpu")
            self.team.all_reduce(used)
            for parameter in self.trained:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    raise RuntimeError("fulldeck: sparse gradients cannot be averaged through host memory: make the layer dense.")
            # A parameter that no rank used has no gradient on any rank; one that some used counts as 0 on the others.
            for chunk in self.chunks([parameter for parameter, count in zip(self.trained, used.tolist()) if count]):
                self.average_chunk(chunk)

    def chunks(self, parameters):
        """The same on all ranks: one type and at most CHUNK_BYTES each, or a single tensor."""
        chunk, held = [], 0
        for parameter in parameters:
            size = parameter.numel() * parameter.element_size()
            if chunk and (held + size > CHUNK_BYTES or parameter.dtype != chunk[0].dtype):
                yield chunk
                chunk, held = [], 0
            chunk.append(parameter)
            held += size
        if chunk:
            yield chunk

    def average_chunk(self, parameters):
        torch = self.torch
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        # One copy to the host and one back, whatever the number of tensors, because each copy may run a compiled graph.
        flat = torch.cat([parameter.grad.detach().reshape(-1) for parameter in parameters])
        self.team.all_reduce(flat, "AVG")
        begin = 0
        for parameter in parameters:
            part = flat[begin:begin + parameter.numel()]
            parameter.grad.detach().copy_(part.reshape(parameter.grad.shape))
            begin += parameter.numel()


def moved(torch, thing, device):
    """Moves tensors in lists, tuples and dicts to the device, as device_ids requests."""
    if isinstance(thing, torch.Tensor):
        return thing.to(device)
    if isinstance(thing, dict):
        return type(thing)((key, moved(torch, value, device)) for key, value in thing.items())
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return type(thing)(*(moved(torch, value, device) for value in thing))
    if isinstance(thing, (list, tuple)):
        return type(thing)(moved(torch, value, device) for value in thing)
    return thing


def check_arguments(name, requested):
    """Rejects an unsupported argument that would change the result; reports once an argument that changes nothing."""
    unknown = sorted(each for each in requested if each not in HONORED and each not in WITHOUT_EFFECT and requested[each] not in (None, False))
    if unknown:
        raise RuntimeError("fulldeck: {}: {} cannot be honored where gradients go through host memory. Fix: leave it out.".format(
            name, ", ".join("{}={!r}".format(each, requested[each]) for each in unknown)))
    dropped = sorted(each for each in requested if each in WITHOUT_EFFECT and requested[each] not in WITHOUT_EFFECT[each])
    if dropped:
        say_once("{}: {} without effect: gradients go through host memory, in chunks of at most {} MiB".format(
            name, ", ".join("{}={!r}".format(each, requested[each]) for each in dropped), CHUNK_BYTES >> 20))


def adopt(torch, wrapper, team_for, check_place):
    """Replaces the implementation of the class `wrapper` for models for which team_for(process_group) returns a team;
    None: the class's own implementation. It raises for a group that it does not know. check_place(module) raises if a
    module is not on the rank's card."""
    init, forward, no_sync = wrapper.__init__, wrapper.forward, getattr(wrapper, "no_sync", None)

    @functools.wraps(init)
    def wrap(self, *arguments, **named):
        module = arguments[0] if arguments else named.get("module")
        requested = dict(zip(ORDER, arguments[1:]))
        requested.update(named)
        team = team_for(requested.get("process_group")) if isinstance(module, torch.nn.Module) else None
        if team is None:
            return init(self, *arguments, **named)
        check_arguments(type(self).__name__, requested)
        check_place(module)
        torch.nn.Module.__init__(self)
        first = next(module.parameters())
        self.module, self.device, self.dim = module, first.device, requested.get("dim", 0)
        self.device_type, self.is_multi_device_module = first.device.type, False
        self.device_ids, self.output_device = requested.get("device_ids"), requested.get("output_device")
        self.process_group, self.broadcast_buffers = requested.get("process_group"), requested.get("broadcast_buffers", True)
        self.find_unused_parameters = requested.get("find_unused_parameters", False)
        self.static_graph = requested.get("static_graph", False)
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        object.__setattr__(self, "_fulldeck_replica", Replica(torch, self, module, team, self.broadcast_buffers))
        say_once("{}: parameters are those of rank {}, and gradients go through host memory".format(type(self).__name__, team.ranks[0]))

    @functools.wraps(forward)
    def run(self, *inputs, **named):
        replica = self.__dict__.get("_fulldeck_replica")
        if replica is None:
            return forward(self, *inputs, **named)
        replica.before_forward()
        if self.device_ids:
            inputs, named = moved(torch, inputs, self.device), moved(torch, named, self.device)
        return self.module(*inputs, **named)

    @functools.wraps(no_sync or (lambda self: None))
    @contextlib.contextmanager
    def without_sync(self):
        if "_fulldeck_replica" not in self.__dict__ and no_sync is not None:
            with no_sync(self):
                yield
            return
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    wrapper.__init__, wrapper.forward, wrapper.no_sync = wrap, run, without_sync
