"""Observes labels and batches of the user's script: whether every label is the same, and which samples come from which
DataLoader. observing.py has the contract of these checks; silent.py starts them, and validation.py judges data that is
read without being trained on."""
import functools
import weakref

from fulldeck import board as boards
from fulldeck.adapters import losses, sources, validation
from fulldeck.adapters.observing import compiling, guarded, is_capturing, observe, read_later

FIRST_BATCHES = 20       # batches that are searched for labels before the first loss
LABEL_BATCHES = 100      # losses after which it is known whether the labels come from the batches
MIN_BATCHES = 10      # fewer are not enough to judge labels
ENOUGH_BATCHES = 50      # the launcher requires this number during the run (script_faults.cc)
# Labels that are not in the batch: a single case may be a framework that has already read the next batch.
SYNTHETIC_LABELS = 3
MAX_BATCHES = 2000      # if no pass ends
READ_EVERY = 10          # losses, of labels on a card, once it is known what to compare with
MAX_ELEMENTS = 1 << 20  # of an integer tensor in a batch
BATCH_STEPS = 8          # a loss after more steps does not belong to the latest batch
HASHED_BATCHES = 64      # per DataLoader
HASHED_ROWS = 32         # per batch
ROW_BYTES = 512          # per row, spread over all of it
MAX_LOADERS = 32        # a script may create a new one per epoch


# ---- labels

class Labels:
    """The labels of losses of one kind. Data may be sorted by class, so a single label means nothing before a pass has
    ended."""

    def __init__(self):
        self.looks = 0       # losses that were examined; `over` is set once two labels were seen
        self.judged = 0      # of them: losses whose labels have arrived
        self.label = None    # the only label of all batches so far
        self.batches = 0     # batches with that label
        self.passed = 0      # looks when a pass ended
        self.elements = 0    # of the latest labels
        self.synthetic = 0        # batches whose labels the script created: they are not in the batch
        self.ignored = -100  # the ignored value of the latest labels
        self.over = False
        self.differ = None   # on the card: whether any label since the last copy differs
        self.unread = 0      # looks since then


# Class numbers, maps of class numbers, class probabilities, and binary labels (0 or 1).
_classes, _dense, _soft, _binary = _kinds = Labels(), Labels(), Labels(), Labels()
# Tensors of the latest batch whose elements are all equal: (value, elements, whether it is an integer map).
_constants = ()
_constants_of_all = False  # whether floating-point tensors are included


def watch_labels(torch):
    functional = torch.nn.functional
    for name in ("cross_entropy", "nll_loss"):
        _watch_loss(torch, functional, name, _classes)
    for name in ("binary_cross_entropy", "binary_cross_entropy_with_logits"):
        _watch_loss(torch, functional, name, _binary)


def _watch_loss(torch, functional, name, kind):
    real = getattr(functional, name)
    is_compiling = compiling(torch)

    @functools.wraps(real)
    def loss(input, target, *arguments, **named):
        if not is_compiling():
            if torch.is_grad_enabled() and (not kind.over or kind is _classes):
                labels(torch, input, target, named.get("ignore_index", -100), kind)
            found = real(input, target, *arguments, **named)
            if torch.is_grad_enabled():
                losses.computed(torch, found)
            return found
        return real(input, target, *arguments, **named)

    loss.__prepare_scriptable__ = lambda: real  # torch.jit.script uses torch's own function
    setattr(functional, name, loss)


@guarded
def labels(torch, output, target, ignored, kind):
    if type(target) is not torch.Tensor:
        return
    if kind is _classes:
        kind = _soft if target.is_floating_point() else _dense if target.dim() > 2 else _classes
    if (kind.over or target.is_floating_point() != (kind in (_soft, _binary)) or (kind is _soft and (target.dim() != 2 or len(target) < 2))
            or not target.numel() or not getattr(output, "requires_grad", False) or torch._C._len_torch_dispatch_stack()
            or torch._C._functorch.maybe_current_level() is not None or is_capturing(torch, target)):
        return
    kind.elements, kind.ignored = target.numel(), ignored
    # Constant labels that are not in the batch were created by the script, as in contrastive losses and GANs. Masks may
    # have been scaled.
    from_data = kind.looks >= LABEL_BATCHES or [value for value, elements, is_map in _constants if (elements == kind.elements or (
        is_map and kind is _dense)) and steps < _fetched_at + BATCH_STEPS]
    may_be_synthetic = _constants_of_all
    if kind.looks >= LABEL_BATCHES and kind.batches < MIN_BATCHES:
        kind.over = True
        return
    kind.looks += 1
    with torch.no_grad():
        if kind.looks > LABEL_BATCHES and kind.label is not None and target.device.type != "cpu" and kind is not _soft:
            _compare_labels(torch, kind, target.detach(), ignored)
            return

        def arrived(values):
            _judge_labels(kind, values, from_data, may_be_synthetic)

        if kind is _soft:
            few = _rows_alike(torch, target.detach())
        else:
            few = torch.stack(torch.aminmax(target.detach())) if kind is _binary else _least_and_largest(torch, target.detach(), ignored)
        if not read_later(torch, few, arrived):
            kind.judged += 1


