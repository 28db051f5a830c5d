"""Silent errors in the user's script: each rank observes its own optimizer steps, gradients, labels, batches, loaded weights and children, and
writes what it saw on the rank board; the launcher judges (src/launcher/script_faults.cc) and names the failure code. docs/python.md

Contract of every check: it never raises into the program (observing.guarded), it never synchronizes a card (observing.read_later), and after the
first steps it costs a counter, with a sample of the gradients every SAMPLE_EVERY steps. Without a board nothing is observed. Here are the checks
of steps, gradients, devices and weights; those of data are in batches.py, those of child processes in child_failures.py."""
import atexit
import functools
import os
import sys
import weakref
import zlib

from fulldeck import board as boards
from fulldeck.adapters import batches, card, child_failures, is_child, loop, on_import
from fulldeck.adapters.observing import arrived, guarded, observe, pending, read_later

FIRST_STEPS = 20         # of each optimizer: all of them are sampled, and a parameter has to show a gradient in one
FEWEST_STEPS = 10        # a shorter run says nothing about gradients
SAMPLE_EVERY = 50        # steps, later: for NaN and Inf

_owner = os.getpid()


def adapt(torch):
    if is_child() or not loop.board().is_open:
        return None
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda optimizer, *unused: after_step(torch, optimizer))
    batches.watch_labels(torch)
    batches.watch_batches(torch)
    watch_loading(torch.nn.Module, strict_by_default=True)
    child_failures.watch_children()
    on_import("mmengine.runner.checkpoint", lambda module: watch_loading(module, strict_by_default=False))
    atexit.register(at_exit, torch)
    return None


# ---- optimizer steps

class Steps:
    """Of one optimizer."""

    def __init__(self):
        self.count = 0
        self.samples = 0
        self.trainable = {}    # id -> weak parameter, of the first steps; None when they have been judged
        self.with_gradient = set()


_optimizers = weakref.WeakKeyDictionary()
_steps = 0
_grouped = False


def after_step(torch, optimizer):
    global _steps
    _steps += 1
    if pending:
        arrived()
    batches.after_step()
    try:
        steps = _optimizers.get(optimizer)
        if steps is None:
            steps = _optimizers[optimizer] = Steps()
    except TypeError:  # an optimizer that cannot be a key
        return
    steps.count += 1
    count = steps.count
    if count > FIRST_STEPS and count % SAMPLE_EVERY:
        if steps.trainable is not None and not pending:  # the last values of a card have arrived
            last_gradients(torch, optimizer, steps)
        return
    if count <= FIRST_STEPS or _steps <= 2 * SAMPLE_EVERY:
        group(torch)
    if count == 3:
        device(torch, optimizer)
        modules()
        if _misfits:
            report_weights()
    if _steps == 2:
        random_state(torch)
    gradients(torch, optimizer, steps)


# Programs whose ranks meet in another way than torch.distributed.
OTHER_GROUPS = ("mpi4py", "horovod", "deepspeed", "ray", "hivemind", "oneccl_bindings_for_pytorch")


@guarded
def group(torch):
    global _grouped
    if not _grouped:
        distributed = torch.distributed
        _grouped = (distributed.is_available() and distributed.is_initialized()) or any(name in sys.modules for name in OTHER_GROUPS)
    observe(boards.CHECK_GROUP, 2 if _grouped else 1, count=_steps)


def parameters_of(optimizer):
    return [parameter for one in optimizer.param_groups for parameter in one["params"]]


@guarded
def gradients(torch, optimizer, steps):
    steps.samples += 1
    first = steps.trainable is not None
    scaled = getattr(optimizer, "grad_scale", None) is not None  # the GradScaler looks for Inf itself, in this very step
    found, numbers = [], []
    for parameter in parameters_of(optimizer):
        if not parameter.requires_grad:
            continue
        number = id(parameter)
        if first and number not in steps.trainable:
            steps.trainable[number] = weakref.ref(parameter)
        gradient = parameter.grad
        if gradient is None:
            continue
        gradient = getattr(gradient, "_local_tensor", gradient)  # of a DTensor: no communication
        if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided or not gradient.is_floating_point() or not gradient.numel():
            steps.with_gradient.add(number)
        elif not found or (gradient.device == found[0].device and gradient.dtype == found[0].dtype):
            found.append(gradient)
            numbers.append(number)
        else:
            steps.with_gradient.add(number)  # of another card or type than the first: present is enough
    if found:
        at = steps.count

        def judge(values):
            _judge_gradients(steps, numbers, values, at, scaled)

        with torch.no_grad():
            # The largest value, not the sum of squares: that would overflow where no gradient does.
            if found[0].device.type == "cpu":  # where this norm is 16 times slower than a minimum and a maximum
                least, largest = (torch.stack(ends).tolist() for ends in zip(*map(torch.aminmax, found)))
                judge([max(-low, high) for low, high in zip(least, largest)])
            elif not read_later(torch, torch.stack(torch._foreach_norm(found, float("inf"))), judge):
                steps.with_gradient.update(numbers)
    if first and steps.samples == FIRST_STEPS and not pending:
        report_gradients(torch, optimizer, steps)


