"""Covers the table of redirections from CUDA to the rank's card (fulldeck/adapters/cuda.py), one check per row, in one
process of `fulldeck run` on simulated cards. Prints a JSON object: row -> "ok" or the problem."""
import io
import json
import os
import pickle
import sys
import traceback

if os.environ["RANK"] != "6":  # a card other than the first, and earlier ranks that cost nothing
    sys.exit()

import torch
from fulldeck.adapters import cuda

CARD = os.environ["FULLDECK_DEVICE"]
KIND, NUMBER = CARD.split(":")[0], int(CARD.split(":")[1])
HERE = torch.device(CARD)
GCU = getattr(torch, KIND)
CHECKS = {}


def is_here(name):
    """Some rows require a later torch."""
    holder, last = cuda._find(torch, name)
    return hasattr(holder, last)


def row(*names):
    def add(check):
        for name in filter(is_here, names):
            assert name not in CHECKS, name
            CHECKS[name] = check
        return check

    return add


def is_on_card(tensor, number=NUMBER):
    assert tensor.device == torch.device(KIND, number), tensor.device


def refused(action, *texts, error=cuda.NoCounterpart):
    try:
        action()
    except error as reported:
        assert all(text in str(reported) for text in texts), reported
        return
    raise AssertionError("nothing was raised")


@row("torch.cuda.is_available")
def _():
    assert not torch.cuda.is_initialized()
    torch.manual_seed(1)
    torch.cuda.empty_cache()
    assert not torch.cuda.is_initialized() and GCU.current_device() == 0, "nothing has used the card yet"
    assert torch.cuda.is_available() is True


@row("torch.cuda.device_count")
def _():
    assert torch.cuda.device_count() == GCU.device_count() == 8


@row("torch.cuda.current_device")
def _():
    assert torch.cuda.current_device() == NUMBER


@row("torch.cuda.set_device")
def _():
    try:
        for wanted, number in ((2, 2), ("cuda:4", 4), (torch.device("cuda", 5), 5), (CARD, NUMBER)):
            torch.cuda.set_device(wanted)
            assert torch.cuda.current_device() == GCU.current_device() == number
            is_on_card(torch.ones(1).cuda(), number)
            is_on_card(torch.ones(1, device="cuda"), number)
    finally:
        torch.cuda.set_device(NUMBER)


@row("torch.cuda.synchronize", "torch.cuda.empty_cache", "torch.cuda.ipc_collect", "torch.cuda.init")
def _():
    torch.cuda.synchronize()
    torch.cuda.synchronize("cuda:1")
    torch.cuda.synchronize(torch.device("cuda"))
    torch.cuda.empty_cache()
    torch.cuda.memory.empty_cache()
    torch.cuda.ipc_collect()
    torch.cuda.init()


@row("torch.cuda.device")
def _():
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1
        with torch.cuda.device("cuda:2"):
            is_on_card(torch.ones(1).cuda(), 2)
    assert torch.cuda.current_device() == NUMBER


@row("torch.cuda.device_of")
def _():
    with torch.cuda.device_of(torch.ones(1, device="cuda:1")):
        assert torch.cuda.current_device() == 1


@row("torch.cuda.get_device_name", "torch.cuda.get_device_properties", "torch.cuda.get_device_capability", "torch.cuda.is_bf16_supported",
     "torch.cuda.can_device_access_peer")
def _():
    assert torch.cuda.get_device_name("cuda:1") == GCU.get_device_name(1) == torch.cuda.get_device_properties(1).name
    assert torch.cuda.get_device_capability() == GCU.get_device_capability()
    assert torch.cuda.is_bf16_supported() == GCU.is_bf16_supported()
    assert torch.cuda.can_device_access_peer(0, 1) == GCU.can_device_access_peer(0, 1)


@row("torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "torch.cuda.initial_seed", "torch.cuda.seed", "torch.cuda.seed_all")
def _():
    torch.cuda.manual_seed(5)
    assert torch.cuda.initial_seed() == 5
    first = torch.rand(4, device="cuda")
    torch.cuda.manual_seed_all(5)
    assert torch.equal(torch.rand(4, device="cuda"), first)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(4, device="cuda"), first)
    torch.cuda.seed()
    torch.cuda.seed_all()
    assert torch.cuda.initial_seed() != 5


@row("torch.cuda.get_rng_state", "torch.cuda.set_rng_state", "torch.cuda.get_rng_state_all", "torch.cuda.set_rng_state_all",
     "torch.random.fork_rng")
