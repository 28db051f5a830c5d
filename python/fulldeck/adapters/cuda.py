"""Redirects CUDA: if a rank has a card that torch does not call cuda, uses of torch.cuda, .cuda() and device strings go
to that card. On a rank without a card they raise an error that explains the fix. On a rank with a CUDA card nothing is
redirected; set_device with another rank's card is reported (B8).

ROWS defines all redirections. It is the source of the table in docs/python.md and of the test that covers it row by
row. Functions are replaced where programs find them; a torch function mode, which would see everything, costs time in
every operator of a step.
"""
import collections
import functools
import inspect
import types

from fulldeck.adapters import card, on_import, say_once

# How a row is redirected.
CARD = "card"        # to the same name in the card's own module (torch.gcu); raises if it does not exist there
OURS = "ours"        # by a function of this module
DEVICE = "device"    # the function stays, and device arguments that mean CUDA become the card
NONE = "none"        # other cards have nothing equivalent: raises, with the name of the row
KEPT = "kept"        # unchanged

Row = collections.namedtuple("Row", "name how what")


class NoCounterpart(RuntimeError):
    """The program requests a feature of CUDA that the rank's card does not have."""


class NoCudaCard(RuntimeError, AssertionError):
    """The program requests CUDA on a rank without a card. (torch's own error is an AssertionError in a build without
    CUDA, and a RuntimeError in one with it.)"""


def _rows(how, what, names, prefix="torch.cuda."):
    return [Row(prefix + name, how, what) for name in names.split()]


FACTORIES = ("arange as_tensor asarray bartlett_window blackman_window empty empty_like empty_permuted empty_strided eye full full_like "
             "hamming_window hann_window kaiser_window linspace logspace normal ones ones_like rand rand_like randint randint_like randn "
             "randn_like randperm range scalar_tensor sparse_coo_tensor tensor tril_indices triu_indices zeros zeros_like")
TYPED = " ".join(kind + "Tensor" for kind in "BFloat16 Bool Byte Char Double Float Half Int Long Short".split())

# Functions of the card's module that do not depend on the current card and must not initialize it. A program may call
# them before it forks.
WITHOUT_CARD = frozenset("empty_cache ipc_collect is_bf16_supported seed_all device_of can_device_access_peer".split())