def _judge_gradients(steps, numbers, values, at, scaled):
    for number, value in zip(numbers, values):
        if value != value or value in (float("inf"), float("-inf")):
            steps.with_gradient.add(number)
            if not scaled:
                not_finite(at)
        elif value != 0:
            steps.with_gradient.add(number)


_not_finite_at = 0


def not_finite(step):
    global _not_finite_at
    if not _not_finite_at:
        _not_finite_at = step
        observe(boards.CHECK_FINITE, 1, step=step)


_without = [0, 0, 0, ""]  # tensors without a gradient, all, steps, names: of the optimizer with the most


def report_gradients(torch, optimizer, steps):
    trainable, steps.trainable = steps.trainable, None
    alive = {number: parameter() for number, parameter in trainable.items()}
    without = [parameter for number, parameter in alive.items()
               if number not in steps.with_gradient and parameter is not None and parameter.requires_grad]
    if not without:
        return
    names = [name[len("module."):] if name.startswith("module.") else name for name in names_of(torch, optimizer, without)]
    # Experts of a mixture may wait long for their first token.
    kept = [name for name in names if "expert" not in name and "moe" not in name.lower().split(".")]
    if len(kept) > _without[0]:
        _without[:] = [len(kept), len(trainable), steps.samples, ", ".join(kept)]
        observe(boards.CHECK_GRADIENTS, value=_without[0], count=_without[1], step=_without[2], text=_without[3])


def names_of(torch, optimizer, parameters):
    """As the largest module that has them calls them; by shape where none is found. Slow: only for parameters that something is wrong with."""
    import gc

    wanted = {id(parameter) for parameter in parameters}
    names = {}
    for found in gc.get_objects():
        if issubclass(type(found), torch.nn.Module):
            for name, parameter in (found.__dict__.get("_parameters") or {}).items():
                if id(parameter) in wanted:
                    names.setdefault(id(parameter), name)
    for found in gc.get_objects():
        try:
            if issubclass(type(found), torch.nn.Module):
                for name, parameter in found.named_parameters():
                    if id(parameter) in wanted and len(name) > len(names.get(id(parameter), "")):
                        names[id(parameter)] = name
        except AttributeError:  # a module that is not finished
            continue
    return [names.get(id(parameter), "a tensor of shape {}".format(tuple(parameter.shape))) for parameter in parameters]


@guarded
def last_gradients(torch, optimizer, steps):
    if not pending:
        report_gradients(torch, optimizer, steps)


# ---- where the parameters are

# Which lists of visible cards count for a kind of device. A kind that is not here may number the cards of each process from 0.
VISIBLE = {"cuda": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "gcu": ("TOPS_VISIBLE_DEVICES",),
           "npu": ("ASCEND_RT_VISIBLE_DEVICES",), "mlu": ("MLU_VISIBLE_DEVICES",), "musa": ("MUSA_VISIBLE_DEVICES",)}


def visible(kind, environment):
    """(variable, its value): the list that counts; the first one, and None, where none is set."""
    for variable in VISIBLE[kind]:
        if variable in environment:
            return variable, environment[variable]
    return VISIBLE[kind][0], None


def physical(kind, index, environment):
    """Card `index` of this process, as all processes of the node call it."""
    listed = [part.strip() for part in (visible(kind, environment)[1] or "").split(",") if part.strip()]
    return "{}:{}".format(kind, listed[index] if index < len(listed) else index)


