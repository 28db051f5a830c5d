"""Observes whether the script validates on its training samples. observing.py has the contract of this check;
batches.py calls it.

Reading the training data a second time is not a fault: statistics of the dataset, a bank of features, clustering, FID
against real images. A pass over a DataLoader is a validation on training samples if all of the following hold: its
samples are training samples (compared one by one, or as its dataset lists them: sources.py), the training continues
afterwards, in that pass the trained model ran on those batches in eval mode without gradients, and the script's own
names indicate validation. If only some hold, it is a note, and so is a training set of a few batches, as used for
debugging; without the model it is nothing at all. A pass over the loader that trains is a validation only if a variable
with such a name holds it: the score on the training data is often intended."""
import re
import sys
import weakref

from fulldeck import board as boards
from fulldeck.adapters import sources
from fulldeck.adapters.observing import guarded, observe

MIN_ROWS = 16
DEBUG_ROWS = 64          # of a training set that is probably an overfitting test
WATCHED_BATCHES = 4      # in which the model must run, each time
MAX_WATCHES = 8         # per DataLoader
DEPTH = 4                # of the watched modules
MAX_SEARCHES = 4        # for them
FRAMES = 10

# Parts of names: run_val_epoch, ValLoop, evaluate, testloader.
VALIDATES = re.compile(r"(val|valid|validate|validation|validating|eval|evaluate|evaluation|evaluating|test|testing|dev)(set|data|loader|loop|dl|ds)?")
TRAINS = re.compile(r"(train|training|trn)(set|data|loader|loop|dl|ds)?")
READS = ("fid", "kid", "inception", "knn", "neighbors", "cluster", "clusters", "clustering", "kmeans", "feature", "features", "embedding", "embeddings",
         "bank", "prototypes", "statistics", "pseudo", "mining", "swa", "bn", "calibrate", "calibration")


class Read:
    """State of one DataLoader that does not feed the optimizer."""

    def __init__(self):
        self.same = None     # whether its samples are training samples; None: not known yet
        self.batches = 0     # of the pass
        self.watches = 0
        self.ran_at = None   # up to this step the model ran on its batches, in eval mode and without gradients
        self.scored = False  # whether that was a validation, by name
        self.named = False


class Watch:
    """The current batches, with hooks on the model until it has run on them."""

    def __init__(self, read, sizes, handles, steps):
        self.read, self.sizes, self.handles, self.steps = read, sizes, handles, steps
        self.until = read.batches + WATCHED_BATCHES
        self.ran = False

    def end(self):
        for handle in self.handles:
            handle.remove()
        self.handles = []


trained = set            # returns the ids of the trained parameters (silent.py)
_watch = None
_models = []             # weak references to the watched modules among those that train
_searches = 0


def is_watching():
    return _watch is not None


@guarded
def follow(torch, iterator, loaded, loaders, tensors, steps):
    """Called with a batch before the script gets it: of a loader that does not train, or of one that does while
    gradients are off."""
    global _watch
    read = loaded.read
    first = not iterator.__dict__.setdefault("_fulldeck_is_read", False)
    iterator._fulldeck_is_read = True
    read.batches = 1 if first else read.batches + 1
    # A comparison costs more than a counter, so it runs only a few times per pass.
    if (_watch is not None or read.same is False or read.scored or read.watches >= MAX_WATCHES or read.batches & (read.batches - 1)
            or not (loaded.trains or is_same(loaded, loaders))):
        return
    models = models_that_train(torch)
    if all(model.training for model in models):
        return
    read.watches += 1
    read.named, reads_only, held = names_on(torch, sys._getframe(), iterator)
    if reads_only or (loaded.trains and not held):
        return
    largest = max(tensors, key=lambda tensor: tensor.numel(), default=None)
    if largest is not None:
        # A framework may stack a list of images; a script may flatten them.
        count = getattr(iterator._index_sampler, "batch_size", 1)
        sizes = {largest.numel(), largest.numel() * (count if isinstance(count, int) else 1)}
        _watch = Watch(read, sizes, [model.register_forward_pre_hook(_before_forward, with_kwargs=True) for model in models], steps)


def _before_forward(model, arguments, named):
    ran(model, arguments, named)


@guarded
def ran(model, arguments, named):
    import torch

    if _watch is None or model.training or torch.is_grad_enabled():
        return
    values = list(arguments) + list(named.values())
    values += [part for value in values if isinstance(value, (list, tuple)) for part in value[:8]]
    values += [part for value in values if isinstance(value, dict) for part in list(value.values())[:8]]
    if any(isinstance(value, torch.Tensor) and value.numel() in _watch.sizes for value in values):
        read, _watch.ran = _watch.read, True
        read.ran_at = _watch.steps if read.ran_at is None else read.ran_at
        read.scored |= read.named
        _watch.end()


@guarded
def end_watch(loaded=None):
    """Ends the watch: `loaded` yields the next batch; None: a new loader does, or a step or the end of a pass
    follows."""
    global _watch
    watch = _watch
    if watch is None:
        return
    if loaded is None or loaded.read is not watch.read or watch.read.scored or watch.read.batches >= watch.until:
        watch.end()
        _watch = None


@guarded
def pass_read(loaders, loaded, steps):
    if _watch is not None:
        end_watch()
    judge(loaders, steps, loaded)


