"""MMEngine on the rank's card: device, initialization, communication, mixed precision, SyncBN and resume.
docs/python-frameworks.md

MMEngine selects cards by name and does not know some of them. For those, its modules get the card's name, and the
functions that call CUDA directly are replaced in their modules at import. Calls through torch.cuda (seeds, memory
statistics, empty_cache, synchronize) are redirected by cuda.py, and `device_ids` of the wrapper by data_parallel.py.

Resume works on every device: see allow_history()."""
import contextlib
import functools
import os

from fulldeck import board
from fulldeck.adapters import NotKnown, card, loop, on_import, say, say_once

VERSIONS = ((0, 7), (0, 11))  # from (inclusive), to (exclusive)


def version_of(module):
    numbers = []
    for part in str(getattr(module, "__version__", "")).split(".")[:2]:
        digits = "".join(c for c in part if c.isdigit())
        numbers.append(int(digits) if digits else -1)
    return tuple(numbers)


def adapt(mmengine):
    if not VERSIONS[0] <= version_of(mmengine) < VERSIONS[1]:
        raise NotKnown("this is MMEngine {}, and 0.7 to 0.10 are known".format(getattr(mmengine, "__version__", "without a version")))
    on_import("mmengine.dist.utils", use_pytorch_launcher)
    on_import("mmengine.runner.checkpoint", allow_history)
    on_import("mmengine.runner.runner", lambda module: report_steps(module.Runner))
    on_import("mmengine.runner._flexible_runner", lambda module: report_steps(module.FlexibleRunner))
    if card.on_processors():
        on_import("mmengine.dist.utils", init_without_cuda)
        return "init_dist without CUDA, resume"
    if not card.is_foreign():
        return "resume"
    # Also if MMEngine supports the card: some of its checks try CUDA first, and torch.cuda.is_available() is True.
    on_import("mmengine.device.utils", set_device_type)
    on_import("mmengine.logging.logger", set_device_index)
    if own_name():
        return "device {} as MMEngine has it, resume".format(card.kind())
    on_import("mmengine.dist.utils", init_without_cuda)
    on_import("mmengine.dist.utils", communicate_on_device)
    on_import("mmengine.runner.amp", autocast_on_device)
    on_import("mmengine.optim.optimizer.amp_optimizer_wrapper", use_device_grad_scaler)
    on_import("mmengine.model.utils", use_torch_sync_bn)
    if card.kind() == "npu":
        on_import("mmengine.model.base_model.base_model", lambda module: pass_device_object(module.torch, module.BaseModel))
        on_import("mmengine.model.base_model.data_preprocessor", lambda module: pass_device_object(module.torch, module.BaseDataPreprocessor))
    return "device {}, init_dist, AMP, SyncBN, resume".format(card.kind())


def own_name():
    """Cards that MMEngine supports, with the vendor's module that it needs."""
    return card.kind() in ("npu", "mlu", "musa") and card.has_vendor_module()


def replace(module, name, new):
    """Replaces module.name with `new`, also in parent packages that have imported the name."""
    import sys

    old = getattr(module, name)
    functools.update_wrapper(new, old)
    place = module.__name__
    while place:
        holder = sys.modules.get(place)
        if holder is not None and getattr(holder, name, None) is old:
            setattr(holder, name, new)
        place = place.rpartition(".")[0]


def set_device_type(utils):
    # get_device() returns this constant, and all callers use get_device().
    if utils.DEVICE not in ("cpu", "cuda", card.kind()):
        raise NotKnown("it has chosen the device {} itself".format(utils.DEVICE))
    utils.DEVICE = card.kind()


def set_device_index(logger):
    """For the names of log files. If torch.cuda.is_available(), MMEngine reads the number from CUDA_VISIBLE_DEVICES,
    which does not contain a simulated card."""
    if hasattr(logger, "_get_device_id") and card.is_simulated():
        replace(logger, "_get_device_id", lambda: card.index())


def pass_device_object(torch, model):
    """MMEngine's own to() imports torch_npu if the device is a string that contains npu; a torch.device avoids that."""
    original = model.to

    @functools.wraps(original)
    def to(self, *arguments, **named):
        if arguments and isinstance(arguments[0], str):
            arguments = (torch.device(arguments[0]),) + arguments[1:]
        elif not arguments and named.get("device") is not None:
            arguments = (torch.device(named.pop("device")),)
        return original(self, *arguments, **named)

    model.to = to


def use_pytorch_launcher(utils):
    """The variables of Slurm and MPI are those of the launcher, the same in all ranks that it started: with them, every
    rank would take the rank of its node."""
    original = utils.init_dist

    def init_dist(launcher, *arguments, **options):
        if launcher in ("slurm", "mpi") and os.environ.get("RANK") is not None and os.environ.get("FULLDECK_RANK_PID"):
            say_once("init_dist('{}') is taken as 'pytorch': rank {} of {} was started by fulldeck, not by {}".format(
                launcher, os.environ["RANK"], os.environ.get("WORLD_SIZE"), launcher))
            options.pop("port", None)
            launcher = "pytorch"
        return original(launcher, *arguments, **options)

    replace(utils, "init_dist", init_dist)


def init_without_cuda(utils):
    original = utils._init_dist_pytorch

    def _init_dist_pytorch(backend, init_backend="torch", **options):
        if init_backend != "torch":
            return original(backend, init_backend=init_backend, **options)
        if card.is_foreign():
            card.enter()  # replaces torch.cuda.set_device(local_rank): the launcher assigned the card
        utils.torch_dist.init_process_group(backend=backend, **options)

    replace(utils, "_init_dist_pytorch", _init_dist_pytorch)


