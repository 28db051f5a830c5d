"""The simulated cards of FULLDECK_SIMULATE as a torch device: torch.gcu, torch.xla, torch.npu, torch.mlu, torch.musa,
torch.sdaa or torch.hpu.

    FULLDECK_SIMULATE=gcu:8 python train.py         # torch.device("gcu:3") exists after `import torch`

torch calls load_plugins() at the end of `import torch` if the package is installed or a rank of `fulldeck run` finds it
(_fulldeck_autoload.py). If that is disabled (TORCH_DEVICE_BACKEND_AUTOLOAD=0), call `fulldeck.simulator.load()`.
docs/simulated-accelerator.md
"""
import collections
import ctypes
import os
import sys

from fulldeck import _library
from fulldeck._whole import check_whole

FILE_NAME = "libfulldeck_sim.so"
CARD_FILE_NAMES = ("libfulldeck_simulated_card.so.0", "libfulldeck_simulated_card.so")
SIMULATE = "FULLDECK_SIMULATE"
PLUGINS = "FULLDECK_TORCH_PLUGIN"
# Vendors' modules that provide the device themselves.
VENDOR_MODULES = ("torch_gcu", "torch_npu", "torch_mlu", "torch_musa", "torch_sdaa", "torch_dipu", "habana_frameworks")
FAULTS = {"idle": 1, "slow": 2, "broken": 4, "lying": 8, "hung": 16, "dropped": 32}

# Why the requested cards could not be loaded, if so.
failure = None
_simulator = None


class NotThere(RuntimeError):
    """The simulated cards are not available in this process; the text has the reason."""


class NotThereAtAll(NotThere, AttributeError):
    """The same for an attribute of torch.gcu, so that hasattr() returns False."""


class Figures(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("held", "peak", "free", "total")]


FUNCTIONS = {
    "fulldeck_torch_plugin_init": (ctypes.c_int, []),
    "fulldeck_torch_plugin_error": (ctypes.c_char_p, []),
    "fulldeck_simulator_name": (ctypes.c_char_p, []),
    "fulldeck_simulator_cards": (ctypes.c_int, []),
    "fulldeck_simulator_memory": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(Figures)]),
    "fulldeck_simulator_reset_peak": (None, [ctypes.c_int]),
    "fulldeck_simulator_counts": (ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t]),
    "fulldeck_simulator_reset_counts": (None, []),
    "fulldeck_simulator_set_seed": (ctypes.c_int, [ctypes.c_int, ctypes.c_uint64]),
    "fulldeck_simulator_seed": (ctypes.c_uint64, [ctypes.c_int]),
    "fulldeck_simulator_get_state": (ctypes.c_size_t, [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]),
    "fulldeck_simulator_set_state": (ctypes.c_int, [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]),
}

# Number of runs of each operator on the cards of this process: with the cards' own kernel, or with the CPU fallback.
Counts = collections.namedtuple("Counts", "native fallback")


def load_plugins():
    """Called by `import torch`: loads the libraries of FULLDECK_TORCH_PLUGIN and, with FULLDECK_SIMULATE, the simulated
    cards. Never raises: an error is kept in `failure`, printed in one line on stderr, and raised by later uses of
    torch.KIND."""
    global failure
    for path in [entry for entry in os.environ.get(PLUGINS, "").split(os.pathsep) if entry]:
        if os.path.basename(path).startswith(FILE_NAME):
            continue  # loaded by load()
        try:
            _load_plugin(path)
        except Exception as error:
            _log("the torch plugin {} of {} cannot be used: {}".format(path, PLUGINS, error))
    if not os.environ.get(SIMULATE):
        return
    try:
        load()
        failure = None
    except Exception as error:
        failure = error
        vendor = vendor_module()
        if vendor is None:
            _log("there are no simulated cards in this process: {}".format(error))
            _stand_in(error)


def load():
    """Makes the simulated cards a torch device, once per process; returns torch's name of it. Raises NotThere."""
    global _simulator
    if _simulator is None:
        if not os.environ.get(SIMULATE):
            raise NotThere("{} is not set, so that there are no simulated cards".format(SIMULATE))
        vendor = vendor_module()
        if vendor is not None:
            raise NotThere("the vendor's module {} is installed and brings the device itself; the simulated cards stay away. "
                           "Unset {} to use the real cards".format(vendor, SIMULATE))
        _check_torch()
        library = _load_plugin(_find())
        _register(library)
        _simulator = library
    return _simulator.fulldeck_simulator_name().decode()


def vendor_module():
    """The name of a vendor's module that is loaded or could be; None if there is none."""
    import importlib.util

    for name in VENDOR_MODULES:
        if name in sys.modules:
            if getattr(sys.modules[name], "__fulldeck_simulated__", False):
                continue
            return name
        try:
            spec = importlib.util.find_spec(name)
            # Under fulldeck run, a module of fulldeck may replace torch_gcu (fulldeck/adapters/torch_gcu.py).
            if spec is not None and not getattr(spec.loader, "fulldeck_simulated", False):
                return name
        except (ImportError, ValueError):
            pass
    return None


