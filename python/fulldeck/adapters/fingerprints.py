"""Detects silent errors of distributed training within the first steps (codes J1 to J4, and G5): every rank on the same
batches, the same order in every epoch, replicas that differ, gradients that were not reduced, one file that all ranks
save to.

Each rank writes short fingerprints to the rank board with its step (loop.py); the launcher compares those of its node
and reports the code. No launcher sees the ranks of other nodes, so the first ranks of the nodes compare through the
store of the default group: rank 0 does so when all have reported, and no rank waits. Without a board all ranks compare
there, and each rank reports what it can detect by itself. Only models that DistributedDataParallel wraps for all ranks
of the run are examined. After the first steps, a step costs a few counters."""
import functools
import hashlib
import os
import weakref
import zlib

from fulldeck.adapters import loop, observing, say

BATCH_STEPS = 3          # steps whose batches are compared; the board keeps this number
FIRST_HASH = 10          # step after which the parameters are compared for the first time
HASH_EVERY = 1000
# Steps after which the fingerprint of parameters on a card is reported: the same on all ranks, and by then its copy has
# arrived.
HASH_STEPS = 5
ROUNDS = 50              # steps that rank 0 waits for the others' fingerprints
MAX_SAMPLED_BYTES = 4096  # bytes

_batch = 0               # fingerprint of the latest batch from a DataLoader, while they count
_shapes = []             # of its tensors
# Fingerprint of the forwards' inputs since the latest step, if they are a part of the batch; 0: unknown.
_shard = None
_batches = 0             # steps whose batch was reported
_mixed = 0               # combined fingerprint of the reported batches
_hashed = 0              # step after which the parameters were last hashed
# Of that hash: names and totals of each device, None for totals that have not arrived; empty once it was reported.
_pending_totals = []
_watched = weakref.WeakKeyDictionary()     # wrapper -> Watched
_optimizers = weakref.WeakKeyDictionary()  # optimizer -> Steps
# Optimizer without a wrapped model -> the wrappers that existed when that was determined.
_others = weakref.WeakKeyDictionary()
_open = {}               # pending comparisons on rank 0: name -> step of the first request
_warned = set()


class Watched:
    """State of one wrapped model."""

    def __init__(self):
        self.forwards = 0   # through the wrapper, with a backward that reduces
        self.averages = True  # over all ranks, in every step, as far as is known


class Steps:
    """State of one optimizer."""

    def __init__(self, wrapper):
        self.wrapper, self.watched = weakref.ref(wrapper), _watched[wrapper]
        self.forwards = -1  # the wrapper's at the last step
        self.unreduced = 0  # consecutive steps without a new one


def warn(row, text):
    if row not in _warned:
        _warned.add(row)
        say("WARNING: {}: {}".format(row, text))


def adapt(torch):
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook
    except ImportError:
        return None  # before torch 2.0
    register_optimizer_step_post_hook(observing.untraced(torch, lambda optimizer, *unused: loop.quietly(after_step, torch, optimizer)))
    _watch_loaders(torch)
    _watch_saves(torch)
    if torch.distributed.is_available():
        _watch_forward(torch)
    return None


def watch(wrapper):
    """Called when DistributedDataParallel has wrapped a model."""
    import torch.distributed as dist

    if dist.get_world_size() > 1 and dist.get_world_size(wrapper.process_group) == dist.get_world_size():
        _watched[wrapper] = Watched()


def _of(optimizer):
    """State of an optimizer that has parameters of a wrapped model; None for others."""
    steps = _optimizers.get(optimizer)
    if steps is None and _watched and _others.get(optimizer) != len(_watched):
        mine = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for wrapper in list(_watched):
            if any(id(parameter) in mine for parameter in wrapper._module_parameters):
                steps = _optimizers[optimizer] = Steps(wrapper)
                break
        else:
            _others[optimizer] = len(_watched)
    return steps


# ---- steps

def after_step(torch, optimizer):
    begins = loop.stepped(optimizer)
    steps = _of(optimizer)
    if steps is not None:
        if steps.forwards != steps.watched.forwards:
            steps.forwards, steps.unreduced = steps.watched.forwards, 0
        else:
            _not_reduced(steps)
        if begins and _batches < BATCH_STEPS and _batch:
            _publish_batch(torch)
        if (loop.steps == FIRST_HASH or loop.steps % HASH_EVERY == 0) and _hashed != loop.steps and steps.watched.averages:
            _hash_parameters(torch, steps.wrapper())
        if _pending_totals and loop.steps >= _hashed + HASH_STEPS:
            _publish_parameters(torch)
        if _open:
            _compare(torch)
    if begins:
        loop.tell()


