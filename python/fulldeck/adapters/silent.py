"""Silent errors in the user's script: each rank observes its own optimizer steps, gradients, labels, batches, loaded
weights and children, and writes its observations to the rank board. The launcher judges them
(src/control/diagnosis/script_faults.cc) and reports the failure code. docs/python.md

Contract of every check: it never raises into the program (observing.guarded), it never synchronizes a card
(observing.read_later), and after the first steps it costs a counter, with a sample of the gradients every SAMPLE_EVERY
steps. Without a board nothing is observed. This module has the checks of steps, gradients, devices and weights; those
of data are in batches.py and validation.py, those of child processes in child_failures.py."""
import atexit
import collections
import functools
import os
import sys
import weakref
import zlib

from fulldeck import board as boards
from fulldeck.adapters import batches, card, child_failures, is_child, loop, losses, on_import, validation
from fulldeck.adapters.observing import arrived, guarded, is_capturing, observe, pending, read_later, untraced

# First steps of each optimizer: all of them are sampled, and a parameter must have a gradient in one of them.
FIRST_STEPS = 20
MIN_STEPS = 10        # a shorter run is not enough to judge gradients
SAMPLE_EVERY = 50        # later steps: for NaN and Inf
# Layers may join later, and rewards may come later: until this step a missing gradient is only a note …
LATE_STEPS = 200
LATE_EVERY = 10          # … and gradients are sampled at this interval, in steps
FEW_BYTES = 1 << 20      # on a card that is not used

_owner = os.getpid()


def adapt(torch):
    if is_child() or not loop.board().is_open:
        return None
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(untraced(torch, lambda optimizer, arguments, named: after_step(torch, optimizer, named)))
    validation.trained = lambda: {id(parameter) for optimizer in list(_optimizers) for parameter in parameters_of(optimizer)}
    batches.watch_labels(torch)
    batches.watch_batches(torch)
    losses.watch_losses(torch, lambda: _steps, lambda step: not_finite(step, LOSS))
    watch_loading(torch.nn.Module, strict_by_default=True)
    watch_reading(torch, "load")
    on_import("safetensors.torch", lambda module: watch_reading(module, "load_file"))
    child_failures.watch_children()
    on_import("mmengine.runner.checkpoint", lambda module: watch_loading(module, strict_by_default=False))
    atexit.register(at_exit, torch)
    return None


# ---- optimizer steps

class Steps:
    """State of one optimizer."""

    def __init__(self):
        self.count = 0
        self.samples = 0
        self.trainable = {}    # id -> weak reference to a parameter, of the first steps; None once they were judged
        self.present = set()   # of those: parameters that had a gradient
        self.with_gradient = set()  # and whose gradient was not zero, as far as is known
        self.judged = False    # whether the latest sample was judged
        self.noted = False     # whether missing gradients were noted
        self.absent = []       # weak references to parameters that never had a gradient, after the first steps


_optimizers = weakref.WeakKeyDictionary()
_steps = 0
_grouped = False


def after_step(torch, optimizer, named=None):
    """`named`: keyword arguments of the step."""
    global _steps
    _steps += 1
    if pending:
        arrived()
    batches.after_step()
    losses.after_step()
    try:
        steps = _optimizers.get(optimizer)
        if steps is None:
            steps = _optimizers[optimizer] = Steps()
    except TypeError:  # an optimizer that is not hashable
        return
    steps.count += 1
    count = steps.count
    doubtful = steps.trainable is not None
    if count > FIRST_STEPS and count % (LATE_EVERY if doubtful else SAMPLE_EVERY) and not (doubtful and has_come(steps)):
        if doubtful and not steps.judged and not pending:  # the last values of a card have arrived
            judge_gradients(torch, optimizer, steps, False)
        return
    if count <= FIRST_STEPS or _steps <= 2 * SAMPLE_EVERY:
        group(torch)
    if count in (1, FIRST_STEPS):
        device(torch, optimizer, count)
    if count == 3:
        modules()
        if _misfits:
            report_weights()
    if _steps == 2:
        random_state(torch)
    gradients(torch, optimizer, steps, bool(named) and named.get("grad_scaler") is not None)


# Libraries whose ranks rendezvous without torch.distributed.
OTHER_GROUPS = ("mpi4py", "horovod", "deepspeed", "ray", "hivemind", "oneccl_bindings_for_pytorch")


