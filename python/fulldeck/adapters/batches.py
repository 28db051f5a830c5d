"""Observes labels and batches of the user's script: whether every label is the same, and which samples train and which validate. The contract of
these checks is in observing.py; silent.py starts them."""
import functools
import weakref

from fulldeck import board as boards
from fulldeck.adapters.observing import guarded, observe, read_later

LABEL_BATCHES = 100      # batches in which labels of one class are looked at; with two classes it is over at once
FEWEST_BATCHES = 10      # fewer say nothing about labels
HASHED_BATCHES = 64      # of each DataLoader
HASHED_ROWS = 32         # of each batch
ROW_BYTES = 512          # of each row, taken from all over it
FEWEST_ROWS = 16
MOST_LOADERS = 32        # a script may make a new one for each epoch


# ---- labels

_label_batches = 0
_label = None            # the one label of all batches so far
_labels_differ = False
_integers = ()           # (least, largest, elements) of the integer tensors of the latest batch


def watch_labels(torch):
    functional = torch.nn.functional
    for name in ("cross_entropy", "nll_loss"):
        _watch_loss(torch, functional, name)


def _watch_loss(torch, functional, name):
    real = getattr(functional, name)
    is_compiling = torch.compiler.is_compiling if hasattr(torch, "compiler") else torch._dynamo.is_compiling

    @functools.wraps(real)
    def loss(input, target, *arguments, **named):
        if not is_compiling() and not _labels_differ:
            labels(torch, input, target, named.get("ignore_index", -100))
        return real(input, target, *arguments, **named)

    loss.__prepare_scriptable__ = lambda: real  # torch.jit.script takes torch's own
    setattr(functional, name, loss)


@guarded
def labels(torch, output, target, ignored):
    global _label_batches
    if (type(target) is not torch.Tensor or target.is_floating_point() or not target.numel() or not torch.is_grad_enabled()
            or not getattr(output, "requires_grad", False) or _label_batches >= LABEL_BATCHES or torch._C._len_torch_dispatch_stack()
            or torch._C._functorch.maybe_current_level() is not None):
        return
    seen, several = _integers, target.dim() > 1

    def arrived(values):
        _judge_labels(values, seen, several)

    with torch.no_grad():
        read_later(torch, _least_and_largest(torch, target.detach(), ignored), arrived)