ROWS = (
    _rows(OURS, "the card's", "is_available device_count")
    + _rows(OURS, "the card's; says so where it is not the rank's own", "set_device")
    + _rows(CARD, "the card's", "current_device synchronize empty_cache ipc_collect device device_of get_device_name get_device_properties "
            "get_device_capability can_device_access_peer is_bf16_supported")
    + _rows(OURS, "the card's random numbers", "manual_seed manual_seed_all")
    + _rows(CARD, "the card's random numbers",
            "seed seed_all initial_seed get_rng_state get_rng_state_all set_rng_state set_rng_state_all")
    + _rows(CARD, "the card's memory figures",
            "memory_allocated max_memory_allocated memory_reserved max_memory_reserved reset_peak_memory_stats "
            "reset_max_memory_allocated reset_accumulated_memory_stats memory_stats mem_get_info memory_summary memory_snapshot "
            "memory_stats_as_nested_dict set_per_process_memory_fraction get_per_process_memory_fraction")
    + _rows(OURS, "under its newer name", "memory_cached max_memory_cached reset_max_memory_cached")
    + _rows(CARD, "the card's streams and events", "current_stream default_stream set_stream stream Stream Event")
    + _rows(OURS, "the rank's card becomes the current one", "init")
    + _rows(OURS, "True once the card was used", "is_initialized")
    + _rows(OURS, "no: there are no graphs", "is_current_stream_capturing")
    + _rows(OURS, "no", "is_tf32_supported _is_in_bad_fork")
    + _rows(OURS, "raises: a way to CUDA that no row redirects", "_lazy_init")
    + _rows(DEVICE, "on the card", "autocast GradScaler custom_fwd custom_bwd", "torch.cuda.amp.")
    + _rows(DEVICE, "on the card; GradScaler would turn itself off without a word", "GradScaler autocast is_autocast_available custom_fwd "
            "custom_bwd", "torch.amp.")
    + _rows(DEVICE, "those of the card", "is_autocast_enabled set_autocast_enabled get_autocast_dtype set_autocast_dtype autocast", "torch.")
    + _rows(OURS, "those of the card", "get_autocast_gpu_dtype set_autocast_gpu_dtype", "torch.")
    + _rows(DEVICE, "cuda:N is card N, cuda the rank's own", "device Generator Stream Event set_default_device", "torch.")
    + _rows(DEVICE, "device=", FACTORIES, "torch.")
    + _rows(DEVICE, "device=", "fftfreq rfftfreq", "torch.fft.")
    + _rows(OURS, "onto the card", "cuda type", "torch.Tensor.")
    + _rows(DEVICE, "device", "to new_empty new_full new_ones new_tensor new_zeros pin_memory is_pinned", "torch.Tensor.")
    + _rows(DEVICE, "device", "to cuda to_empty", "torch.nn.Module.")
    + _rows(OURS, "onto the card", "cuda", "torch.UntypedStorage.")
    + _rows(OURS, "map_location: strings, devices, dicts and functions; without one, what lay on any card comes to the rank's own",
            "load", "torch.")
    + _rows(DEVICE, "map_location", "load", "torch.jit.")
    + _rows(DEVICE, "device_type", "fork_rng", "torch.random.")
    + _rows(NONE, "fulldeck top shows what the card's vendor tells",
            "memory_usage utilization temperature power_draw clock_rate device_memory_used list_gpu_processes")
    + _rows(NONE, "CUDA graphs", "CUDAGraph graph graph_pool_handle make_graphed_callables export_dot export_graph_data")
    + _rows(NONE, "CUDA's allocator", "CUDAPluggableAllocator MemPool use_mem_pool change_current_allocator get_allocator_backend "
            "caching_allocator_alloc caching_allocator_delete caching_allocator_disabled caching_allocator_enable host_memory_stats "
            "host_memory_stats_as_nested_dict reset_accumulated_host_memory_stats reset_peak_host_memory_stats")
    + _rows(NONE, "handles of CUDA's libraries", "cudart check_error current_blas_handle current_solver_handle ExternalStream "
            "get_stream_from_external GreenContext get_sync_debug_mode set_sync_debug_mode get_arch_list get_gencode_flags")
    + _rows(NONE, "write torch.FloatTensor(…).cuda()", TYPED)
    + _rows(KEPT, "modules and types", "amp graphs graph_annotations jiterator memory nccl nvtx profiler random sparse streams tunable CudaError "
            "DeferredCudaCallError StreamContext cudaStatus default_generators has_half has_magma BFloat16Storage BoolStorage ByteStorage "
            "CharStorage ComplexDoubleStorage ComplexFloatStorage DoubleStorage FloatStorage HalfStorage IntStorage LongStorage "
            "ShortStorage")
)


def means_cuda(wanted):
    """Whether a device argument of a program means CUDA: a string, a torch.device, a number, None. The check that every
    call pays for."""
    if type(wanted) is str:
        return wanted.startswith("cuda")
    return type(wanted) is card.real_device and wanted.type == "cuda"


def no_counterpart(row):
    return NoCounterpart("fulldeck: {} has no counterpart on this rank's card {} ({}). docs/python.md has the table.".format(
        row.name, card.name(), row.what))


def adapt(torch):
    if card.is_foreign():
        # torch.set_default_device and `with torch.device(…)` identify tensor factories by these objects, and torch
        # caches the set.
        from torch.utils import _device

        getattr(_device, "_device_constructors", set)()
        for row in ROWS:
            holder, name = _find(torch, row.name)
            if holder is not None and hasattr(holder, name):
                _REDIRECT[row.how](torch, row, holder, name)
        _report_settings(torch)
        return "what was written for CUDA goes to this rank's {}".format(card.name())
    if card.on_processors():
        _explain_on_cpu(torch)
    elif card.kind() == "cuda" and card.is_simulated():
        _refuse_real_cards(torch)
        return "there is no CUDA: {} is simulated".format(card.name())
    elif card.kind() == "cuda":
        _watch_set_device(torch)
    return None