@guarded
def group(torch):
    global _grouped
    if not _grouped:
        distributed = torch.distributed
        _grouped = ((distributed.is_available() and distributed.is_initialized()) or any(name in sys.modules for name in OTHER_GROUPS)
                    or has_remote_calls())
    observe(boards.CHECK_GROUP, 2 if _grouped else 1, count=_steps)


def has_remote_calls():
    """Whether the ranks rendezvous through torch.distributed.rpc. Torch itself imports that module."""
    remote = sys.modules.get("torch.distributed.rpc")
    agent = getattr(getattr(remote, "api", None), "_is_current_rpc_agent_set", None)
    return agent is not None and bool(agent())


def parameters_of(optimizer):
    return [parameter for one in optimizer.param_groups for parameter in one["params"]]


@guarded
def gradients(torch, optimizer, steps, scaled):
    steps.samples += 1
    steps.judged = False
    first = steps.trainable is not None
    # A GradScaler checks for Inf itself, and the optimizer skips this very step.
    scaled = scaled or getattr(optimizer, "found_inf", None) is not None
    found, numbers = [], []
    for parameter in parameters_of(optimizer):
        # A rank's part of a sharded parameter may be empty.
        if not parameter.requires_grad or is_lazy(torch, parameter) or not getattr(parameter, "_local_tensor", parameter).numel():
            continue
        number = id(parameter)
        if first and number not in steps.trainable:
            steps.trainable[number] = weakref.ref(parameter)
        gradient = parameter.grad
        if gradient is None:
            continue
        steps.present.add(number)
        gradient = getattr(gradient, "_local_tensor", gradient)  # of a DTensor: no communication
        if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided or not gradient.is_floating_point() or not gradient.numel():
            steps.with_gradient.add(number)
        elif not found or (gradient.device == found[0].device and gradient.dtype == found[0].dtype):
            found.append(gradient)
            numbers.append(number)
        else:
            # On a different card or of a different type than the first: a present gradient is enough.
            steps.with_gradient.add(number)
    if found:
        at = steps.count

        def judge(values):
            _judge_values(steps, numbers, values, at, scaled)

        with torch.no_grad():
            # The maximum, not the sum of squares, which could overflow although no gradient does.
            if found[0].device.type == "cpu":  # where this norm is 16 times slower than a minimum and a maximum
                least, largest = (torch.stack(ends).tolist() for ends in zip(*map(torch.aminmax, found)))
                judge([max(-low, high) for low, high in zip(least, largest)])
            elif is_capturing(torch, found[0]) or not read_later(torch, torch.stack(torch._foreach_norm(found, float("inf"))), judge):
                steps.with_gradient.update(numbers)
    if first and steps.count >= FIRST_STEPS and not pending:
        judge_gradients(torch, optimizer, steps, False)


def is_lazy(torch, parameter):
    return isinstance(parameter, torch.nn.parameter.UninitializedTensorMixin)


def _judge_values(steps, numbers, values, at, scaled):
    for number, value in zip(numbers, values):
        if value != value or value in (float("inf"), float("-inf")):
            steps.with_gradient.add(number)
            if not scaled:
                not_finite(at)
        elif value != 0:
            steps.with_gradient.add(number)


GRADIENTS, LOSS, PARAMETERS = range(1, 4)  # states of the check: what was not finite
_not_finite_at = 0


def not_finite(step, state=GRADIENTS):
    global _not_finite_at
    if not _not_finite_at:
        _not_finite_at = step
        observe(boards.CHECK_FINITE, state, step=step)


@guarded
def has_come(steps):
    """Whether one of the missing gradients is there: a branch may be used only in every thirtieth step."""
    absent = [(reference, reference()) for reference in steps.absent]
    steps.absent = [reference for reference, parameter in absent if parameter is not None and parameter.grad is None]
    return len(steps.absent) < len(absent)


@guarded
def last_parameters(torch, optimizer, steps):
    """Detects a training that became NaN after the last sample. Only trained parameters in host memory: nothing waits
    for a card at exit. Inf may be intended."""
    for parameter in parameters_of(optimizer):
        if _not_finite_at:
            return
        if (id(parameter) in steps.with_gradient and type(parameter) is torch.nn.Parameter and parameter.device.type == "cpu" and parameter.numel()
                and parameter.layout is torch.strided and parameter.is_floating_point() and torch.isnan(parameter.detach().sum())
                and torch.isnan(parameter.detach()).any()):
            not_finite(_steps, PARAMETERS)