def _not_reduced(steps):
    steps.unreduced += 1
    reported = loop.figures()
    reported.unreduced_steps = max(reported.unreduced_steps, steps.unreduced)
    if steps.unreduced == 2 and not loop.board().is_open:
        warn("J4", "the optimizer steps without a forward through DistributedDataParallel that reduces gradients: each rank trains on its own. "
                   "Call the wrapped model, not .module(x), and leave no_sync() before the last backward of a step")


def _publish_batch(torch):
    global _batch, _shard, _batches, _mixed
    number = _batch if _shard is None else _shard and zlib.crc32(b"%d" % _batch, _shard)
    _batch, _shard = 0, None  # they belong to one step
    if not number:
        _not_compared("each rank takes a part of the batch that the DataLoader gave, and that part is not in host memory")
        return
    _batches += 1
    _mixed = zlib.crc32(b"%d %d" % (loop.steps, number), _mixed)
    loop.figures().batch_fingerprint = number
    if _batches == BATCH_STEPS:
        _tell(torch, "batches", _mixed)


def _hash_parameters(torch, wrapper):
    """Does not wait for a card if torch can copy from it asynchronously."""
    global _hashed
    if wrapper is None:  # the wrapper was deleted, and its parameters are still trained
        return
    _hashed, _pending_totals[:] = loop.steps, []
    found = _totals(torch, wrapper.module, getattr(wrapper, "parameters_to_ignore", ()))
    if found is None:
        return
    parts = [[names, None] for names, _ in found]
    for part, (_, totals) in zip(parts, found):
        def arrived(values, part=part):
            part[1] = values

        if not observing.read_later(torch, totals, arrived):
            if not observing.has_to_wait(torch, totals.device.type):
                return
            part[1] = totals.tolist()
    _pending_totals[:] = parts
    if all(values is not None for _, values in parts):
        _publish_parameters(torch)


def _publish_parameters(torch):
    if observing.pending:
        observing.arrived()
    parts, _pending_totals[:] = list(_pending_totals), []
    if all(values is not None for _, values in parts):
        number = _number_of(parts)
        loop.figures().parameters_fingerprint = number or 1
        _tell(torch, "parameters {}".format(_hashed), number)


ROW = 1 << 16    # words that share a table of factors
ROWS_AT_ONCE = 16
_factors = {}    # device -> the table there


def _table(torch, device):
    """Odd pseudo-random factors, the same in every process: the weight of a word depends on its position."""
    if not _factors:
        mixed = torch.arange(1, ROW + 1, dtype=torch.int64, device="cpu") * -7046029254386353131
        mixed ^= mixed >> 29
        mixed *= -4658895280553007687
        mixed ^= mixed >> 32
        _factors[mixed.device] = mixed | 1
    if device not in _factors:
        # The host's table must stay alive until the copy is done.
        _factors[device] = next(iter(_factors.values())).to(device, non_blocking=True)
    return _factors[device]


def _words_hash(torch, words):
    """Hash of a flat integer tensor, as a tensor on its device: the sum of words times factors, modulo 2**64, by rows,
    and then of the rows' sums. It depends on the position of every word, but not on the device's order of additions."""
    factors = _table(torch, words.device)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for begin in range(0, words.numel(), ROW * ROWS_AT_ONCE):
        chunk = words[begin:begin + ROW * ROWS_AT_ONCE].to(torch.int64)
        whole = chunk.numel() // ROW * ROW
        rows = [(chunk[:whole].view(-1, ROW) * factors).sum(1)] if whole else []
        if whole < chunk.numel():
            rows.append((chunk[whole:] * factors[:chunk.numel() - whole]).sum().reshape(1))
        rows = torch.cat(rows)
        first = begin // ROW
        places = torch.arange(first, first + rows.numel(), device=words.device) % ROW
        total = total * 31 + (rows * factors[places]).sum()
    return total


def _totals(torch, module, ignored):
    """[(names, hash of each)] of the parameters of each device; None while a graph is captured there."""
    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    numbers = {}  # device -> ([name], [number])
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            flat = parameter.detach().reshape(-1)
            if flat.device not in numbers and observing.is_capturing(torch, flat):
                return None
            flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
            if flat.element_size() not in sizes or name in ignored:
                continue
            names, totals = numbers.setdefault(flat.device, ([], []))
            names.append(name)
            totals.append(_words_hash(torch, flat.view(sizes[flat.element_size()])))
        return [(names, torch.stack(totals)) for names, totals in numbers.values()]


def _number_of(parts):
    found = 0
    for names, values in parts:
        for name, total in zip(names, values):
            found = zlib.crc32("{}:{}".format(name, total).encode(), found)
    return found