def _least_and_largest(torch, target, ignored):
    limits = torch.iinfo(target.dtype)
    flat = target.reshape(-1)
    if flat.device.type == "cpu" and flat.numel() > 16384:
        few = _least_and_largest(torch, flat[::flat.numel() // 8192], ignored)
        if few[0] != few[1]:
            return few
    if not limits.min <= ignored <= limits.max:
        return torch.stack((flat.min(), flat.max()))
    return torch.stack((torch.where(flat == ignored, limits.max, flat).min(), torch.where(flat == ignored, limits.min, flat).max()))


def _judge_labels(values, seen, several):
    global _label_batches, _label, _labels_differ
    least, largest = values
    if least > largest or _labels_differ:  # every label is ignored
        return
    # Labels of one class that are not in the batch were made by the script: contrastive losses have such.
    if not several and not any(low == high == least for low, high in seen):
        if least == largest:
            return
    if least != largest or _label not in (None, least):
        _labels_differ = True
        observe(boards.CHECK_LABELS, 2)
        return
    _label = least
    _label_batches += 1
    if _label_batches >= FEWEST_BATCHES and _label_batches % 10 == 0:
        observe(boards.CHECK_LABELS, 1, value=_label & (1 << 64) - 1, count=_label_batches)


# ---- batches: which samples train, and which validate

class Loaded:
    """Of one DataLoader."""

    def __init__(self, samples):
        self.samples = samples  # of its data set; 0: not known
        self.trains = False
        self.same = None        # its samples are training samples; None: not known yet
        self.recent = 0         # batches since the last step
        self.batches = 0
        self.rows = set()
        self.seen = 0           # rows, within one pass
        self.repeated = 0


_loaders = weakref.WeakKeyDictionary()
_gone = []                 # of loaders that no longer exist
_latest = None             # where the latest batch came from
_recent = []               # where batches came from since the last step
fetched = 0                # batches


def watch_batches(torch):
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    real = iterator.__next__

    @functools.wraps(real)
    def following(self):
        try:
            batch = real(self)
        except StopIteration:
            pass_over(self)
            raise
        a_batch(torch, self, batch)
        return batch

    iterator.__next__ = following


def _key_of(iterator):
    """What a DataLoader keeps from pass to pass; its pass itself where that is a list or the like, which nothing can be remembered of."""
    sampler = iterator._index_sampler
    try:
        weakref.ref(sampler)
        hash(sampler)
        return sampler
    except TypeError:
        return iterator


@guarded
def pass_over(iterator):
    loaded = _loaders.get(_key_of(iterator))
    pass_ended(loaded)
    validation(loaded)


@guarded
def a_batch(torch, iterator, batch):
    global _latest, _integers, fetched
    fetched += 1
    sampler = _key_of(iterator)
    loaded = _loaders.get(sampler)
    if loaded is None:
        try:
            samples = len(iterator._dataset)
        except (TypeError, NotImplementedError, AttributeError):
            samples = 0
        loaded = _loaders[sampler] = Loaded(samples)
        if len(_loaders) + len(_gone) <= MOST_LOADERS:
            weakref.finalize(sampler, _gone.append, loaded).atexit = False
        else:
            loaded.batches = HASHED_BATCHES
    if torch.is_grad_enabled():
        _latest = loaded
        if not loaded.recent:
            _recent.append(loaded)
        loaded.recent += 1
    if not _labels_differ and _label_batches < LABEL_BATCHES:
        _integers = tuple(_integers_in(torch, batch))
    if loaded.batches < HASHED_BATCHES:
        loaded.batches += 1
        pass_rows = iterator.__dict__.setdefault("_fulldeck_rows", set())
        for row in rows_of(torch, batch):
            loaded.seen += 1
            loaded.repeated += row in pass_rows
            pass_rows.add(row)
            loaded.rows.add(row)


def _tensors_in(torch, batch, depth=0):
    if isinstance(batch, torch.Tensor):
        if batch.device.type == "cpu" and batch.layout is torch.strided and batch.numel() and type(batch) is torch.Tensor:
            yield batch
    elif depth < 3:
        named = callable(getattr(batch, "values", None)) and hasattr(batch, "keys")
        parts = batch.values() if named else batch if isinstance(batch, (list, tuple)) else ()
        for part in list(parts)[:8]:
            yield from _tensors_in(torch, part, depth + 1)


def _integers_in(torch, batch):
    for tensor in _tensors_in(torch, batch):
        if tensor.dtype in (torch.int64, torch.int32, torch.uint8) and tensor.numel() <= 1 << 20:
            yield tuple(_least_and_largest(torch, tensor, -100).tolist())


def rows_of(torch, batch):
    """A number for each of the first samples: equal for equal samples. Nothing for batches whose tensors do not have one row a sample."""
    tensors = [tensor for tensor in _tensors_in(torch, batch) if tensor.dim()]
    if not tensors:
        return
    if isinstance(batch, dict) and isinstance(batch.get("inputs"), list):  # MMEngine: a list of images, of any size
        parts = [[tensor.reshape(1, -1)] for tensor in batch["inputs"] if isinstance(tensor, torch.Tensor)]
    else:
        count = len(tensors[0])
        if any(len(tensor) != count for tensor in tensors):
            return
        wide = [tensor.reshape(count, -1) for tensor in tensors]
        parts = [[tensor[number:number + 1] for tensor in wide] for number in range(min(count, HASHED_ROWS))]
    for part in parts[:HASHED_ROWS]:
        found = b"".join(_few_bytes(torch, tensor) for tensor in part)
        if len(found) >= 16 and found.count(found[:1]) < len(found):
            yield hash(found)


def _few_bytes(torch, row):
    stride = row.numel() * row.element_size() // ROW_BYTES | 1
    return row.detach().reshape(-1)[::stride].contiguous().view(torch.uint8).numpy().tobytes()


@guarded
def pass_ended(loaded):
    """Its batches are not for the next step: a script that trains on batches of its own may validate with a DataLoader."""
    if loaded is not None and loaded.recent:
        loaded.recent = 0
        _recent.remove(loaded)


def after_step():
    if _recent:
        trained_on()


@guarded
def trained_on():
    """The latest batch was for this step, and so were those of loaders that gave as many: a pair of loaders. A validation between two steps gives
    more."""
    count = _latest.recent or _recent[-1].recent
    for loaded in _recent:
        if loaded.recent == count:
            loaded.trains = True
        loaded.recent = 0
    del _recent[:]


@guarded
def validation(ended=None):
    """Compares a loader that does not train when it has ended a pass, once: later folds may train on what an earlier one validated with."""
    loaders = list(_loaders.values()) + _gone
    trained = [loaded for loaded in loaders if loaded.trains and loaded.seen and loaded.repeated <= 0.1 * loaded.seen]
    others = [loaded for loaded in loaders if not loaded.trains and len(loaded.rows) >= FEWEST_ROWS]
    if not trained or not others:
        return
    rows = set().union(*(loaded.rows for loaded in trained))
    samples = max(loaded.samples or len(loaded.rows) for loaded in trained)
    covered = min(1.0, len(rows) / max(1, samples))  # of the training set: so much of a copy of it would be recognized
    matched = compared = 0
    for loaded in others:
        same, expected = len(rows & loaded.rows), covered * len(loaded.rows)
        if loaded.same is None and ended in (None, loaded) and expected >= FEWEST_ROWS:
            loaded.same = same >= max(FEWEST_ROWS, 0.5 * expected)
        if loaded.same is not None:
            matched += same
            compared += len(loaded.rows)
    verdicts = {loaded.same for loaded in others} - {None}
    if verdicts:
        observe(boards.CHECK_VALIDATION, 2 if False in verdicts else 1, value=matched, count=compared)