def _():
    state, states = torch.cuda.get_rng_state(), torch.cuda.get_rng_state_all()
    assert len(states) == 8
    first = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="cuda"), first)
    torch.cuda.set_rng_state_all(states)
    with torch.random.fork_rng(devices=[NUMBER]):
        assert torch.equal(torch.rand(3, device="cuda"), first)
    assert torch.equal(torch.rand(3, device="cuda"), first)
    torch.cuda.set_rng_state(state, "cuda:{}".format(NUMBER))


@row("torch.cuda.memory_allocated", "torch.cuda.max_memory_allocated", "torch.cuda.memory_reserved", "torch.cuda.max_memory_reserved",
     "torch.cuda.memory_cached", "torch.cuda.max_memory_cached", "torch.cuda.memory_stats", "torch.cuda.mem_get_info",
     "torch.cuda.reset_peak_memory_stats", "torch.cuda.reset_max_memory_allocated", "torch.cuda.reset_max_memory_cached",
     "torch.cuda.reset_accumulated_memory_stats")
def _():
    before = torch.cuda.memory_allocated()
    kept = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated(CARD) - before == kept.numel() <= torch.cuda.max_memory_allocated("cuda:{}".format(NUMBER))
    assert torch.cuda.memory_reserved() == torch.cuda.memory_cached() and torch.cuda.max_memory_reserved() == torch.cuda.max_memory_cached()
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == torch.cuda.memory_allocated()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    del kept
    for reset in (torch.cuda.reset_peak_memory_stats, torch.cuda.reset_max_memory_allocated, torch.cuda.reset_max_memory_cached):
        big = torch.empty(1 << 22, dtype=torch.uint8, device="cuda")
        del big
        assert torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated() >= 1 << 22
        reset()
        assert torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated() < 1 << 22
    torch.cuda.reset_accumulated_memory_stats()


@row("torch.cuda.memory_summary", "torch.cuda.memory_snapshot", "torch.cuda.memory_stats_as_nested_dict",
     "torch.cuda.set_per_process_memory_fraction", "torch.cuda.get_per_process_memory_fraction")
def _():
    for name in ("memory_summary", "memory_snapshot", "memory_stats_as_nested_dict", "set_per_process_memory_fraction",
                 "get_per_process_memory_fraction"):
        refused(getattr(torch.cuda, name), "torch.cuda." + name, CARD)  # simulated cards have none; a vendor's may


@row("torch.cuda.current_stream", "torch.cuda.default_stream", "torch.cuda.set_stream", "torch.cuda.stream", "torch.cuda.Stream",
     "torch.Stream")
def _():
    stream = torch.cuda.Stream(device="cuda")
    assert isinstance(stream, torch.cuda.Stream) and isinstance(stream, torch.Stream) and stream.device == HERE, stream.device
    assert torch.Stream(device="cuda:1").device == torch.device(KIND, 1)
    assert not isinstance(3, torch.cuda.Stream)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        x = torch.ones(2, device="cuda") * 2
    torch.cuda.current_stream(HERE).wait_stream(stream)
    torch.cuda.set_stream(torch.cuda.default_stream())
    stream.synchronize()
    assert x.sum().item() == 4


@row("torch.cuda.Event", "torch.Event")
def _():
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    torch.ones(10, device="cuda").sum()
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) >= 0 and isinstance(begin, torch.cuda.Event)
    torch.Event(device="cuda").record()


@row("torch.cuda.is_initialized", "torch.cuda.is_current_stream_capturing", "torch.cuda.is_tf32_supported", "torch.cuda._is_in_bad_fork")
def _():
    assert torch.cuda.is_initialized()
    assert not (torch.cuda.is_current_stream_capturing() or torch.cuda.is_tf32_supported() or torch.cuda._is_in_bad_fork())


@row("torch.cuda._lazy_init")
def _():
    refused(lambda: torch.Tensor.to.__wrapped__(torch.ones(1), "cuda"), "cannot be redirected", CARD)


def autocasts(context):
    with context:
        assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda") and torch.is_autocast_enabled(KIND)
        return (torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype


@row("torch.amp.autocast", "torch.autocast", "torch.cuda.amp.autocast", "torch.is_autocast_enabled", "torch.amp.is_autocast_available")
def _():
    assert autocasts(torch.autocast("cuda")) == autocasts(torch.cuda.amp.autocast()) == torch.float16
    assert autocasts(torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16)) == torch.bfloat16
    assert autocasts(torch.cuda.amp.autocast(dtype=torch.bfloat16)) == torch.bfloat16
    assert not torch.is_autocast_enabled() and torch.amp.is_autocast_available("cuda")
    with torch.autocast("cuda", enabled=False):
        assert not torch.is_autocast_enabled("cuda")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not torch.is_autocast_enabled() and torch.is_autocast_enabled("cpu")

    @torch.autocast("cuda")
    def decorated(x):
        return x @ x

    assert decorated(torch.ones(2, 2, device="cuda")).dtype == torch.float16


