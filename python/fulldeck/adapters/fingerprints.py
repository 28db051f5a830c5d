"""What trains and is wrong without a word, said within the first steps (rows J1 to J4 of `fulldeck explain`): every rank on the same
batches, the same order in every epoch, replicas that differ, gradients that nobody reduced.

The ranks leave short numbers in the store of the default group, and rank 0 compares them when all are there: nobody waits for anybody,
and after the first steps a step costs a counter and a comparison. Only models are looked at that DistributedDataParallel wraps for all
ranks of the run."""
import functools
import weakref
import zlib

from fulldeck.adapters import say

BATCH_STEPS = 3          # steps whose batches are compared
FIRST_HASH = 10          # step after which the parameters are compared for the first time
HASH_EVERY = 1000
ROUNDS = 50              # steps that rank 0 waits for the others' numbers
MOST_OF_A_TENSOR = 4096  # bytes

_batch = 0               # of the latest batch from a DataLoader, while they count
_watched = weakref.WeakKeyDictionary()     # wrapper -> Watched
_optimizers = weakref.WeakKeyDictionary()  # optimizer -> Steps
_said = set()


class Watched:
    """Of one wrapped model."""

    def __init__(self, number):
        self.number = number
        self.step = 0
        self.forwards = 0   # through the wrapper, with a backward that reduces
        self.same = 0       # steps whose batches were the same on all ranks
        self.open = {}      # what rank 0 still waits for: name -> step of the first question


class Steps:
    """Of one optimizer."""

    def __init__(self, wrapper):
        self.wrapper = weakref.ref(wrapper)
        self.forwards = -1  # the wrapper's at the last step
        self.unreduced = 0  # steps in a row without a new one


def warn(row, text):
    if row not in _said:
        _said.add(row)
        say("WARNING: {}: {}".format(row, text))


def adapt(torch):
    if not torch.distributed.is_available():
        return None
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    except ImportError:
        return None  # before torch 2.0
    register_optimizer_step_pre_hook(lambda optimizer, *unused: quietly(before_step, torch, optimizer))
    register_optimizer_step_post_hook(lambda optimizer, *unused: quietly(after_step, torch, optimizer))
    _look_at_loaders(torch)
    _look_at_forward(torch)
    return None


def quietly(step, *arguments):
    """Nothing of this may end a training; what fails is not tried again."""
    try:
        step(*arguments)
    except Exception as error:
        _watched.clear()
        say("warning: the ranks are no longer compared: {}: {}".format(type(error).__name__, error))


def watch(wrapper):
    """Called when DistributedDataParallel has wrapped a model."""
    import torch.distributed as dist

    if dist.get_world_size() > 1 and dist.get_world_size(wrapper.process_group) == dist.get_world_size():
        _watched[wrapper] = Watched(len(_watched))


def _of(optimizer):
    """(Steps, Watched) of an optimizer that has parameters of a wrapped model; None of others."""
    if not _watched:
        return None
    steps = _optimizers.get(optimizer)
    if steps is None:
        mine = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for wrapper in list(_watched):
            if any(id(parameter) in mine for parameter in wrapper._module_parameters):
                steps = _optimizers[optimizer] = Steps(wrapper)
                break
        else:
            return None
    watched = _watched.get(steps.wrapper())
    return None if watched is None else (steps, watched)


# ---- steps

def before_step(torch, optimizer):
    found = _of(optimizer)
    if found is None:
        return
    steps, watched = found
    watched.step += 1
    steps.unreduced = steps.unreduced + 1 if steps.forwards == watched.forwards else 0
    steps.forwards = watched.forwards
    if steps.unreduced == 2:
        warn("J4", "the optimizer steps without a forward through DistributedDataParallel that reduces gradients: each rank trains on its own. "
                   "Call the wrapped model, not .module(x), and leave no_sync() before the last backward of a step")


def after_step(torch, optimizer):
    found = _of(optimizer)
    if found is None:
        return
    steps, watched = found
    if watched.step <= BATCH_STEPS and _batch:
        _tell(torch, watched, "batch {}".format(watched.step), _batch)
    if watched.step == FIRST_HASH or watched.step % HASH_EVERY == 0:
        _tell(torch, watched, "parameters {}".format(watched.step), hash_of(torch, steps.wrapper().module))
    if watched.open:
        _compare(torch, watched)