def _find(torch, path):
    """The object that holds the last name of a row, and that name; None if this torch does not have it."""
    holder = torch
    names = path.split(".")
    for name in names[1:-1]:
        holder = getattr(holder, name, None)
    return holder, names[-1]


def _put(torch, holder, name, replacement):
    """Also replaces it in parts of torch.cuda that hold the same object: torch.cuda.memory.empty_cache,
    torch.serialization.load."""
    real = getattr(holder, name)
    setattr(holder, name, replacement)
    others = [getattr(torch.cuda, part, None) for part in ("memory", "random", "streams")] + [torch.random, torch.serialization]
    if holder is torch.amp:
        others = [torch.amp.autocast_mode, torch.amp.grad_scaler]
    for other in others if holder is not torch.cuda.amp else []:
        if getattr(other, name, None) is real:
            setattr(other, name, replacement)


# ---- how: card

def _redirect_to_card(torch, row, holder, name):
    def counterpart():
        try:
            return getattr(card.module(), name)
        except AttributeError:
            raise no_counterpart(row) from None

    real = getattr(holder, name)
    if isinstance(real, type):
        _put(torch, holder, name, stand_in(real, counterpart, enter=name not in WITHOUT_CARD))
        return

    @functools.wraps(real)
    def redirected(*arguments, **named):
        if name not in WITHOUT_CARD:
            card.enter()
        return counterpart()(*[card.redirect(each) for each in arguments],
                             **{key: card.redirect(value) for key, value in named.items()})

    _put(torch, holder, name, redirected)


# ---- how: device

def _redirect_device(torch, row, holder, name):
    real = getattr(holder, name)
    if row.name.startswith("torch.cuda.amp.") or name in ("autocast",):
        if row.name == "torch.amp.autocast":
            _redirect_init(real)
        return  # built from torch.amp's, which are looked up when they are called
    if name == "GradScaler":
        _redirect_init(real)
    elif row.name in ("torch.nn.Module.cuda", "torch.nn.Module.to_empty", "torch.set_default_device", "torch.random.fork_rng"):
        pass  # built from others in this table
    elif isinstance(real, type):
        wrapped = stand_in(real, lambda: real)
        _put(torch, holder, name, wrapped)
        _keep_scriptable(torch, real, wrapped)
    elif row.name == "torch.nn.Module.to" or (holder is torch.Tensor and not name.startswith("new_")):
        setattr(holder, name, _with_first_or_named(real))
    elif "autocast" in name or name in ("custom_fwd", "custom_bwd"):
        _put(torch, holder, name, _with_device_type(real, no_argument=card.kind() if name == "is_autocast_enabled" else None))
    elif row.name == "torch.jit.load":
        _put(torch, holder, name, _with_named(real, "map_location"))
    else:
        wrapped = _with_named(real, "device")
        _put(torch, holder, name, wrapped)
        _keep_scriptable(torch, real, wrapped)


def _with_named(real, key):
    @functools.wraps(real)
    def redirected(*arguments, **named):
        if key in named and means_cuda(named[key]):
            named[key] = card.redirect(named[key])
        return real(*arguments, **named)

    return redirected


def _with_first_or_named(real):
    """For methods: the device may be the first argument, or named."""
    @functools.wraps(real)
    def redirected(self, *arguments, **named):
        if arguments:
            if means_cuda(arguments[0]):
                return real(self, card.redirect(arguments[0]), *arguments[1:], **named)
        if named and means_cuda(named.get("device")):
            named["device"] = card.redirect(named["device"])
        return real(self, *arguments, **named)

    return redirected


def _with_device_type(real, no_argument=None):
    """For functions that take a device type: torch.get_autocast_dtype("cuda")."""
    @functools.wraps(real)
    def redirected(*arguments, **named):
        if not arguments and not named and no_argument is not None:
            return real(no_argument)
        if arguments and arguments[0] == "cuda":
            arguments = (card.kind(),) + arguments[1:]
        if named.get("device_type") == "cuda":
            named["device_type"] = card.kind()
        return real(*arguments, **named)

    return redirected