@row("torch.set_autocast_enabled", "torch.get_autocast_dtype", "torch.set_autocast_dtype", "torch.get_autocast_gpu_dtype",
     "torch.set_autocast_gpu_dtype")
def _():
    torch.set_autocast_enabled("cuda", True)
    assert torch.is_autocast_enabled(KIND)
    torch.set_autocast_enabled("cuda", False)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    assert torch.get_autocast_dtype("cuda") == torch.get_autocast_gpu_dtype() == torch.bfloat16
    torch.set_autocast_gpu_dtype(torch.float16)
    assert torch.get_autocast_dtype("cuda") == torch.float16


@row("torch.amp.GradScaler", "torch.cuda.amp.GradScaler")
def _():
    for scaler in (torch.amp.GradScaler("cuda"), torch.amp.GradScaler(), torch.cuda.amp.GradScaler(), torch.amp.GradScaler(device="cuda")):
        assert scaler.is_enabled()
        weight = torch.ones(2, device="cuda", requires_grad=True)
        optimizer = torch.optim.SGD([weight], 0.5)
        scaler.scale(weight.sum()).backward()
        assert weight.grad[0].item() == 65536
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert weight.tolist() == [0.5, 0.5]
        weight.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        assert weight.tolist() == [0.5, 0.5] and scaler.get_scale() == 32768
    assert not torch.amp.GradScaler("cuda", enabled=False).is_enabled()


@row("torch.amp.custom_fwd", "torch.amp.custom_bwd", "torch.cuda.amp.custom_fwd", "torch.cuda.amp.custom_bwd")
def _():
    for forward_of, backward_of in ((torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32), torch.amp.custom_bwd(device_type="cuda")),
                                    (torch.cuda.amp.custom_fwd(cast_inputs=torch.float32), torch.cuda.amp.custom_bwd)):
        class Square(torch.autograd.Function):
            @staticmethod
            @forward_of
            def forward(context, x):
                assert x.dtype == torch.float32
                context.save_for_backward(x)
                return x * x

            @staticmethod
            @backward_of
            def backward(context, gradient):
                return gradient * 2 * context.saved_tensors[0]

        with torch.autocast("cuda"):
            x = torch.ones(2, dtype=torch.float16, device="cuda", requires_grad=True)
            Square.apply(x).sum().backward()
        assert x.grad.tolist() == [2, 2]


@row("torch.device")
def _():
    assert torch.device("cuda:5") == torch.device("cuda", 5) == torch.device(type="cuda", index=5) == torch.device(KIND, 5)
    assert torch.device("cuda").type == KIND and torch.device("cpu").type == "cpu" and torch.device(torch.device("cuda:1")).index == 1
    assert isinstance(HERE, torch.device) and isinstance("x", (str, torch.device)) and not isinstance("x", torch.device)
    assert type(HERE) == torch.device and type(HERE) in {torch.device} and torch.device in {type(HERE): 1}
    assert pickle.loads(pickle.dumps({"at": HERE, "class": torch.device})) == {"at": HERE, "class": torch.device}
    with torch.device("cuda"):
        is_on_card(torch.ones(2))
    with torch.device("cuda:1"):
        is_on_card(torch.nn.Linear(1, 1).weight, 1)
    scripted = torch.jit.script(lambda_for_script)
    assert scripted(torch.ones(2)).tolist() == [1, 1]


def lambda_for_script(x: torch.Tensor) -> torch.Tensor:
    return x + torch.zeros([2], device=torch.device("cpu"))


@row("torch.Generator")
def _():
    generator = torch.Generator(device="cuda")
    assert generator.device.type == KIND and isinstance(generator, torch.Generator)
    generator.manual_seed(3)
    first = torch.rand(2, device="cuda", generator=generator)
    assert torch.equal(first, torch.rand(2, device="cuda", generator=torch.Generator("cuda").manual_seed(3)))
    assert torch.Generator().device.type == "cpu"


@row("torch.set_default_device")
def _():
    torch.set_default_device("cuda")
    try:
        is_on_card(torch.zeros(2))
    finally:
        torch.set_default_device(None)
    assert torch.zeros(2).device.type == "cpu"