CERTAIN, ZEROS, MISSING = range(3)  # states of the check: the last two are notes
# Tensors without a gradient, all tensors, steps, names, state: of the optimizer with the most such tensors.
_without = [0, 0, 0, "", MISSING]


@guarded
def judge_gradients(torch, optimizer, steps, ended):
    """After the first steps a missing gradient is a note; after LATE_STEPS, or at the end, a warning. Zero gradients
    are judged only after LATE_STEPS: in a run that ended earlier, they are a note."""
    steps.judged = True
    without = [parameter for number, parameter in ((number, parameter()) for number, parameter in steps.trainable.items())
               if number not in steps.with_gradient and parameter is not None and parameter.requires_grad]
    absent = [parameter for parameter in without if id(parameter) not in steps.present]
    early = steps.count < LATE_STEPS
    if without and early and not ended:
        if not steps.noted:
            steps.noted = True
            report_gradients(torch, steps, absent, MISSING)
        steps.absent = [weakref.ref(parameter) for parameter in absent]
        return
    report_gradients(torch, steps, absent if early else without, CERTAIN)
    if early and not absent:
        report_gradients(torch, steps, without, ZEROS)
    steps.trainable, steps.absent = None, []


def counts_more(without, state):
    """Whether it is more severe than the current report: a warning outranks a note, otherwise more tensors do."""
    was_certain = _without[0] and _without[4] == CERTAIN
    if was_certain != (state == CERTAIN) and _without[0]:
        return bool(without) and state == CERTAIN
    return len(without) > _without[0]


def report_gradients(torch, steps, without, state):
    if not counts_more(without, state):
        return
    names = [name[len("module."):] if name.startswith("module.") else name for name in names_of(torch, without)]
    # Experts of a mixture may get their first token late.
    kept = [name for name in names if "expert" not in name and "moe" not in name.lower().split(".")]
    if counts_more(kept, state):
        _without[:] = [len(kept), len(steps.trainable), steps.samples, ", ".join(kept), state]
        observe(boards.CHECK_GRADIENTS, state, value=_without[0], count=_without[1], step=_without[2], text=_without[3])


def names_of(torch, parameters):
    """Names within the largest module that has the parameters; by shape if there is none. Slow: only for parameters
    with a problem."""
    wanted = {id(parameter) for parameter in parameters}
    names = {}
    every = validation.every_module(torch)
    for module in every:
        for name, parameter in (module.__dict__.get("_parameters") or {}).items():
            if id(parameter) in wanted:
                names.setdefault(id(parameter), name)
    for module in every:
        try:
            for name, parameter in module.named_parameters():
                if id(parameter) in wanted and len(name) > len(names.get(id(parameter), "")):
                    names[id(parameter)] = name
        except AttributeError:  # a module that is not fully constructed
            continue
    return [names.get(id(parameter), "a tensor of shape {}".format(tuple(parameter.shape))) for parameter in parameters]


# ---- devices of the parameters

# Variables with the list of visible cards, by kind of device.
VISIBLE = {"cuda": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "gcu": ("TOPS_VISIBLE_DEVICES",),
           "npu": ("ASCEND_RT_VISIBLE_DEVICES",), "mlu": ("MLU_VISIBLE_DEVICES",), "musa": ("MUSA_VISIBLE_DEVICES",),
           "sdaa": ("SDAA_VISIBLE_DEVICES",), "hpu": ("HABANA_VISIBLE_MODULES",)}
# Kinds that each process numbers from 0: the card is known only if the list has a single entry.
FROM_ZERO = ("hpu",)


def visible(kind, environment):
    """(variable, its value): the list in effect; the first variable and None if none is set."""
    for variable in VISIBLE[kind]:
        if variable in environment:
            return variable, environment[variable]
    return VISIBLE[kind][0], None


def physical(kind, index, environment):
    """Card `index` of this process, by its number on the node; None if unknown."""
    listed = [part.strip() for part in (visible(kind, environment)[1] or "").split(",") if part.strip()]
    if kind in FROM_ZERO and len(listed) != 1 and not card.is_simulated():
        return None
    return "{}:{}".format(kind, listed[index] if index < len(listed) else index)