def communicate_on_device(utils):
    def get_comm_device(group=None):
        backend = utils.get_backend(group)
        if backend in (None, "gloo", "mpi"):
            return utils.torch.device("cpu")
        return card.device()

    replace(utils, "get_comm_device", get_comm_device)


def autocast_on_device(amp):
    original = amp.autocast

    @contextlib.contextmanager
    def autocast(device_type=None, dtype=None, enabled=True, cache_enabled=None):
        if device_type not in (None, "cuda", card.kind()):
            with original(device_type, dtype, enabled, cache_enabled):
                yield
            return
        # float16 as on CUDA, the origin of MMEngine's default.
        with amp.torch.autocast(device_type=card.kind(), dtype=dtype or amp.torch.float16, enabled=enabled, cache_enabled=cache_enabled):
            yield

    replace(amp, "autocast", autocast)


def use_device_grad_scaler(wrapper):
    torch = wrapper.torch
    if not hasattr(getattr(torch, "amp", None), "GradScaler"):
        raise NotKnown("torch {} has no loss scaling for cards other than CUDA's".format(torch.__version__))

    class GradScaler(torch.amp.GradScaler):
        def __init__(self, *arguments, **options):
            super().__init__(card.kind(), *arguments, **options)

    # A CUDA scaler would disable itself with only a warning.
    wrapper.GradScaler = GradScaler
    # The constructor asserts that a card for mixed precision exists.
    wrapper.is_cuda_available = lambda: True


def use_torch_sync_bn(utils):
    original = utils.convert_sync_batchnorm

    def convert_sync_batchnorm(module, implementation="torch"):
        if implementation == "mmcv":
            say_once("sync_bn='mmcv' is taken as 'torch': the layer of MMCV is for CUDA alone, the one of torch works on {}".format(
                card.kind()))
            implementation = "torch"
        return original(module, implementation)

    replace(utils, "convert_sync_batchnorm", convert_sync_batchnorm)


# Hook points of the Runner -> the phase of the loop that starts there.
PHASES = {"before_train": board.INIT, "before_val": board.VALIDATION, "before_test": board.VALIDATION,
          "before_save_checkpoint": board.CHECKPOINT, "after_load_checkpoint": board.LOADING, "after_run": board.FINISHED}


def report_steps(runner):
    """Every loop of MMEngine calls the hooks of its Runner with the iteration number, the number of iterations, and the
    loss."""
    original = runner.call_hook

    def look(self, point, outputs):
        if point == "after_train_iter":
            if isinstance(outputs, dict) and "loss" in outputs:
                loop.note_loss(outputs["loss"])
            # The loop counts this iteration after its hooks.
            loop.report_step(self.iter + 1, self.max_iters or 0, self.epoch)
        elif point in ("before_train", "after_train"):
            loop.lead(point == "before_train")
        if point in PHASES:
            loop.phase(PHASES[point])

    def call_hook(self, fn_name, **named):
        loop.quietly(look, self, fn_name, named.get("outputs"))
        return original(self, fn_name, **named)

    call_hook.__wrapped__ = original
    runner.call_hook = call_hook


# Objects other than tensors in an MMEngine checkpoint: the history of the log, a class with numpy arrays.
STATISTICS = ("min", "max", "current", "mean")


def statistic_of_history(holder, name):
    """Replaces getattr in a checkpoint: returns only the four methods of HistoryBuffer that such a file contains.
    getattr itself would let a file call anything."""
    from mmengine.logging.history_buffer import HistoryBuffer

    if holder is not HistoryBuffer or name not in STATISTICS:
        raise ValueError("a checkpoint asks for the attribute {!r} of {!r}; only min, max, current and mean of HistoryBuffer are given"
                         .format(name, holder))
    return getattr(holder, name)


def safe_for_checkpoints():
    import numpy
    from mmengine.logging.history_buffer import HistoryBuffer

    core = getattr(numpy, "_core", None) or numpy.core
    reconstruct = core.multiarray._reconstruct
    scalar = core.multiarray.scalar
    safe = [HistoryBuffer, numpy.ndarray, numpy.dtype, (statistic_of_history, "builtins.getattr")]
    # Files of numpy 1 contain numpy.core, those of numpy 2 numpy._core.
    for package in ("numpy.core", "numpy._core"):
        safe += [(reconstruct, package + ".multiarray._reconstruct"), (scalar, package + ".multiarray.scalar")]
    for kind in ("float64", "float32", "int64", "int32"):
        dtype = type(numpy.dtype(kind))
        if dtype is not numpy.dtype:  # numpy before 1.25 has no classes for them
            safe.append(dtype)
    return safe


def allow_history(checkpoint):
    """From 2.6 on, torch loads only tensors and types that were declared safe (weights_only). MMEngine's log history is
    declared safe only while MMEngine loads a checkpoint; torch still rejects the user's own objects."""
    torch = checkpoint.torch
    if not hasattr(getattr(torch, "serialization", None), "safe_globals"):
        return  # an older torch: it loads everything

    def during(function):
        def load(*arguments, **options):
            with torch.serialization.safe_globals(safe_for_checkpoints()):
                return function(*arguments, **options)

        load.__name__, load.__doc__, load.__wrapped__ = function.__name__, function.__doc__, function
        return load

    loader = checkpoint.CheckpointLoader
    loader._schemes = type(loader._schemes)((prefix, during(function)) for prefix, function in loader._schemes.items())
    original = loader.__dict__["load_checkpoint"].__func__

    def load_checkpoint(cls, filename, map_location=None, logger="current"):
        try:
            return original(cls, filename, map_location, logger)
        except Exception as error:
            if "Weights only load failed" in str(error):
                say("{} has objects in it that torch does not load unasked (see its message for their names). If you trust the file: "
                    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 in front of the command".format(filename))
            raise

    loader.load_checkpoint = classmethod(load_checkpoint)