def environment_at_start():
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().decode("utf-8", "replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


_on_card = False


@guarded
def device(torch, optimizer):
    global _on_card
    parameters = parameters_of(optimizer)
    on_cards = [parameter.device for parameter in parameters if parameter.device.type not in ("cpu", "meta")]
    if on_cards:
        _on_card = True
        kind, index = on_cards[0].type, on_cards[0].index or 0
        if kind not in VISIBLE:
            observe(boards.CHECK_DEVICE, 2)
            return
        here = physical(kind, index, os.environ)
        observe(boards.CHECK_DEVICE, 2, text=here)
        started, now = environment_at_start(), visible(kind, os.environ)
        if card.kind() == kind and visible(kind, started) != now:
            given = physical(kind, card.index(), started)
            if given != here:
                observe(boards.CHECK_VISIBILITY, 1, text="the script set {}={}: on {}, not on {}".format(now[0], now[1], here, given))
        return
    # Parameters that wait on the CPU for a card by design: offloaded ones are sharded or in pinned memory.
    offloaded = "deepspeed" in sys.modules or any(
        hasattr(parameter, "_local_tensor") or hasattr(parameter, "_is_flat_param") or parameter.is_pinned() for parameter in parameters)
    if parameters and not _on_card and not offloaded and card.kind() not in (None, "cpu"):
        observe(boards.CHECK_DEVICE, 1)


# ---- modules with a vendor's name

# Of Enflame's collective library there is no Python module; scripts that needed one wrote it themselves.
VENDOR_MODULES = ("eccl", "torch_gcu", "ptex", "torch_npu", "torch_mlu", "torch_musa", "torch_sdaa", "habana_frameworks")


@guarded
def modules():
    found = [module.__file__ for module in map(sys.modules.get, VENDOR_MODULES) if module is not None and is_hand_written(module)]
    if found:
        observe(boards.CHECK_MODULES, count=len(found), text=os.path.join(*found[0].split(os.sep)[-2:]))


def is_hand_written(module):
    """Whether no package installed it: it is one file or folder of Python, without a library of its own."""
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

# Frameworks that seed all ranks alike by design.
SEED_ALIKE = ("transformers.trainer", "lightning", "pytorch_lightning", "mmengine.runner", "accelerate.utils.random")


@guarded
def random_state(torch):
    alike = any(name in sys.modules for name in SEED_ALIKE)
    observe(boards.CHECK_RANDOM, 2 if alike else 1, value=zlib.crc32(torch.random.get_rng_state().numpy().tobytes()) or 1)


# ---- weights

_misfits = {}            # id of a module -> (weak module, matched, given, its class, batches before)


def watch_loading(owner, strict_by_default):
    """`owner` has load_state_dict(module, state_dict, strict): torch.nn.Module, and MMEngine's module of checkpoints."""
    real = owner.load_state_dict

    @functools.wraps(real)
    def load_state_dict(module, state_dict, strict=strict_by_default, *arguments, **named):
        result = real(module, state_dict, strict, *arguments, **named)
        if not strict:
            weights(module, state_dict)
        return result

    owner.load_state_dict = load_state_dict


@guarded
def weights(module, state_dict):
    given = set(state_dict)
    own = set(module.state_dict())
    matched = len(given & own)
    misfits = len(given) >= 2 and len(own) >= 2 and matched < 0.1 * len(given) and matched < 0.1 * len(own)
    if misfits:
        number = id(module)
        _misfits[number] = (weakref.ref(module, lambda gone: _module_gone(number)), matched, len(given), type(module).__name__, batches.fetched)
    elif matched:
        _misfits.pop(id(module), None)  # a second attempt, with other names


def _module_gone(number):
    """A module that no batch followed was an attempt; one that was used counts."""
    if number in _misfits and _misfits[number][4] == batches.fetched:
        del _misfits[number]


@guarded
def report_weights():
    for _, matched, given, name, _ in list(_misfits.values())[:1]:
        observe(boards.CHECK_WEIGHTS, value=matched, count=given, text=name)


# ---- the end

def at_exit(torch):
    if os.getpid() != _owner:
        return
    if pending:
        arrived()
    if _steps:
        group(torch)
    for optimizer, steps in list(_optimizers.items()):
        if steps.trainable is not None and steps.samples >= FEWEST_STEPS:
            last_gradients(torch, optimizer, steps)
    batches.validation()
    report_weights()
    child_failures.report_children()
