"""Checks of the simulated cards in one process, each compared with the CPU: functions check_*, run one after the other.

    FULLDECK_SIMULATE=gcu:8 python tests/scripts/simulator_checks.py    prints a JSON object {check: "ok" or the problem}
"""
import copy
import inspect
import io
import json
import os
import sys
import tempfile
import traceback

# Some virtual machines announce AMX but do not support it; the CPU's bfloat16 kernels crash there, with or without a
# card.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

CARD = "gcu:3"


class Segmenter(nn.Module):
    """A small ViT that classifies each pixel."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, stride=4)
        self.place = nn.Parameter(torch.randn(1, 64, 32) * 0.02)
        self.dropout = dropout
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm": nn.LayerNorm(32), "qkv": nn.Linear(32, 96), "out": nn.Linear(32, 32), "norm2": nn.LayerNorm(32),
            "up": nn.Linear(32, 64), "down": nn.Linear(64, 32)}) for _ in range(2))
        self.head = nn.Conv2d(32, 5, 1)
        self.batch_norm = nn.BatchNorm2d(32)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            q, k, v = block["qkv"](block["norm"](x)).view(x.shape[0], 64, 3, 4, 8).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(q, k, v)
            x = x + F.dropout(block["out"](seen.transpose(1, 2).reshape(x.shape)), self.dropout)
            x = x + block["down"](F.gelu(block["up"](block["norm2"](x))))
        maps = self.batch_norm(x.transpose(1, 2).reshape(-1, 32, 8, 8))
        return F.interpolate(self.head(maps), scale_factor=4, mode="bilinear", align_corners=False)


def batch(device):
    made = torch.Generator().manual_seed(5)
    images = torch.randn(2, 3, 32, 32, generator=made)
    labels = torch.randint(0, 5, (2, 32, 32), generator=made)
    labels[0, :4] = 255
    return images.to(device), labels.to(device)


def train(device, steps=3, autocast=None, scaler=False):
    torch.manual_seed(11)
    model = Segmenter().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = batch(device)
    scale = torch.amp.GradScaler(torch.device(device).type, enabled=scaler)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(torch.device(device).type, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            loss = F.cross_entropy(model(images), labels, ignore_index=255)
        scale.scale(loss).backward()
        scale.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale.step(optimizer)
        scale.update()
        losses.append(loss.item())
    return losses, {name: value.detach().cpu() for name, value in model.state_dict().items()}


def close(one, other, tolerance=1e-5):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def raises(kind, words, action):
    try:
        action()
    except kind as error:
        assert words in str(error), str(error)
        return
    raise AssertionError("nothing was raised")


def check_the_device_is_there_without_an_import():
    assert "fulldeck.simulator" in sys.modules and torch.gcu.is_available() and torch.gcu.device_count() == 8
    assert torch.accelerator.current_accelerator() == torch.device("gcu") and torch.accelerator.device_count() == 8
    assert torch.zeros(2, device="gcu:7").device == torch.device("gcu:7")
    with torch.gcu.device(5):
        assert torch.gcu.current_device() == 5 and torch.ones(1, device="gcu").device.index == 5
    assert torch.gcu.current_device() == 0
    assert torch.ones(2).gcu().is_gcu and nn.Linear(2, 2).gcu().weight.device.type == "gcu"
    raises(IndexError, "gcu:8", lambda: torch.zeros(1, device="gcu:8"))
    raises(TypeError, "numpy", lambda: torch.zeros(1, device=CARD).numpy())
    assert repr(torch.arange(3, device=CARD)) == "tensor([0, 1, 2], device='gcu:3')"


def check_a_vit_segmentation_step_is_the_hosts():
    host, card = train("cpu"), train(CARD)
    close(card[0], host[0])
    for name, value in host[1].items():
        close(card[1][name], value, 2e-5)


def check_autocast_and_the_gradient_scaler():
    losses, state = train(CARD, autocast=torch.bfloat16, scaler=True)
    close(losses, train("cpu")[0], 2e-2)
    with torch.autocast("gcu", dtype=torch.float16):
        a, b = torch.randn(4, 4, device=CARD), torch.randn(4, 4, device=CARD)
        assert (a @ b).dtype == torch.float16 and F.softmax(a.half(), 1).dtype == torch.float32
        assert F.linear(a, b).dtype == torch.float16 and (a + b).dtype == torch.float32
    scaler = torch.amp.GradScaler("gcu", init_scale=4.0)
    weight = nn.Parameter(torch.ones(2, device=CARD))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale((weight * torch.tensor([1.0, float("inf")], device=CARD)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1, 1] and scaler.get_scale() == 2


def check_recurrent_layers_are_the_hosts():
    for make in (nn.LSTM, nn.GRU, nn.RNN):
        torch.manual_seed(3)
        host = make(5, 7, num_layers=2, batch_first=True)
        card = copy.deepcopy(host).to(CARD)
        x = torch.randn(3, 6, 5)
        a, b = x.clone().requires_grad_(), x.to(CARD).requires_grad_()
        one, other = host(a)[0], card(b)[0]
        close(other.cpu(), one)
        one.square().sum().backward()
        other.square().sum().backward()
        close(b.grad.cpu(), a.grad)
        for mine, theirs in zip(card.parameters(), host.parameters()):
            close(mine.grad.cpu(), theirs.grad)
    lengths = torch.tensor([6, 4, 2])
    packed = nn.utils.rnn.pack_padded_sequence(x.to(CARD), lengths, batch_first=True)
    close(nn.utils.rnn.pad_packed_sequence(card(packed)[0], batch_first=True)[0].cpu(),
          nn.utils.rnn.pad_packed_sequence(host(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))[0], batch_first=True)[0])


def check_tensors_of_several_devices_do_not_mix():
    here, there, host = torch.ones(3, device="gcu:0"), torch.ones(3, device="gcu:1"), torch.ones(3)
    for action in (lambda: here + there, lambda: here + host, lambda: torch.cat([here, host]), lambda: here.add_(host),
                   lambda: torch.addmm(host, torch.ones(1, 2, device=CARD), torch.ones(2, 3, device=CARD)),
                   lambda: nn.Linear(3, 3)(here), lambda: F.conv2d(torch.ones(1, 1, 3, 3, device=CARD), torch.ones(1, 1, 2, 2)),
                   lambda: host.add_(here[0])):
        raises(RuntimeError, "on the same device", action)
    assert (here + torch.tensor(2.0)).tolist() == [3, 3, 3] and (here * 2).device == here.device
    assert here[torch.tensor([0, 2])].tolist() == [1, 1]
    assert here.to("gcu:1").add_(there).tolist() == [2, 2, 2] and host.copy_(here * 4).tolist() == [4, 4, 4]


def check_memory_is_counted_and_given_back():
    before = torch.gcu.memory_allocated(CARD)
    torch.gcu.reset_peak_memory_stats(CARD)
    kept = torch.empty(1 << 20, device=CARD)
    assert torch.gcu.memory_allocated(CARD) - before == 4 << 20
    twice = kept + kept
    view = twice[10:]
    assert torch.gcu.memory_allocated(CARD) - before == 8 << 20
    free, total = torch.gcu.mem_get_info(CARD)
    assert total == 48 << 30 and free <= total - (8 << 20)
    assert torch.accelerator.memory_allocated(CARD) == torch.gcu.memory_allocated(CARD)
    del kept, twice
    assert torch.gcu.memory_allocated(CARD) - before == 4 << 20 and view.numel() == (1 << 20) - 10
    del view
    assert torch.gcu.memory_allocated(CARD) == before and torch.gcu.max_memory_allocated(CARD) - before == 8 << 20


def check_results_that_change_their_size():
    out = torch.empty(0, device=CARD)
    before = torch.gcu.memory_allocated(CARD)
    torch.add(torch.ones(4, 1000, device=CARD), 1, out=out)
    assert out.shape == (4, 1000) and out.sum().item() == 8000 and torch.gcu.memory_allocated(CARD) == before + 16000
    out.resize_(2, 3)
    assert out.tolist() == [[2] * 3] * 2
    storage = out.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0 and torch.gcu.memory_allocated(CARD) == before
    storage.resize_(24)
    out.fill_(7)
    assert out.sum().item() == 42
    x = torch.arange(6.0, device=CARD)
    view = x.view(2, 3).t()[1:]
    view.mul_(10)
    assert x.tolist() == [0, 10, 20, 3, 40, 50] and view.data_ptr() == x.data_ptr() + 4
    assert x.unsqueeze_(0).shape == (1, 6) and x.squeeze_(0).shape == (6,)
    values, indices = torch.sort(x, descending=True)
    assert values.tolist()[0] == 50 and indices.tolist()[0] == 5
    assert torch.view_as_real(torch.ones(2, dtype=torch.complex64, device=CARD)).shape == (2, 2)
    z = torch.tensor([1 + 2j], device=CARD).conj()
    assert z.is_conj() and z.tolist() == [1 - 2j] and (z + 0).tolist() == [1 - 2j]
    raises(RuntimeError, "dense", lambda: torch.eye(2, device=CARD).to_sparse())


def check_random_numbers_are_the_cards_own():
    torch.manual_seed(1)
    a = [torch.rand(4, device="gcu:{}".format(card)) for card in range(2)]
    torch.rand(100)
    torch.manual_seed(1)
    b = [torch.rand(4, device="gcu:{}".format(card)) for card in range(2)]
    assert torch.equal(a[0], b[0]) and torch.equal(a[1].cpu(), a[0].cpu())
    state = torch.gcu.get_rng_state("gcu:2")
    x = torch.randn(5, device="gcu:2")
    dropped = F.dropout(torch.ones(1000, device="gcu:2"), 0.4)
    host_state = torch.get_rng_state()
    torch.gcu.set_rng_state(state, "gcu:2")
    assert torch.equal(torch.randn(5, device="gcu:2"), x)
    assert torch.equal(F.dropout(torch.ones(1000, device="gcu:2"), 0.4), dropped) and 300 < (dropped == 0).sum().item() < 500
    assert torch.equal(torch.get_rng_state(), host_state)
    mine = torch.Generator(device="gcu:2").manual_seed(9)
    again = torch.Generator(device="gcu:2").manual_seed(9)
    assert mine.device == torch.device("gcu:2") and mine.initial_seed() == 9
    assert torch.equal(torch.randperm(50, generator=mine, device="gcu:2"), torch.randperm(50, generator=again, device="gcu:2"))
    saved = mine.get_state()
    n = torch.empty(3, device="gcu:2").normal_(generator=mine)
    mine.set_state(saved)
    assert torch.equal(torch.empty(3, device="gcu:2").normal_(generator=mine), n)
    raises(RuntimeError, "device type for generator", lambda: torch.rand(2, device="gcu:2", generator=torch.Generator()))
    with torch.random.fork_rng(devices=[2], device_type="gcu"):
        inside = torch.rand(2, device="gcu:2")
    assert torch.equal(torch.rand(2, device="gcu:2"), inside)
    torch.gcu.manual_seed_all(4)
    assert torch.gcu.initial_seed() == 4
    raises(RuntimeError, "no state", lambda: torch.gcu.set_rng_state(torch.zeros(3, dtype=torch.uint8)))


def check_a_recomputed_block_draws_the_same_numbers():
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(64, device=CARD, requires_grad=True)
    torch.gcu.set_device(3)
    y = checkpoint(lambda value: F.dropout(value * 2, 0.5), x, use_reentrant=False)
    y.sum().backward()
    torch.gcu.set_device(0)
    assert torch.equal(x.grad == 0, y == 0)


def check_saving_and_loading():
    model = Segmenter().to(CARD)
    optimizer = torch.optim.AdamW(model.parameters())
    images, labels = batch(CARD)
    F.cross_entropy(model(images), labels, ignore_index=255).backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "view": torch.arange(10, device=CARD)[3:]}, file)
    for where, expected in ((None, CARD), ("cpu", "cpu"), ("gcu:6", "gcu:6")):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded["view"].tolist() == list(range(3, 10)) and str(loaded["view"].device) == expected
        for name, value in model.state_dict().items():
            assert torch.equal(loaded["model"][name].cpu(), value.cpu()) and str(loaded["model"][name].device) == expected
    fresh = Segmenter().to("gcu:6")
    fresh.load_state_dict(loaded["model"])
    twin = copy.deepcopy(model)
    assert torch.equal(twin.place, model.place) and twin.place.data_ptr() != model.place.data_ptr()
    import safetensors.torch

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.safetensors")
        safetensors.torch.save_file({"a": torch.arange(4.0, device=CARD)}, path)
        assert safetensors.torch.load_file(path)["a"].tolist() == [0, 1, 2, 3]


def check_a_data_loader_with_pinned_memory():
    data = torch.utils.data.TensorDataset(torch.arange(12.0).view(12, 1), torch.arange(12))
    for workers in (0, 2):
        seen = []
        for values, labels in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers):
            assert values.is_pinned() and not torch.ones(1).is_pinned()
            seen += values.to(CARD, non_blocking=True).flatten().tolist()
        assert seen == list(range(12))
    assert torch.ones(3).pin_memory().is_pinned() and torch.empty(3, pin_memory=True).is_pinned()
    raises(RuntimeError, "pin", lambda: torch.ones(3, device=CARD).pin_memory())


def check_streams_and_events():
    stream = torch.gcu.Stream(device="gcu:2")
    begin, end = torch.gcu.Event(enable_timing=True), torch.gcu.Event(enable_timing=True)
    with torch.gcu.stream(stream):
        assert torch.gcu.current_stream("gcu:2") == stream and torch.gcu.current_device() == 2
        begin.record(stream)
        y = torch.ones(100, 100, device="gcu:2") @ torch.ones(100, 100, device="gcu:2")
        end.record(stream)
    assert torch.gcu.current_stream("gcu:2") == torch.gcu.default_stream("gcu:2") != stream
    y.record_stream(stream)
    torch.gcu.current_stream("gcu:2").wait_stream(stream)
    end.synchronize()
    stream.synchronize()
    torch.gcu.synchronize("gcu:2")
    assert end.query() and stream.query() and begin.elapsed_time(end) > 0


def check_what_runs_is_counted():
    from fulldeck import simulator

    simulator.reset_counts()
    x = torch.ones(3, 3, device=CARD, requires_grad=True)
    (x @ x).exp().sum().backward()
    counts = simulator.counts()
    assert counts.fallback["aten::exp"] == 1 and counts.fallback["aten::mm"] == 3 and counts.native["aten::empty.memory_format"] > 0, counts
    assert "aten::view" not in counts.fallback


def check_attention_and_optimizers_take_the_hosts_way():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 16, 8) for _ in range(3))
    mask = torch.rand(16, 16) > 0.3
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
        there = {name: value.to(CARD) if torch.is_tensor(value) else value for name, value in options.items()}
        close(F.scaled_dot_product_attention(q.to(CARD), k.to(CARD), v.to(CARD), **there).cpu(),
              F.scaled_dot_product_attention(q, k, v, **options))
    for make in (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad,
                 torch.optim.RMSprop, lambda p: torch.optim.AdamW(p, fused=True), lambda p: torch.optim.AdamW(p, foreach=True)):
        after = []
        for device in ("cpu", CARD):
            weight = nn.Parameter(torch.linspace(-1, 1, 50).view(5, 10).to(device))
            optimizer = make([weight])
            for step in range(3):
                weight.grad = (weight.detach() * (step + 1)).sin()
                optimizer.step()
            after.append(weight.detach().cpu())
        close(after[1], after[0])


def check_a_forked_child_may_use_the_cards_and_leaves_the_parents_count_alone():
    kept = torch.ones(1000, device=CARD)
    before = torch.gcu.memory_allocated(CARD)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            more = torch.ones(500, device=CARD)
            fine = (kept.sum() + more.sum()).item() == 1500 and torch.gcu.memory_allocated(CARD) >= 2000
            del kept
            code = 0 if fine and torch.gcu.memory_allocated(CARD) < 1 << 40 else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0 and torch.gcu.memory_allocated(CARD) == before


def check_twenty_operators_of_torchs_list():
    from grids import simulator_ops

    names = {"add", "matmul", "nn.functional.conv2d", "nn.functional.gelu", "nn.functional.layer_norm", "nn.functional.interpolate",
             "nn.functional.cross_entropy", "nn.functional.embedding", "softmax", "index_put", "scatter_add", "cumsum", "sort", "topk",
             "where", "nn.functional.batch_norm", "linalg.inv", "fft.rfft", "masked_fill", "var_mean", "einsum",
             "nn.functional.scaled_dot_product_attention", "split", "cat", "_batch_norm_with_update"}
    rows = simulator_ops.try_all(names, samples=2)
    assert sum(row[1] == "passed" for row in rows) >= 20 and not [row for row in rows if row[1] == "failed"], rows


def main():
    torch.set_num_threads(1)
    results = {}
    for name, check in sorted(globals().items()):
        if not name.startswith("check_") or not inspect.isfunction(check) or (sys.argv[1:] and name not in sys.argv[1:]):
            continue
        try:
            check()
            results[name] = "ok"
        except BaseException:
            results[name] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