def _rows_alike(torch, target):
    """The most probable class, twice if all rows are the same."""
    likeliest = target[0].argmax()
    return torch.stack((likeliest, torch.where((target == target[0]).all(), likeliest, likeliest + 1)))


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


def _compare_labels(torch, kind, target, ignored):
    """Compares on the card, because a copy each time would cost more."""
    others = target != kind.label if kind is _binary else (target != kind.label) & (target != ignored)
    if kind.differ is not None and kind.differ.device != target.device:
        _read_labels(torch, kind)
    kind.differ = others.any() if kind.differ is None else kind.differ | others.any()
    kind.unread += 1
    if kind.unread >= READ_EVERY:
        _read_labels(torch, kind)


def _read_labels(torch, kind):
    differ, looks = kind.differ, kind.unread
    kind.differ, kind.unread = None, 0

    def arrived(values):
        kind.judged += looks
        _judge_same(kind, not values[0], looks)

    if not read_later(torch, differ.reshape(1), arrived):
        kind.judged += looks


def _judge_labels(kind, values, from_data, may_be_synthetic):
    """`from_data`: whether the labels come from the batch, or the values of those tensors in it that they may come
    from; `may_be_synthetic`: whether all tensors were examined."""
    least, largest = values
    kind.judged += 1
    if kind.over or least > largest:  # every label is ignored
        return
    if least == largest and from_data is not True and least not in from_data:
        kind.synthetic += may_be_synthetic
        kind.over = kind.synthetic >= SYNTHETIC_LABELS
        return
    same = least == largest and kind.label in (None, least) and (kind is not _binary or least in (0, 1))
    kind.label = least
    _judge_same(kind, same, 1)


def _judge_same(kind, same, looks):
    if kind.over:
        return
    if not same:
        kind.over = True
        if not any(other.passed for other in _kinds if other is not kind):
            observe(boards.CHECK_LABELS, 2)
        return
    kind.batches += looks
    if kind.batches >= MAX_BATCHES or (kind.passed and kind.judged >= kind.passed):
        _report_labels(kind)


def _report_labels(kind):
    if kind.batches >= MIN_BATCHES:
        observe(boards.CHECK_LABELS, 1, value=int(kind.label) & (1 << 64) - 1, count=kind.batches)
        kind.over = kind.batches >= ENOUGH_BATCHES


@guarded
def labels_passed(torch):
    """A pass over training data has ended: a second label would have been seen."""
    for kind in _kinds:
        if not kind.over and kind.differ is not None and not is_capturing(torch, kind.differ):
            _read_labels(torch, kind)
        if not kind.over and kind.batches >= MIN_BATCHES:
            kind.passed = kind.looks
            if kind.judged >= kind.passed:
                _report_labels(kind)


@guarded
def last_labels():
    for kind in _kinds:
        if not kind.over:
            _report_labels(kind)


# ---- batches: which samples are trained on, and which are not

class Loaded:
    """State of one DataLoader."""

    def __init__(self, samples, source=None):
        self.samples = samples  # of its dataset; 0: unknown
        self.source = source    # which samples these are, as the dataset lists them
        self.trains = False
        self.recent = 0         # batches since the last step
        self.batches = 0
        self.rows = set()
        self.seen = 0           # rows, within one pass
        self.repeated = 0
        self.read = validation.Read()


_loaders = weakref.WeakKeyDictionary()
_gone = []                 # of loaders that no longer exist
_latest = None             # the loader of the latest batch
_recent = []               # loaders of the batches since the last step
fetched = 0                # batches
_fetched_at = 0            # steps at the latest batch
steps = 0


def loaders():
    return list(_loaders.values()) + _gone


def watch_batches(torch):
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    real = iterator.__next__

    @functools.wraps(real)
    def following(self):
        try:
            batch = real(self)
        except StopIteration:
            pass_over(torch, self)
            raise
        a_batch(torch, self, batch)
        return batch

    iterator.__next__ = following


def _key_of(iterator):
    """The object that a DataLoader keeps from pass to pass. If it is a list or the like, to which no state can be
    attached, the pass itself."""
    sampler = iterator._index_sampler
    try:
        weakref.ref(sampler)
        hash(sampler)
        return sampler
    except TypeError:
        return iterator