ARGUMENTS = {"arange": (3,), "as_tensor": ([1.0],), "asarray": ([1.0],), "empty_like": (torch.ones(1),), "empty_permuted": ((2, 2), (0, 1)),
             "empty_strided": ((2,), (1,)), "full": ((2,), 1.0), "full_like": (torch.ones(1), 2.0), "linspace": (0, 1, 3), "logspace": (0, 1, 3),
             "normal": (0.0, 1.0, (2,)), "ones_like": (torch.ones(1),), "rand_like": (torch.ones(1),), "randint": (5, (2,)),
             "randint_like": (torch.ones(1), 5), "randn_like": (torch.ones(1),), "range": (0, 2), "scalar_tensor": (1.0,),
             "sparse_coo_tensor": None, "kaiser_window": None, "tensor": ([1.0],), "tril_indices": (2, 2), "triu_indices": (2, 2), "zeros_like": (torch.ones(1),)}


def check_factory(name, function):
    def check():
        arguments = ARGUMENTS.get(name, (2,))
        # Simulated cards do not support it; the check is that the call goes to the card, and not to CUDA.
        if arguments is None:
            arguments = (torch.tensor([[0]]), [1.0]) if name == "sparse_coo_tensor" else (2,)
            refused(lambda: function(*arguments, device="cuda:1"), "PrivateUse1" if name == "sparse_coo_tensor" else KIND, error=Exception)
            return
        is_on_card(function(*arguments, device="cuda"))
        is_on_card(function(*arguments, device="cuda:1"), 1)
        is_on_card(function(*arguments, device=torch.device("cuda", 2)), 2)
        assert function(*arguments).device.type == "cpu" and function(*arguments, device="cpu").device.type == "cpu"

    return check


for _name in cuda.FACTORIES.split():
    row("torch." + _name)(check_factory(_name, getattr(torch, _name)))
row("torch.fft.fftfreq")(check_factory("fftfreq", torch.fft.fftfreq))
row("torch.fft.rfftfreq")(check_factory("rfftfreq", torch.fft.rfftfreq))


@row("torch.Tensor.cuda")
def _():
    is_on_card(torch.ones(1).cuda())
    is_on_card(torch.ones(1).cuda(1), 1)
    is_on_card(torch.ones(1).cuda("cuda:2", non_blocking=True), 2)
    is_on_card(torch.ones(1).cuda(device=torch.device("cuda:3")), 3)
    assert torch.ones(1).cuda().cpu().tolist() == [1]


@row("torch.Tensor.to")
def _():
    x = torch.ones(1)
    is_on_card(x.to("cuda"))
    is_on_card(x.to("cuda:1", non_blocking=True), 1)
    is_on_card(x.to(device="cuda:1", dtype=torch.float64), 1)
    is_on_card(x.to(torch.device("cuda:1"), torch.float16), 1)
    is_on_card(x.to(torch.ones(1, device="cuda:2")), 2)
    assert x.to(torch.float64).dtype == torch.float64 and x.to("cpu") is x
    is_on_card(pickle.loads(b"\x80\x02ctorch\ndevice\nX\x04\x00\x00\x00cudaK\x01\x86R.") and x.to(pickle.loads(
        b"\x80\x02ctorch\ndevice\nX\x04\x00\x00\x00cudaK\x01\x86R.")), 1)


@row("torch.Tensor.type")
def _():
    is_on_card(torch.ones(1).type("torch.cuda.FloatTensor"))
    assert torch.ones(1).type("torch.cuda.HalfTensor").dtype == torch.float16
    assert torch.ones(1).type() == "torch.FloatTensor" and torch.ones(1).type(torch.float64).dtype == torch.float64


@row("torch.Tensor.new_empty", "torch.Tensor.new_full", "torch.Tensor.new_ones", "torch.Tensor.new_tensor", "torch.Tensor.new_zeros")
def _():
    x = torch.ones(1)
    for made in (x.new_empty(2, device="cuda"), x.new_full((2,), 1, device="cuda"), x.new_ones(2, device="cuda"), x.new_tensor([1.0], device="cuda"),
                 x.new_zeros(2, device="cuda")):
        is_on_card(made)


@row("torch.Tensor.pin_memory", "torch.Tensor.is_pinned")
def _():
    pinned = torch.ones(3).pin_memory()
    assert pinned.tolist() == [1, 1, 1] and pinned.is_pinned() and not torch.ones(3).is_pinned()
    assert torch.ones(3).pin_memory("cuda").is_pinned("cuda")
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(8.0)), 4, pin_memory=True)
    batches = [batch for batch, in loader]
    assert torch.cat(batches).tolist() == list(range(8)) and all(batch.is_pinned() for batch in batches)