def hash_of(torch, module, ignored=()):
    """Equal bits at equal positions on every rank give the same number; different bits or positions a different one.
    Waits for a card."""
    return _number_of([(names, totals.tolist()) for names, totals in _totals(torch, module, ignored)])


# ---- comparisons without a launcher

def _number(name, otherwise):
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else otherwise


def _peers(dist):
    """(this rank's number among those that compare, their count, their label); None for a rank that does not
    compare."""
    if not loop.board().is_open:
        return dist.get_rank(), dist.get_world_size(), "rank"
    hosts = _number("GROUP_WORLD_SIZE", 1)
    if hosts > 1 and _number("LOCAL_RANK", 0) == 0:
        return _number("GROUP_RANK", 0), hosts, "the first rank of host"
    return None


def _key(name, peer):
    return "fulldeck_fingerprints/{}/{}".format(name, peer)


def _tell(torch, name, number):
    dist = torch.distributed
    peers = _peers(dist)
    if peers is not None:
        dist.distributed_c10d._get_default_store().set(_key(name, peers[0]), str(number))
        if peers[0] == 0:
            _open[name] = loop.steps


def _compare(torch):
    dist = torch.distributed
    store = dist.distributed_c10d._get_default_store()
    _, count, called = _peers(dist)
    for name, opened_at in list(_open.items()):
        if loop.steps <= opened_at:
            continue
        keys = [_key(name, peer) for peer in range(count)]
        if not store.check(keys):
            if loop.steps > opened_at + ROUNDS:
                del _open[name]
            continue
        numbers = [store.get(key).decode() for key in keys]
        del _open[name]
        if name == "batches":
            if len(set(numbers)) == 1:
                warn("J1", "{} trained their first {} steps on the same batches: the data is not shared out. Give the DataLoader a "
                           "DistributedSampler, with the run's number of ranks and this rank's number".format(
                               "all {} ranks".format(count) if called == "rank" else "the first ranks of all {} hosts".format(count), BATCH_STEPS))
        elif len(set(numbers)) > 1:
            most = max(set(numbers), key=numbers.count)
            warn("J3", "the parameters differ between the {} after step {}: {}. Was the model replaced, or changed on some ranks, after it was "
                       "wrapped? Change it before the wrap, or on all ranks alike".format(
                           "ranks" if called == "rank" else "hosts", name.split()[1],
                           ", ".join("{} {}".format(called, peer) for peer, number in enumerate(numbers) if number != most)
                           if numbers.count(most) > 1 else "all of them"))


# ---- batches and epochs

def fingerprint(torch, batch, found=0, depth=0):
    """Fingerprint of some bytes of the host tensors in a batch, spread over all of them, because borders of images and
    ends of sentences may be the same everywhere; 0 without such tensors."""
    if isinstance(batch, torch.Tensor):
        if batch.device.type != "cpu" or batch.layout is not torch.strided or not batch.numel():
            return found
        # Odd, so that it does not stay in one column of an image.
        stride = batch.numel() * batch.element_size() // MAX_SAMPLED_BYTES | 1
        few = batch.detach().reshape(-1)[::stride].contiguous()
        return zlib.crc32(few.view(torch.uint8).numpy().tobytes(), found)
    if depth < 3:
        parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
        for part in list(parts)[:8]:
            found = fingerprint(torch, part, found, depth + 1)
    return found


def shapes_in(torch, batch, depth=0):
    if isinstance(batch, torch.Tensor):
        return [tuple(batch.shape)]
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return [shape for part in list(parts)[:8] for shape in shapes_in(torch, part, depth + 1)] if depth < 3 else []


def is_shard(shape, whole, ranks):
    """Whether a tensor of this shape may be one rank's part of one of the shape `whole`: a share of its samples, or a
    part of each sample."""
    if shape and whole and shape[0] * ranks == whole[0]:
        return True
    smaller = [(one, all_) for one, all_ in zip(shape, whole) if one != all_]
    return len(shape) == len(whole) and len(smaller) == 1 and 2 * smaller[0][0] <= smaller[0][1]


def _observe_inputs(torch, inputs, ranks):
    """A script may read the same batch on all ranks and give each rank its part of it. Such ranks train on the same
    samples only if the parts are the same too."""
    global _shard
    # Shapes of the batch itself do not count: another of its tensors may have the shape of a part.
    cut = [shape for shape in shapes_in(torch, inputs) if shape not in _shapes]
    if _shard is not None or any(is_shard(shape, whole, ranks) for shape in cut for whole in _shapes):
        _shard = fingerprint(torch, inputs, _shard or 0)