@guarded
def pass_over(torch, iterator):
    loaded = _loaders.get(_key_of(iterator))
    if loaded is not None and loaded.trains:
        labels_passed(torch)
    pass_ended(loaded)
    validation.pass_read(loaders(), loaded, steps)


@guarded
def a_batch(torch, iterator, batch):
    global _latest, _constants, _constants_of_all, _fetched_at, fetched
    fetched += 1
    _fetched_at = steps
    sampler = _key_of(iterator)
    loaded = _loaders.get(sampler)
    if validation.is_watching():
        validation.end_watch(loaded)
    if loaded is None:
        try:
            samples = len(iterator._dataset)
        except (TypeError, NotImplementedError, AttributeError):
            samples = 0
        loaded = _loaders[sampler] = Loaded(samples, sources.of(iterator._dataset, sampler))
        if len(_loaders) + len(_gone) <= MAX_LOADERS:
            weakref.finalize(sampler, _gone.append, loaded).atexit = False
        else:
            loaded.batches = HASHED_BATCHES
    if torch.is_grad_enabled():
        _latest = loaded
        if not loaded.recent:
            _recent.append(loaded)
        loaded.recent += 1
    _constants_of_all = any(kind.looks for kind in _kinds)
    _constants = tuple(_constants_in(torch, batch)) if _constants_of_all or fetched <= FIRST_BATCHES else ()
    if loaded.batches < HASHED_BATCHES:
        loaded.batches += 1
        pass_rows = iterator.__dict__.setdefault("_fulldeck_rows", set())
        for row in rows_of(torch, batch):
            loaded.seen += 1
            loaded.repeated += row in pass_rows
            pass_rows.add(row)
            loaded.rows.add(row)
    if steps and not (loaded.trains and torch.is_grad_enabled()):
        validation.follow(torch, iterator, loaded, loaders(), tensors_in(torch, batch), steps)


def tensors_in(torch, batch, depth=0):
    """The first tensors of a batch that are in host memory."""
    if isinstance(batch, torch.Tensor):
        if batch.device.type == "cpu" and batch.layout is torch.strided and batch.numel() and type(batch) is torch.Tensor:
            yield batch
    elif depth < 3:
        named = callable(getattr(batch, "values", None)) and hasattr(batch, "keys")
        parts = batch.values() if named else batch if isinstance(batch, (list, tuple)) else ()
        for part in list(parts)[:8]:
            yield from tensors_in(torch, part, depth + 1)


def _constants_in(torch, batch):
    """Possible constant labels; empty if the labels of a loss are known to differ."""
    open_kinds = [kind for kind in _kinds if not kind.over and kind.looks < LABEL_BATCHES and (kind.looks or not _constants_of_all)]
    sizes = [kind.elements for kind in open_kinds if kind.elements]
    for tensor in tensors_in(torch, batch) if open_kinds else ():
        whole = tensor.dtype in (torch.int64, torch.int32, torch.uint8)
        if (whole and tensor.numel() <= MAX_ELEMENTS) or tensor.numel() in sizes:
            tensor, elements = tensor.detach(), tensor.numel()
            if elements == _soft.elements and tensor.dim() == 2 and tensor.is_floating_point():
                least, largest = _rows_alike(torch, tensor).tolist()
                value = least if least == largest else None
            else:
                value = _constant(torch, tensor.reshape(-1), whole)
            if value is not None:
                yield value, elements, whole and tensor.dim() > 2


def _constant(torch, flat, whole):
    """The value of all elements except ignored labels; None if they differ."""
    if whole:
        least, largest = _least_and_largest(torch, flat, next((kind.ignored for kind in _kinds if kind.looks), -100)).tolist()
        return least if least == largest else None
    for part in (flat[::flat.numel() // 512 + 1], flat):
        if (part != flat[0]).any():
            return None
    return flat[0].item()


def rows_of(torch, batch):
    """A hash of each of the first samples: equal for equal samples. Empty if the tensors of the batch do not have one
    row per sample."""
    tensors = [tensor for tensor in tensors_in(torch, batch) if tensor.dim()]
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
    """Its batches are not for the next step: a script that trains on its own batches may validate with a DataLoader."""
    if loaded is not None and loaded.recent:
        loaded.recent = 0
        _recent.remove(loaded)


def after_step():
    global steps
    steps += 1
    if _recent:
        trained_on()
    if validation.is_watching():
        validation.end_watch()


@guarded
def trained_on():
    """The latest batch was for this step, and so were those of loaders with the same number of batches, such as a pair
    of loaders. A validation between two steps yields more."""
    count = _latest.recent or _recent[-1].recent
    for loaded in _recent:
        if loaded.recent == count:
            loaded.trains = True
        loaded.recent = 0
    del _recent[:]


def at_exit():
    last_labels()
    validation.judge(loaders(), steps)