@row("torch.nn.Module.to", "torch.nn.Module.cuda", "torch.nn.Module.to_empty")
def _():
    for model, number in ((torch.nn.Linear(2, 2).to("cuda"), NUMBER), (torch.nn.Linear(2, 2).to(device="cuda:1"), 1),
                          (torch.nn.BatchNorm2d(2).to(torch.device("cuda:2"), non_blocking=True), 2), (torch.nn.Linear(2, 2).cuda(), NUMBER),
                          (torch.nn.Linear(2, 2).cuda(3), 3), (torch.nn.Linear(2, 2, device="meta").to_empty(device="cuda:1"), 1),
                          (torch.nn.Linear(2, 2, device="cuda:4"), 4)):
        for tensor in list(model.parameters()) + list(model.buffers()):
            is_on_card(tensor, number)
    assert torch.nn.Linear(2, 2).to(torch.float64).weight.dtype == torch.float64
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)]).cuda()
    is_on_card(packed.data)


@row("torch.UntypedStorage.cuda")
def _():
    assert torch.ones(1).untyped_storage().cuda(1).device == torch.device(KIND, 1)
    assert torch.ones(1).untyped_storage().cuda().device == HERE


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@row("torch.load")
def _():
    on_first = saved({"w": torch.arange(3.0, device="cuda:0"), "host": torch.ones(1)})
    def load(map_location=None, weights_only=True, data=on_first):
        return torch.load(io.BytesIO(data), map_location=map_location, weights_only=weights_only)["w"]

    for where, number in ((None, NUMBER), ("cuda", NUMBER), ("cuda:1", 1), (torch.device("cuda:2"), 2), ({"cuda:0": "cuda:3"}, 3),
                          ({"cuda:0": torch.device("cuda:3")}, 3), ({KIND + ":0": "cuda:4"}, 4), ({"cuda:7": "cuda:1"}, NUMBER),
                          (lambda storage, location: storage.cuda(5) if location == "cuda:0" else storage, 5), ({"cpu": "cpu"}, NUMBER)):
        for weights_only in (True, False):
            found = load(where, weights_only)
            is_on_card(found, number)
            assert found.tolist() == [0, 1, 2]
    assert load("cpu").device.type == load(lambda storage, location: storage).device.type == "cpu"
    assert load({"cuda:0": "cpu"}).device.type == "cpu"
    assert torch.load(io.BytesIO(on_first), weights_only=True)["host"].device.type == "cpu"
    assert torch.serialization.load is torch.load


@row("torch.jit.load")
def _():
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), file)
    file.seek(0)
    is_on_card(torch.jit.load(file, map_location="cuda").weight)


def check_refusal(name):
    def check():
        attribute = getattr(torch.cuda, name.rsplit(".", 1)[1])
        refused(attribute, name, CARD)
        assert not isinstance(3, attribute)

    return check


def check_kept(name):
    return lambda: getattr(torch.cuda, name.rsplit(".", 1)[1])


for each in cuda.ROWS:
    if each.how == cuda.NONE:
        row(each.name)(check_refusal(each.name))
    if each.how == cuda.KEPT:
        row(each.name)(check_kept(each.name))


def result(name):
    try:
        CHECKS[name]()
        return "ok"
    except Exception:
        return traceback.format_exc()[-1500:]


rows = [each.name for each in cuda.ROWS if is_here(each.name)]
results = {name: result(name) for name in rows if name in CHECKS}
results["rows without a check"] = sorted(set(rows) - set(CHECKS)) or "ok"
results["checks without a row"] = sorted(set(CHECKS) - set(rows)) or "ok"
results["rows that are there twice"] = sorted(name for name in rows if rows.count(name) > 1) or "ok"
known = {name[len("torch.cuda."):] for name in rows if name.startswith("torch.cuda.")}
results["public names of torch.cuda without a row"] = sorted(set(torch.cuda.__all__) - known) or "ok"
# Attributes that torch reads from its own functions at import (torch._dynamo of torch.cuda.use_mem_pool.__wrapped__,
# from 2.14 on).
results["stand-ins without __wrapped__"] = [
    each.name for each in cuda.ROWS for holder, name in [cuda._find(torch, each.name)]
    if each.how in (cuda.CARD, cuda.OURS, cuda.NONE) and hasattr(holder, name) and not hasattr(getattr(holder, name), "__wrapped__")] or "ok"
print(json.dumps(results))