def _redirect_init(real):
    """autocast and GradScaler stay the same classes, subclasses included; only their constructor arguments change."""
    init = real.__init__
    key, default = ("device_type", None) if real.__name__ == "autocast" else ("device", "cuda")

    @functools.wraps(init)
    def redirected(self, *arguments, **named):
        if arguments:
            arguments = (card.kind() if means_cuda(arguments[0]) else arguments[0],) + arguments[1:]
        elif means_cuda(named.get(key, default)):
            named[key] = card.kind()
        init(self, *arguments, **named)

    real.__init__ = redirected


def _keep_scriptable(torch, real, wrapped):
    """torch.jit.script finds operators by the identity of their functions."""
    try:
        operator = torch.jit._builtins._find_builtin(real)
        if operator is not None:
            torch.jit._builtins._register_builtin(wrapped, operator)
    except AttributeError:
        pass


def stand_in(real, resolve, enter=False):
    """A class that replaces `real`, a C type that can neither be changed nor derived from. Objects that it creates are
    of the class that resolve() returns, with devices that mean CUDA replaced; isinstance(), ==, pickle and attributes
    are those of the real class. A subclass derives from the class that resolve() returns."""
    def replaced(arguments, named):
        return [card.redirect(each) for each in arguments], {key: card.redirect(value) for key, value in named.items()}

    class Meta(type):
        def __new__(meta, name, bases, namespace, **named):
            if not any(type(base) is meta for base in bases):
                return super().__new__(meta, name, bases, namespace)
            try:
                base = resolve()
            except RuntimeError:  # the vendor's module is not imported yet: creating an object then fails by itself
                base = real
            return types.new_class(name, tuple(_redirected(base, enter, replaced) if type(each) is meta else each for each in bases), named,
                                   lambda body: body.update(namespace))

        def __call__(cls, *arguments, **named):
            if enter:
                card.enter()
            arguments, named = replaced(arguments, named)
            return resolve()(*arguments, **named)

        def __instancecheck__(cls, instance):
            return isinstance(instance, resolve())

        def __subclasscheck__(cls, other):
            return other is cls or issubclass(other, resolve())

        def __eq__(cls, other):
            return other is cls or other is real

        def __hash__(cls):
            return hash(real)

        def __getattr__(cls, name):
            return getattr(resolve(), name)

    return Meta(real.__name__, (), {"__module__": real.__module__, "__qualname__": real.__qualname__, "__doc__": real.__doc__,
                                     "__wrapped__": real})


def _redirected(base, enter, replaced):
    """`base` with devices that mean CUDA replaced in its constructor arguments: the base of a program's own class."""
    def make(cls, *arguments, **named):
        if enter:
            card.enter()
        arguments, named = replaced(arguments, named)
        return base.__new__(cls, *arguments, **named)

    def init(self, *arguments, **named):
        arguments, named = replaced(arguments, named)
        base.__init__(self, *arguments, **named)

    body = {"__module__": base.__module__, "__doc__": base.__doc__}
    if base.__new__ is not object.__new__:
        body["__new__"] = make
    if base.__init__ is not object.__init__:
        body["__init__"] = init
    return type(base)(base.__name__, (base,), body)


# ---- how: none

def _raise_on_use(torch, row, holder, name):
    def refuse(*unused, **unused_too):
        raise no_counterpart(row)

    real = getattr(holder, name)
    # A class, so that isinstance() works. With __wrapped__, which torch reads for some of them (torch._dynamo of
    # torch.cuda.use_mem_pool, from 2.14 on).
    replacement = type(name, (), {"__new__": refuse, "__module__": "torch.cuda", "__doc__": real.__doc__,
                                  "__wrapped__": getattr(real, "__wrapped__", real)})
    _put(torch, holder, name, replacement)


def _keep(torch, row, holder, name):
    pass


# ---- how: ours