def environment_at_start():
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().decode("utf-8", "replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


_on_card = False


@guarded
def device(torch, optimizer, steps):
    """A card is in use if any optimizer trains on it, or if it holds other tensors of the process (frozen layers); the
    first steps may precede that."""
    global _on_card
    parameters = parameters_of(optimizer)
    on_cards = [parameter.device for parameter in parameters if parameter.device.type not in ("cpu", "meta")]
    if on_cards:
        if steps == 1:
            _on_card = True
            on_card(on_cards[0].type, on_cards[0].index or 0)
        return
    # Parameters that stay on the CPU by design: offloaded ones are sharded or in pinned memory.
    if steps > 1 and parameters and not _on_card and card.kind() not in (None, "cpu") and not holds_tensors(torch) and "deepspeed" not in sys.modules:
        if not any(hasattr(parameter, "_local_tensor") or hasattr(parameter, "_is_flat_param") or parameter.is_pinned() for parameter in parameters):
            observe(boards.CHECK_DEVICE, 1)


def on_card(kind, index):
    here = physical(kind, index, os.environ) if kind in VISIBLE else None
    observe(boards.CHECK_DEVICE, 2, text=here)
    if here is None:
        return
    started, now = environment_at_start(), visible(kind, os.environ)
    if card.kind() == kind and visible(kind, started) != now:
        given = physical(kind, card.index(), started)
        if given not in (None, here):
            observe(boards.CHECK_VISIBILITY, 1, text="the script set {}={}: on {}, not on {}".format(now[0], now[1], here, given))


def holds_tensors(torch):
    """Whether this process has more than a few bytes on any card. Reads torch's own counter, and initializes no
    driver."""
    module = getattr(torch, card.kind(), None)
    allocated, initialized = getattr(module, "memory_allocated", None), getattr(module, "is_initialized", None)
    if allocated is None or initialized is None or not initialized():
        return False
    return any(allocated(number) > FEW_BYTES for number in range(module.device_count()))


# ---- modules with a vendor's name

# Enflame's collective library has no Python module; scripts that needed one wrote it themselves.
VENDOR_MODULES = ("eccl", "torch_gcu", "ptex", "torch_npu", "torch_mlu", "torch_musa", "torch_sdaa", "habana_frameworks")


@guarded
def modules():
    found = [module.__file__ for module in map(sys.modules.get, VENDOR_MODULES) if module is not None and is_hand_written(module)]
    if found:
        observe(boards.CHECK_MODULES, count=len(found), text=os.path.join(*found[0].split(os.sep)[-2:]))


def is_hand_written(module):
    """Whether it was not installed by a package: a single Python file or folder, without a native library."""
    from importlib import metadata

    file = getattr(module, "__file__", None)
    if getattr(module, "__fulldeck_simulated__", False) or not file or not file.endswith(".py"):
        return False
    if os.path.basename(file) == "__init__.py":
        for _, _, names in os.walk(os.path.dirname(file)):
            if any(".so" in name for name in names):
                return False
    for package in {module.__name__, module.__name__.replace("_", "-")}:
        try:
            metadata.version(package)
            return False
        except metadata.PackageNotFoundError:
            continue
    return True


# ---- random state

# Frameworks that use the same seed on all ranks by design.
SEED_ALIKE = ("transformers.trainer", "lightning", "pytorch_lightning", "mmengine.runner", "accelerate.utils.random")


@guarded
def random_state(torch):
    alike = any(name in sys.modules for name in SEED_ALIKE)
    observe(boards.CHECK_RANDOM, 2 if alike else 1, value=zlib.crc32(torch.random.get_rng_state().numpy().tobytes()) or 1)


# ---- weights

MIN_FRACTION = 0.1         # of a module's tensors, and of the given ones: less is a misfit

_loads = 0               # loads that gave tensors to a module
_read_names = collections.Counter()  # last components of tensor names in checkpoints that were read -> count
_misfits = {}            # id of a module -> (weak module, matched, given, its class, batches before)


def watch_loading(owner, strict_by_default):
    """`owner` has load_state_dict(module, state_dict, strict): torch.nn.Module, and MMEngine's module of
    checkpoints."""
    real = owner.load_state_dict

    @functools.wraps(real)
    def load_state_dict(module, state_dict, strict=strict_by_default, *arguments, **named):
        if strict:
            given = foreign(module, state_dict) if _misfits else 0
            result = real(module, state_dict, strict, *arguments, **named)
            has_loaded(module, state_dict, given)
            return result
        found = []  # MMEngine returns nothing
        hooks = post_hooks(module, found)
        try:
            result = real(module, state_dict, strict, *arguments, **named)
        finally:
            for hook in hooks or ():
                hook.remove()
        weights(module, state_dict, found[-1] if found else None)
        return result

    owner.load_state_dict = load_state_dict


@guarded
def post_hooks(module, found):
    """Hooks that put (missing, unexpected) into `found` when the last part has been loaded: as torch counts them, after
    all hooks of the module, which may rename or drop keys. MMEngine loads into the module inside a wrapper."""
    inner = getattr(module, "module", None)
    return [each.register_load_state_dict_post_hook(lambda _, keys: found.append((len(keys.missing_keys), len(keys.unexpected_keys))))
            for each in (module, inner) if hasattr(each, "register_load_state_dict_post_hook")]


@guarded
def weights(module, state_dict, keys):
    if keys is None:
        return
    missing, unexpected = keys
    given = len(state_dict) or filtered_out(module)
    own = size_of(module)
    matched = max(0, len(state_dict) - unexpected)
    if given >= 2 and own >= 2 and matched < MIN_FRACTION * given and missing > (1 - MIN_FRACTION) * own:
        number = id(module)
        _misfits[number] = (weakref.ref(module, lambda gone: _module_gone(number)), matched, given, type(module).__name__, batches.fetched)
    elif matched:
        has_loaded(module, state_dict, matched)


def size_of(module):
    return sum(1 for _ in module.parameters()) + sum(1 for _ in module.buffers())


@guarded
def foreign(module, state_dict):
    """The number of tensors in `state_dict` that are not the module's own: a script may copy matching tensors into the
    module's own state, and load that."""
    inner = getattr(module, "module", None)
    own = {tensor.data_ptr() for each in (module, inner) if hasattr(each, "parameters")
           for tensors in (each.parameters(), each.buffers()) for tensor in tensors} - {0}
    return sum(1 for tensor in state_dict.values() if not hasattr(tensor, "data_ptr") or tensor.data_ptr() not in own)


@guarded
def has_loaded(module, state_dict, count):
    global _loads
    _loads += bool(state_dict)
    if _misfits and count:
        fitted(module, count)


def fitted(module, loaded):
    """A later attempt has filled the module, or a part of it: with other names, or strictly. It counts for each module
    that received enough tensors."""
    parts = {id(part) for part in module.modules()}
    for number, (reference, *_) in list(_misfits.items()):
        owner = reference()
        if owner is not None and (number in parts or (any(part is module for part in owner.modules()) and loaded >= MIN_FRACTION * size_of(owner))):
            del _misfits[number]


def filtered_out(module):
    """The number of tensors that were read under names like this module's, if nothing has been loaded since: the script
    filtered by name, and nothing was left. An empty load by itself may mean that there is no checkpoint; ranks other
    than the first may leave the reading to it."""
    if _loads or os.environ.get("RANK", "0") != "0":
        return 0
    return sum(_read_names[last] for last in {name.rpartition(".")[2] for name, _ in module.named_parameters()})


def watch_reading(owner, name):
    real = getattr(owner, name)

    @functools.wraps(real)
    def load(*arguments, **named):
        found = real(*arguments, **named)
        was_read(found)
        return found

    for place in (owner, getattr(owner, "serialization", None)):  # torch.serialization.load is torch.load
        if getattr(place, name, None) is real:
            setattr(place, name, load)


@guarded
def was_read(found, depth=0):
    for name, value in list(found.items()) if isinstance(found, dict) else ():
        if type(name) is str and hasattr(value, "data_ptr"):
            _read_names[name.rpartition(".")[2]] += 1
        elif depth < 2:
            was_read(value, depth + 1)


def _module_gone(number):
    """A module without a batch afterwards was only an attempt; one that was used counts."""
    if number in _misfits and _misfits[number][4] == batches.fetched:
        del _misfits[number]


@guarded
def report_weights():
    for _, matched, given, name, _ in list(_misfits.values())[:1]:
        observe(boards.CHECK_WEIGHTS, value=matched, count=given, text=name)


# ---- exit

def at_exit(torch):
    if os.getpid() != _owner:
        return
    if pending:
        arrived()
    if _steps:
        group(torch)
    for optimizer, steps in list(_optimizers.items()):
        if steps.trainable is not None and steps.samples >= MIN_STEPS:
            judge_gradients(torch, optimizer, steps, True)
        if 3 <= steps.count < FIRST_STEPS:
            device(torch, optimizer, steps.count)
        last_parameters(torch, optimizer, steps)
    batches.at_exit()
    report_weights()
    child_failures.report_children()