def library():
    """The loaded library; raises NotThere with the reason if it is not loaded."""
    if _simulator is None:
        raise NotThere(str(failure) if failure is not None else "the simulated cards were not loaded: fulldeck.simulator.load()")
    return _simulator


def counts():
    """Counts(native, fallback): two dicts from an operator's name to the number of its runs on a card in this
    process."""
    size = library().fulldeck_simulator_counts(None, 0) + 65536
    text = ctypes.create_string_buffer(size)
    library().fulldeck_simulator_counts(text, size)
    found = Counts({}, {})
    for line in text.value.decode().splitlines():
        calls, kind, name = line.split(" ", 2)
        (found.native if kind == "native" else found.fallback)[name] = int(calls)
    return found


def reset_counts():
    library().fulldeck_simulator_reset_counts()


def set_faults(card, *names, slow_factor=1.0):
    """Sets the faults of a card (keys of FAULTS) for every process that uses it; without names, clears them."""
    faults = sum(FAULTS[name] for name in names)
    cards = _load_card_library()
    handle = ctypes.c_void_p()
    # A card in the dropped state cannot be opened, so handles that are already open are kept.
    if card not in _handles:
        code = cards.fulldeck_simulated_card_open(card, ctypes.byref(handle))
        if code != 0:
            raise NotThere("card {}: {}".format(card, cards.fulldeck_simulated_card_error().decode()))
        _handles[card] = handle
    cards.fulldeck_simulated_card_set_faults(_handles[card], faults, slow_factor)


_handles = {}


def _load_card_library():
    for folder in _library.folders():
        for name in CARD_FILE_NAMES:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                found = ctypes.CDLL(path)
                found.fulldeck_simulated_card_error.restype = ctypes.c_char_p
                found.fulldeck_simulated_card_open.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)]
                found.fulldeck_simulated_card_set_faults.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_double]
                found.fulldeck_simulated_card_set_faults.restype = None
                return found
    raise NotThere("{} is in none of {}".format(CARD_FILE_NAMES[0], ", ".join(_library.folders())))


def _find():
    for path in os.environ.get(PLUGINS, "").split(os.pathsep):
        if os.path.basename(path).startswith(FILE_NAME):
            return path
    for folder in _library.folders():
        path = os.path.join(folder, FILE_NAME)
        if os.path.exists(path):
            return path
    raise NotThere("{} is in none of {}. Build it (make build)".format(FILE_NAME, ", ".join(_library.folders())))


def _check_torch():
    """The library contains torch C++ code: with a minor version other than the one it was built for, it would crash
    silently."""
    from fulldeck import backend

    try:
        backend._check_build()
    except backend.NotUsable as error:
        raise NotThere(str(error)) from error


def _load_plugin(path):
    """Loads a library that registers a device with torch, through its entry function if it has one."""
    check_whole(path)
    plugin = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    try:
        init, text = plugin.fulldeck_torch_plugin_init, plugin.fulldeck_torch_plugin_error
    except AttributeError:
        return plugin  # a vendor's library, which registers itself
    text.restype = ctypes.c_char_p
    if init() != 0:
        raise NotThere((text() or b"its init failed without a word").decode(errors="replace"))
    return plugin


def _register(plugin):
    """The Python side of the device: torch.gcu, Tensor.gcu(), Module.gcu()."""
    import torch

    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(plugin, name)
        function.restype, function.argtypes = result, arguments
    name = plugin.fulldeck_simulator_name().decode()
    from fulldeck import _simulated_device

    _simulated_device.start(name, plugin)
    torch.utils.rename_privateuse1_backend(name)
    torch._register_device_module(name, _simulated_device)
    # torch already defines the names for xla (Tensor.is_xla), for tensors of the real XLA; a T20-like torch has no
    # others.
    if not hasattr(torch.Tensor, "is_" + name):
        torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_packed_sequence=True,
                                                             for_storage=True)


def _log(text):
    try:
        sys.stderr.write("fulldeck: warning: {}.\n".format(text.rstrip(".")))
    except Exception:  # stderr may be closed or absent
        pass


def _stand_in(error):
    """torch.gcu of a process without the cards: available() returns False, and everything else raises the reason."""
    import torch

    name = os.environ.get(SIMULATE, "").split(":")[0]
    if name not in ("gcu", "xla", "npu", "mlu", "musa", "sdaa", "hpu") or hasattr(torch, name):
        return
    import types

    class Absent(types.ModuleType):
        def is_available(self):
            return False

        def device_count(self):
            return 0

        def __getattr__(self, attribute):
            if attribute.startswith("_"):
                raise AttributeError(attribute)
            raise NotThereAtAll("torch.{}.{}: there are no simulated cards in this process: {}".format(name, attribute, error))

    setattr(torch, name, Absent("torch." + name))