def is_same(loaded, loaders):
    """Whether the samples of a loader are training samples; None if too few could be recognized."""
    trains = [each for each in loaders if each.trains and each.seen and each.repeated <= 0.1 * each.seen]
    if not trains or len(loaded.rows) < MIN_ROWS:
        return None
    if any(sources.are_same(loaded.source, each.source) for each in trains):  # whatever the augmentation
        return True
    rows = set().union(*(each.rows for each in trains))
    samples = max(each.samples or len(each.rows) for each in trains)
    # The number of rows that would be recognized if the loader had a copy of the training set.
    expected = min(1.0, len(rows) / max(1, samples)) * len(loaded.rows)
    return len(rows & loaded.rows) >= max(MIN_ROWS, 0.5 * expected) if expected >= MIN_ROWS else None


@guarded
def judge(loaders, steps, ended=None):
    """Compares a loader that does not train once, when it has ended a pass: later folds may train on samples that an
    earlier one validated with."""
    others = [loaded for loaded in loaders if not loaded.trains]
    for loaded in others:
        if loaded.read.same is None and ended in (None, loaded):
            loaded.read.same = is_same(loaded, loaders)
    judged = [loaded for loaded in others if loaded.read.same is not None] + [loaded for loaded in loaders if loaded.trains and loaded.read.scored]
    rows = set().union(*(loaded.rows for loaded in loaders if loaded.trains))
    state = 0
    if any(loaded.read.same is False for loaded in judged):
        state = 2
    elif any(loaded.read.scored and loaded.read.ran_at < steps for loaded in judged) and len(rows) > DEBUG_ROWS:
        state = 1
    elif any(loaded.read.ran_at is not None for loaded in judged):
        state = 3
    if state:
        # By rows if they are recognized; augmented rows are not.
        observe(boards.CHECK_VALIDATION, state, value=sum(len(rows & loaded.rows) or len(loaded.rows) * (loaded.read.same is True) for loaded in judged),
                count=sum(len(loaded.rows) for loaded in judged))


# ---- the trained model

def every_module(torch):
    """Slow: only after a problem was found."""
    import gc

    return [found for found in gc.get_objects() if issubclass(type(found), torch.nn.Module)]


def models_that_train(torch):
    """The outer modules that hold parameters of an optimizer. Not the layers, which may take a different code path if
    they have hooks."""
    global _searches
    found = [model for model in (reference() for reference in _models) if model is not None]
    if found or _searches >= MAX_SEARCHES:
        return found
    _searches += 1
    wanted = trained()
    every = [module for module in every_module(torch) if not isinstance(module, torch.jit.ScriptModule)]
    inner = {id(child) for module in every for child in _children(module)}
    known = {}

    def trains(module):
        if id(module) not in known:
            known[id(module)] = False  # a module that contains itself
            own = (module.__dict__.get("_parameters") or {}).values()
            known[id(module)] = any(id(one) in wanted for one in own) or any([trains(child) for child in _children(module)])
        return known[id(module)]

    level = [module for module in every if id(module) not in inner]
    for _ in range(DEPTH):
        level = [module for module in level if trains(module) and not isinstance(module, torch.nn.TransformerEncoderLayer)]
        found += level
        level = list({id(child): child for module in level for child in _children(module)}.values())
    _models[:] = [weakref.ref(module) for module in found]
    return found


def _children(module):
    return [child for child in (module.__dict__.get("_modules") or {}).values() if child is not None]


# ---- the script's names

def words_of(name):
    """["val", "loader"] for val_loader, valLoader, ValLoader."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")


def _matches_name(pattern, name):
    return any(pattern.fullmatch(word) for word in words_of(name))


def names_on(torch, frame, iterator):
    """(whether the script's names indicate validation, whether they indicate another purpose, whether a variable that
    holds the loader has a validation name): names of the functions and objects that request the batch, up to the
    training loop, and of the variables that hold the loader and its dataset."""
    functions, types, loaders, data = [], [], [], []
    searched = set()
    while frame is not None and len(functions) < FRAMES:
        package = (frame.f_globals.get("__name__") or "").split(".")
        if package[0] != "fulldeck" and package[:3] != ["torch", "utils", "data"]:
            function, variables = frame.f_code.co_name, frame.f_locals
            owner = variables.get("self")
            for name, value in dict(getattr(owner, "__dict__", None) or {}, **variables).items():
                if value is iterator._dataset:
                    data.append(name)
                elif isinstance(value, torch.utils.data.DataLoader) and value._index_sampler is iterator._index_sampler:
                    loaders.append(name)
            if id(frame.f_globals) not in searched:
                searched.add(id(frame.f_globals))
                loaders += [name for name, value in list(frame.f_globals.items())
                            if issubclass(type(value), torch.utils.data.DataLoader) and value._index_sampler is iterator._index_sampler]
            if function in ("<module>", "main", "fit") or _matches_name(TRAINS, function):
                break
            functions.append(function)
            types.append(type(owner).__name__)
        frame = frame.f_back
    reads = any(word in READS for name in functions + loaders for word in words_of(name))
    on_purpose = [name for name in loaders if _matches_name(TRAINS, name)]
    validates = [name for name in functions + types + loaders + data if _matches_name(VALIDATES, name) and name not in on_purpose]
    held = any(name in validates for name in loaders)
    return bool(validates), reads or (bool(on_purpose) and not held), held