def _ours(torch, row, holder, name):
    real = getattr(holder, name)
    replacement = globals()["_our_" + row.name.split("torch.", 1)[1].replace("cuda.", "", 1 if row.name.startswith("torch.cuda.") else 0)
                            .replace(".", "_")](torch, row, real)
    _put(torch, holder, name, functools.update_wrapper(replacement, real))


def _our_is_available(torch, row, real):
    def is_available():
        try:
            return bool(card.module().is_available())
        except RuntimeError as error:
            say_once("warning: torch.cuda.is_available() is False: {}".format(str(error).replace("fulldeck: ", "", 1)))
            return False

    return is_available


def _our_device_count(torch, row, real):
    return lambda: card.module().device_count() if torch.cuda.is_available() else 0


def _our_set_device(torch, row, real):
    def set_device(device):
        wanted = device if isinstance(device, int) else card.redirect(device)
        card.choose(wanted)

    return set_device


def _our_init(torch, row, real):
    return lambda: card.enter()


def _our_manual_seed(torch, row, real):
    # torch.manual_seed calls these too. It must not initialize an unused card, so the seed is set for all cards.
    return lambda seed: card.module().manual_seed(seed) if card.is_entered() else torch.cuda.manual_seed_all(seed)


def _our_manual_seed_all(torch, row, real):
    waiting = []  # the seed for a vendor's module that is imported later

    def imported(module):
        if waiting:
            card.module().manual_seed_all(waiting.pop())

    def manual_seed_all(seed):
        if card.is_entered() or torch.cuda.is_available():
            card.module().manual_seed_all(seed)
            return
        if not waiting:
            on_import(card.vendor_module(), imported)
        waiting[:] = [seed]

    return manual_seed_all


def _our_is_initialized(torch, row, real):
    return lambda: card.is_entered()


def _our_is_current_stream_capturing(torch, row, real):
    return lambda: False


def _our_is_tf32_supported(torch, row, real):
    return lambda: False


def _our__is_in_bad_fork(torch, row, real):
    def is_in_bad_fork():
        found = getattr(getattr(torch, card.kind(), None), "_is_in_bad_fork", None)
        return bool(found()) if found is not None else False

    return is_in_bad_fork


def _our__lazy_init(torch, row, real):
    def lazy_init():
        raise NoCounterpart("fulldeck: the program asks for a CUDA device in a way that cannot be redirected to this rank's {}. Write "
                            "torch.device(\"{}\") there. docs/python.md has what is redirected.".format(card.name(), card.name()))

    return lazy_init


def _our_memory_cached(torch, row, real):
    return lambda device=None: torch.cuda.memory_reserved(device)


def _our_max_memory_cached(torch, row, real):
    return lambda device=None: torch.cuda.max_memory_reserved(device)


def _our_reset_max_memory_cached(torch, row, real):
    return lambda device=None: torch.cuda.reset_peak_memory_stats(device)


def _our_get_autocast_gpu_dtype(torch, row, real):
    return lambda: torch.get_autocast_dtype(card.kind())


def _our_set_autocast_gpu_dtype(torch, row, real):
    return lambda dtype: torch.set_autocast_dtype(card.kind(), dtype)


def _our_Tensor_cuda(torch, row, real):
    def cuda(self, device=None, non_blocking=False, memory_format=torch.preserve_format):
        return self.to(_card_number(device), non_blocking=non_blocking, memory_format=memory_format)

    return cuda


def _our_UntypedStorage_cuda(torch, row, real):
    def cuda(self, device=None, non_blocking=False):
        return self.to(device=card.real_device(_card_number(device)), non_blocking=non_blocking)

    return cuda


def _card_number(device):
    """The device for .cuda(N): the card N, or the current one."""
    if device is None:
        return card.redirect("cuda")
    return card.redirect("cuda:{}".format(device)) if isinstance(device, int) else card.redirect(device)


