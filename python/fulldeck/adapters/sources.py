"""Identifies the samples of a dataset by its own list of them: without reading a sample, and independently of
augmentation. observing.py has the contract of this check; batches.py and validation.py use it.

Two datasets have the same samples if they have the same class and the same lists of files, and differ only in their
augmentation. A list of which a dataset uses only a part (by `split`, `fold`, an index of its own, a sampler) proves
nothing."""
import re
import weakref

LISTS = ("samples", "imgs", "data_list", "img_infos", "data_bytes")  # torchvision, timm, MMEngine, MMDetection
MIN_SAMPLES = 16
COMPARED = 64            # entries, spread over a list
WHOLE_SAMPLERS = ("SequentialSampler", "RandomSampler", "DistributedSampler", "DefaultSampler", "OrderedDistributedSampler")
AUGMENTS = re.compile(r"(transforms?|augment\w*|aug|pipeline|flip|crop|jitter|noise|normalize|test_mode)")


class Source:
    """`data`: the dataset, by weak reference; `indices`: of its samples, None for all."""

    def __init__(self, data, indices):
        self.data, self.indices = weakref.ref(data), indices
        self.known = weakref.WeakKeyDictionary()  # another source -> whether it has the same samples


def of(data, sampler):
    """None if it is unknown, or if the dataset lists nothing."""
    try:
        return _of(data, sampler)
    except (TypeError, AttributeError, NotImplementedError):  # no length, no weak reference
        return None


def _of(data, sampler):
    sampler = getattr(sampler, "sampler", sampler)  # of batches
    if type(sampler).__name__ not in WHOLE_SAMPLERS:
        return None
    indices = None
    if type(data).__name__ == "Subset" and hasattr(data, "indices") and hasattr(data, "dataset"):
        data, indices = data.dataset, list(data.indices)
    if not hasattr(data, "__dict__") or listed(data) is None:
        return None
    return Source(data, indices)


def listed(data):
    """The list of files with one sample each."""
    for name in LISTS:
        found = data.__dict__.get(name)
        if found is None or not hasattr(found, "__len__"):
            continue
        if name == "data_bytes":  # all entries, pickled, concatenated
            if len(found) >= MIN_SAMPLES and len(data) >= MIN_SAMPLES:
                return found
        elif isinstance(found, (list, tuple)) and MIN_SAMPLES <= len(found) == len(data) and any(mark in repr(found[0])[:1000] for mark in "'\""):
            return found
    return None


def are_same(one, other):
    if one is None or other is None:
        return False
    if other not in one.known:
        one.known[other] = _compare(one, other)
    return one.known[other]


def _compare(one, other):
    first, second = one.data(), other.data()
    if first is None or second is None or (first is not second and not _is_like(first, second)):
        return False
    if one.indices is None or other.indices is None:
        return True
    validates = set(one.indices[::max(1, len(one.indices) // (1 << 16))])
    return len(validates & set(other.indices)) >= 0.5 * len(validates)


def _is_like(first, second):
    if type(first) is not type(second) or len(first) != len(second) or not _equal(listed(first), listed(second)):
        return False
    names = set(vars(first)) | set(vars(second))
    return all(_equal(vars(first).get(name), vars(second).get(name)) for name in names
               if not any(AUGMENTS.fullmatch(word) for word in [name] + name.lower().split("_")))


def _equal(one, other):
    """Compares plain values and lists, as far as they determine the samples; anything else may differ."""
    if type(one) is not type(other):
        return not any(isinstance(each, (str, int, float, tuple, list)) for each in (one, other))
    if isinstance(one, (str, int, float)):
        return one == other
    if isinstance(one, (list, tuple)) or type(one).__name__ in ("ndarray", "Tensor"):
        if not getattr(one, "shape", (1,)) or len(one) != len(other):
            return not getattr(one, "shape", (1,))
        return all(repr(one[place])[:1000] == repr(other[place])[:1000] for place in range(0, len(one), len(one) // COMPARED + 1))
    return True