def samples_in(torch, batch):
    """The number of rows of a batch, if all of its tensors have the same number; otherwise 0."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else 0
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    rows = 0
    for part in parts if len(parts) <= 8 else ():
        if isinstance(part, torch.Tensor) and part.dim():
            if rows not in (0, len(part)):
                return 0
            rows = len(part)
    return rows


def _watch_loaders(torch):
    loader = torch.utils.data.DataLoader
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    real_iter, real_next = loader.__iter__, iterator.__next__
    epochs = weakref.WeakKeyDictionary()

    @functools.wraps(real_iter)
    def begin(self):
        sampler = getattr(self, "sampler", None)
        # Without gradients it is an evaluation on the training data, in the same epoch as the training pass.
        if (isinstance(sampler, torch.utils.data.distributed.DistributedSampler) and sampler.shuffle and sampler.num_replicas > 1
                and torch.is_grad_enabled()):
            epoch, ended = epochs.get(sampler, (None, False))
            if ended and epoch == sampler.epoch:
                loop.quietly(_same_order)
            epochs[sampler] = (sampler.epoch, False)
        return real_iter(self)

    @functools.wraps(real_next)
    def following(self):
        wait_started = loop.quietly(loop.data_begins, torch.is_grad_enabled())
        try:
            batch = real_next(self)
        except StopIteration:
            _pass_ended()
            sampler = getattr(getattr(self, "_index_sampler", None), "sampler", None)
            if isinstance(sampler, torch.utils.data.distributed.DistributedSampler) and sampler in epochs and torch.is_grad_enabled():
                epochs[sampler] = (epochs[sampler][0], True)
            raise
        loop.quietly(_observe_batch, torch, batch, wait_started)
        return batch

    loader.__iter__, iterator.__next__ = begin, following


def _pass_ended():
    """Its last batch is not for the next step: a script that trains on its own batches may validate with a
    DataLoader."""
    global _batch
    _batch = 0


def _same_order():
    loop.figures().repeated_orders += 1
    if not loop.board().is_open:
        warn("J2", "the sampler gives the same order in every epoch: call sampler.set_epoch(epoch) before each")


def _not_compared(reason):
    """Reports that J1 is off, and why: once per run, by its first rank."""
    if "J1 off" not in _warned and _number("RANK", 0) == 0:
        say("note: J1 (all ranks train on the same batches) is not checked: {}".format(reason))
    _warned.add("J1 off")


def _observe_batch(torch, batch, wait_started):
    global _batch, _shapes
    if _watched and _batches < BATCH_STEPS and torch.is_grad_enabled():
        try:
            _batch, _shapes = fingerprint(torch, batch), shapes_in(torch, batch)
            if not _batch:
                _not_compared("no tensor in host memory is in the batch that the DataLoader gave ({})".format(type(batch).__name__))
        except Exception as error:  # a batch of an unexpected kind
            _batch = 0
            _not_compared("a batch of type {}: {}: {}".format(type(batch).__name__, type(error).__name__, error))
    if wait_started:
        loop.data_ended(wait_started, samples_in(torch, batch) if wait_started > 0 else 0)


def _watch_saves(torch):
    real = torch.save

    @functools.wraps(real)
    def save(obj, f, *arguments, **named):
        real(obj, f, *arguments, **named)
        if isinstance(f, (str, os.PathLike)):
            loop.quietly(_saved, f)

    torch.save = save


def _saved(path):
    path = os.path.realpath(os.fspath(path))
    if os.path.isfile(path):  # not /dev/null
        path = path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
        loop.board().saved(int.from_bytes(hashlib.blake2b(path, digest_size=8).digest(), "little") or 1)


# Modules whose hooks leave the same gradients on all ranks.
AVERAGING_HOOKS = ("default_hooks", "powerSGD_hook", "quantization_hooks", "optimizer_overlap_hooks", "mixed_precision_hooks", "debugging_hooks")


def _watch_forward(torch):
    wrapper = torch.nn.parallel.DistributedDataParallel
    real, real_register = wrapper.forward, wrapper.register_comm_hook
    is_compiling = observing.compiling(torch)

    @functools.wraps(real_register)
    def register_comm_hook(self, state, hook):
        real_register(self, state, hook)
        watched = _watched.get(self)
        if watched is not None and (getattr(hook, "__module__", None) or "").rpartition(".")[2] not in AVERAGING_HOOKS:
            watched.averages = False  # local SGD, for example

    @functools.wraps(real)
    def forward(self, *inputs, **named):
        watched = _watched.get(self)
        if watched is not None and self.require_backward_grad_sync and torch.is_grad_enabled():
            watched.forwards += 1
            loop.figures().reductions += 1
            if _batch and _batches < BATCH_STEPS and not is_compiling():
                loop.quietly(_observe_inputs, torch, [list(inputs), named], torch.distributed.get_world_size())
        return real(self, *inputs, **named)

    wrapper.forward, wrapper.register_comm_hook = forward, register_comm_hook