def _our_Tensor_type(torch, row, real):
    dtypes = {kind + "Tensor": getattr(torch, dtype) for kind, dtype in (
        ("BFloat16", "bfloat16"), ("Bool", "bool"), ("Byte", "uint8"), ("Char", "int8"), ("Double", "float64"), ("Float", "float32"),
        ("Half", "float16"), ("Int", "int32"), ("Long", "int64"), ("Short", "int16"))}

    def of_type(self, dtype=None, non_blocking=False, **named):
        if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
            return self.to(card.redirect("cuda"), dtypes[dtype[len("torch.cuda."):]], non_blocking=non_blocking)
        return real(self, dtype, non_blocking, **named) if dtype is not None else real(self)

    return of_type


def _our_load(torch, row, real):
    @functools.wraps(real)
    def load(f, map_location=None, *arguments, **named):
        return real(f, _map_location(torch, map_location), *arguments, **named)

    return load


def _map_location(torch, wanted):
    """map_location of torch.load with every CUDA device redirected to the card. A file that was written on a card names
    that card, which belongs to a different rank on all ranks but one: without an explicit location, tensors go to the
    rank's own card."""
    restore = torch.serialization.default_restore_location

    def is_card(location):
        return card.type_of(location) in ("cuda", card.kind())

    def home(storage, location):
        return restore(storage, card.current() if is_card(location) else location)

    if wanted is None:
        return home
    if isinstance(wanted, dict):
        # Keys with either name mean the same card.
        places = {card.type_of(key).replace(card.kind(), "cuda") + key[len(card.type_of(key)):]: value for key, value in wanted.items()}

        def by_table(storage, location):
            key = location.replace(card.kind(), "cuda", 1) if is_card(location) else location
            if key not in places:
                return home(storage, location)
            return restore(storage, str(card.redirect(places[key])))

        return by_table
    if isinstance(wanted, bytes):
        wanted = wanted.decode()
    if isinstance(wanted, str) or isinstance(wanted, card.real_device):
        return card.redirect(wanted)

    def by_function(storage, location):
        # A callable written for CUDA expects CUDA's names.
        found = wanted(storage, location.replace(card.kind(), "cuda", 1) if is_card(location) else location)
        return home(storage, location) if found is None else found

    return by_function


# Settings of CUDA's libraries, which programs set and which have no effect on other cards.
SETTINGS = {"torch.backends.cudnn": "enabled benchmark benchmark_limit deterministic allow_tf32 fp32_precision",
            "torch.backends.cuda.matmul": "allow_tf32 allow_fp16_reduced_precision_reduction allow_bf16_reduced_precision_reduction "
                                          "allow_fp16_accumulation fp32_precision"}
# The same as functions of one argument: the setter and the getter.
SETTERS = {"torch.set_float32_matmul_precision": "torch.get_float32_matmul_precision",
           "torch.backends.cuda.enable_flash_sdp": "torch.backends.cuda.flash_sdp_enabled",
           "torch.backends.cuda.enable_mem_efficient_sdp": "torch.backends.cuda.mem_efficient_sdp_enabled",
           "torch.backends.cuda.enable_math_sdp": "torch.backends.cuda.math_sdp_enabled",
           "torch.backends.cuda.enable_cudnn_sdp": "torch.backends.cuda.cudnn_sdp_enabled",
           "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp": "torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed"}


def _report_settings(torch):
    """Reported once each, when a program changes their value."""
    for path, names in SETTINGS.items():
        holder, last = _find(torch, path)
        holder = getattr(holder, last, None)
        if holder is not None:
            _report_setting(path, type(holder), frozenset(names.split()))
    for path, getter in SETTERS.items():
        holder, name = _find(torch, path)
        read = getattr(*_find(torch, getter), None)
        if read is not None and hasattr(holder, name):
            _report_setter(path, holder, name, read)
    if hasattr(torch.backends.cudnn, "flags"):
        _report_flags(torch.backends.cudnn)


def _no_effect(what):
    say_once("{} has no effect on {}: it is a setting of CUDA's libraries".format(what, card.kind()))


def _changes(holder, name, value):
    try:
        return getattr(holder, name) != value
    except Exception:  # some cannot be read once their newer names were set
        return True