def hash_of(torch, module):
    """The same bits on every rank give the same number: sums of whole numbers do not depend on their order."""
    found = 0
    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            flat = parameter.detach().reshape(-1)
            if parameter.is_complex() or parameter.element_size() not in sizes:
                continue
            total = flat.view(sizes[parameter.element_size()]).sum(dtype=torch.int64).item()
            found = zlib.crc32("{}:{}".format(name, total).encode(), found)
    return found


def _key(watched, name, rank):
    return "fulldeck_fingerprints/{}/{}/{}".format(watched.number, name, rank)


def _tell(torch, watched, name, number):
    dist = torch.distributed
    store = dist.distributed_c10d._get_default_store()
    store.set(_key(watched, name, dist.get_rank()), str(number))
    if dist.get_rank() == 0:
        watched.open[name] = watched.step


def _compare(torch, watched):
    dist = torch.distributed
    store = dist.distributed_c10d._get_default_store()
    for name, asked_at in list(watched.open.items()):
        if watched.step <= asked_at:
            continue
        keys = [_key(watched, name, rank) for rank in range(dist.get_world_size())]
        if not store.check(keys):
            if watched.step > asked_at + ROUNDS:
                del watched.open[name]
            continue
        numbers = [store.get(key).decode() for key in keys]
        del watched.open[name]
        if name.startswith("batch"):
            watched.same += len(set(numbers)) == 1
            if watched.same == BATCH_STEPS:
                warn("J1", "all {} ranks trained their first {} steps on the same batches: the data is not shared out. Give the DataLoader a "
                           "DistributedSampler".format(len(numbers), BATCH_STEPS))
        elif len(set(numbers)) > 1:
            most = max(set(numbers), key=numbers.count)
            warn("J3", "the parameters differ between the ranks after step {}: {}. Was the model replaced, or changed on some ranks, after it was "
                       "wrapped?".format(asked_at, ", ".join("rank {}".format(rank) for rank, number in enumerate(numbers) if number != most)
                                         if numbers.count(most) > 1 else "all of them"))


# ---- batches and epochs

def fingerprint(torch, batch, found=0, depth=0):
    """Of the first bytes of the tensors on the host in a batch; 0 where there are none."""
    if isinstance(batch, torch.Tensor):
        if batch.device.type != "cpu" or batch.layout is not torch.strided or not batch.numel():
            return found
        few = batch.detach().reshape(-1)[:MOST_OF_A_TENSOR // max(1, batch.element_size())].contiguous()
        return zlib.crc32(few.view(torch.uint8).numpy().tobytes(), found)
    if depth < 3:
        parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
        for part in list(parts)[:8]:
            found = fingerprint(torch, part, found, depth + 1)
    return found


def _batches_count():
    return any(watched.step < BATCH_STEPS for watched in _watched.values())


def _look_at_loaders(torch):
    loader = torch.utils.data.DataLoader
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    real_iter, real_next = loader.__iter__, iterator.__next__
    epochs = weakref.WeakKeyDictionary()

    @functools.wraps(real_iter)
    def begin(self):
        sampler = getattr(self, "sampler", None)
        if isinstance(sampler, torch.utils.data.distributed.DistributedSampler) and sampler.shuffle and sampler.num_replicas > 1:
            epoch, ended = epochs.get(sampler, (None, False))
            if ended and epoch == sampler.epoch:
                warn("J2", "the sampler gives the same order in every epoch: call sampler.set_epoch(epoch) before each")
            epochs[sampler] = (sampler.epoch, False)
        return real_iter(self)

    @functools.wraps(real_next)
    def following(self):
        global _batch
        try:
            batch = real_next(self)
        except StopIteration:
            sampler = getattr(getattr(self, "_index_sampler", None), "sampler", None)
            if isinstance(sampler, torch.utils.data.distributed.DistributedSampler) and sampler in epochs:
                epochs[sampler] = (epochs[sampler][0], True)
            raise
        if _watched and _batches_count():
            try:
                _batch = fingerprint(torch, batch)
            except Exception:  # a batch of a kind that nobody thought of
                _batch = 0
        return batch

    loader.__iter__, iterator.__next__ = begin, following


def _look_at_forward(torch):
    wrapper = torch.nn.parallel.DistributedDataParallel
    real = wrapper.forward

    @functools.wraps(real)
    def forward(self, *inputs, **named):
        watched = _watched.get(self)
        if watched is not None and self.require_backward_grad_sync and torch.is_grad_enabled():
            watched.forwards += 1
        return real(self, *inputs, **named)

    wrapper.forward = forward