def _report_setting(path, kind, names):
    real = kind.__setattr__

    @functools.wraps(real)
    def set_attribute(self, name, value):
        if name in names and _changes(self, name, value):
            _no_effect("{}.{}={}".format(path, name, value))
        real(self, name, value)

    kind.__setattr__ = set_attribute


def _report_setter(path, holder, name, read):
    real = getattr(holder, name)

    def state():
        try:
            return read()
        except Exception:  # some cannot be read once their newer names were set
            return None

    @functools.wraps(real)
    def setter(*arguments, **named):
        before = state()
        real(*arguments, **named)
        if before is None or state() != before:
            _no_effect("{}({})".format(path, ", ".join(map(repr, list(arguments) + list(named.values())))))

    setattr(holder, name, setter)


def _report_flags(cudnn):
    """torch.backends.cudnn.flags(…), which sets every omitted argument to its default during a `with`."""
    real = cudnn.flags
    signature = inspect.signature(real)

    @functools.wraps(real)
    def flags(*arguments, **named):
        try:
            changed = ["{}={}".format(name, value) for name, value in signature.bind(*arguments, **named).arguments.items()
                       if _changes(cudnn, name, value)]
        except TypeError:  # raised by the real function
            changed = []
        if changed:
            _no_effect("torch.backends.cudnn.flags({})".format(", ".join(changed)))
        return real(*arguments, **named)

    cudnn.flags = flags


_REDIRECT = {CARD: _redirect_to_card, DEVICE: _redirect_device, OURS: _ours, NONE: _raise_on_use, KEPT: _keep}


# ---- ranks with a CUDA card

def _watch_set_device(torch):
    """B8: reported, not rejected: a program may have its own scheme for cards that all of its ranks see."""
    real = torch.cuda.set_device

    @functools.wraps(real)
    def set_device(device):
        real(device)
        try:
            number = device if isinstance(device, int) else card.real_device(device).index
        except Exception:  # torch accepts more kinds of objects
            number = torch.cuda.current_device()
        if number not in (None, card.index()) and number >= 0 and number not in [place.index for place in card.cuda_places()]:
            say_once("WARNING: B8: the program chose cuda:{} with set_device, and this rank's card is {}: two ranks may share a card. Use "
                     "cuda:LOCAL_RANK".format(number, card.name()))

    torch.cuda.set_device = set_device


def _refuse_real_cards(torch):
    """A simulated cuda:N exists for inventory and placement only; work for it must not silently run on a real card."""
    def lazy_init(*unused, **unused_too):
        raise NoCudaCard("fulldeck: this rank's card {} is simulated (FULLDECK_SIMULATE), for inventory and placement only: torch keeps the name "
                         "cuda for itself. Real cards are not used in its place. Fix: simulate gcu, npu, mlu or musa to train, or unset "
                         "FULLDECK_SIMULATE.".format(card.name()))

    def is_available():
        say_once("torch.cuda.is_available() is False: {} is simulated, for inventory and placement only".format(card.name()))
        return False

    torch.cuda._lazy_init = functools.wraps(torch.cuda._lazy_init)(lazy_init)
    torch.cuda.set_device = functools.wraps(torch.cuda.set_device)(lazy_init)
    torch.cuda.is_available = functools.wraps(torch.cuda.is_available)(is_available)
    torch.cuda.device_count = functools.wraps(torch.cuda.device_count)(lambda: 0)


# ---- ranks without a card

def _explain_on_cpu(torch):
    """Every access to a CUDA device goes through _lazy_init, or fails because the driver's function is missing."""
    def lazy_init(*unused, **unused_too):
        raise NoCudaCard(
            "fulldeck: the program asks for a CUDA device, and this rank runs on the processors: {}. Run it on cards (fulldeck devices "
            "shows which there are), or let the program take the CPU where torch.cuda.is_available() is False.".format(
                "it was started with --devices cpu, or no card was found"))

    torch.cuda._lazy_init = functools.wraps(torch.cuda._lazy_init)(lazy_init)
    real = torch.cuda.set_device

    @functools.wraps(real)
    def set_device(device):
        if isinstance(device, int) and device < 0:
            return real(device)
        return lazy_init()

    torch.cuda.set_device = set_device
