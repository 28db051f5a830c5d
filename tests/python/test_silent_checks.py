"""What the checks for silent errors write to the board, in one process and without a launcher: small correct and faulty
scripts. test_silent_scripts.py has whole runs."""
import os
import subprocess
import sys
import types
import warnings

import pytest

from launching import BUILD

torch = pytest.importorskip("torch")
sys.path.insert(0, os.path.join(BUILD, "lib", "python"))

from fulldeck import board  # noqa: E402
from fulldeck.adapters import batches, card, child_failures, fingerprints, loop, losses, observing, probe, silent, sources, validation  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


class Kept:
    """Replaces the board."""
    is_open, steps_reported, saved = True, False, int

    def __init__(self):
        self.written, self.figures = {}, board.Figures()

    def observe(self, check, *figures):
        self.written[check] = figures

    def phase(self, number):
        pass

    def tell(self):
        pass


loop._ours = Kept()
fingerprints.adapt(torch)
silent.adapt(torch)
torch.set_num_threads(1)


@pytest.fixture
def seen():
    """The contents of the board for a script that has just started."""
    for kept in batches._kinds + (losses._backward, losses._computed):
        kept.__init__()
    losses._reported, silent._loads = False, 0
    silent._read_names.clear()
    for kept in (batches._loaders, batches._gone, batches._recent, validation._models, silent._optimizers, silent._misfits, observing._off,
                 observing.pending, observing._no_copies, child_failures._children, child_failures._failed):
        kept.clear()
    batches.fetched = batches._fetched_at = batches.steps = validation._searches = silent._steps = silent._not_finite_at = 0
    batches._constants, batches._latest, validation._watch = (), None, None
    silent._without[:], silent._on_card = [0, 0, 0, "", silent.MISSING], False
    loop._ours = Kept()
    torch.manual_seed(0)
    yield loop._ours.written
    assert not observing._off, observing._off


def ended():
    """The observations after a script that exited successfully."""
    silent.at_exit(torch)
    return loop._ours.written


def samples(seed=1, count=320):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(count, 8, generator=generator), torch.randint(3, (count,), generator=generator))


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


def train(model, optimizer, data, size=8):
    for inputs, labels in DataLoader(data, size, shuffle=True):
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


# ---- steps

def test_a_compiled_step_is_seen_and_its_warnings_are_errors_in_vain(seen):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for _ in range(3):
            functional.cross_entropy(model(torch.randn(8, 8)), torch.randint(3, (8,))).backward()
            step()
    assert silent._steps == 3


# ---- gradients

def test_a_step_that_a_scaler_leaves_out_in_a_fused_optimizer_is_no_inf(seen):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 16)
    for number in range(12):
        scaler.scale(functional.cross_entropy(model(torch.randn(8, 8)), torch.randint(3, (8,)))).backward()
        if number < 2:
            model[0].weight.grad.mul_(float("inf"))
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert board.CHECK_FINITE not in ended()
    model[0].weight.grad = torch.full_like(model[0].weight, float("inf"))
    optimizer.step()
    assert seen[board.CHECK_FINITE][0] == 1


def train_until_nan(first, steps, how):
    """NaN in the inputs from step `first` on; `how` is called with the model, the optimizer and the loss. Returns the
    model and its optimizer."""
    model = nn.Linear(8, 3)
    optimizer = sgd(model)
    for number in range(steps):
        inputs = torch.full((8, 8), float("nan")) if number >= first else torch.randn(8, 8)
        how(model, optimizer, functional.cross_entropy(model(inputs), torch.randint(3, (8,))))
        optimizer.zero_grad()
    return model, optimizer


def skip(model, optimizer, loss):
    if torch.isfinite(loss):
        loss.backward()
        optimizer.step()


def clean(model, optimizer, loss):
    loss.backward()
    for parameter in model.parameters():
        torch.nan_to_num_(parameter.grad)
    optimizer.step()


def scale(model, optimizer, loss, scaler=torch.amp.GradScaler("cpu", init_scale=2.0 ** 10)):
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def mask(model, optimizer, loss):
    (torch.zeros_like(loss).masked_fill(~torch.isfinite(loss), float("nan")) + model.weight.square().sum()).backward()
    optimizer.step()


@pytest.mark.parametrize("how", [skip, clean, scale, mask], ids=lambda how: how.__name__)
def test_losses_that_stay_nan_are_reported_though_the_parameters_are_sound(seen, how):
    kept = train_until_nan(25, 60, how)
    assert seen[board.CHECK_FINITE][0] == silent.LOSS and seen[board.CHECK_FINITE][3] in (25, 26) and kept


@pytest.mark.parametrize("how", [skip, clean, scale, mask], ids=lambda how: how.__name__)
def test_a_few_losses_of_nan_are_no_fault(seen, how):
    train_until_nan(25, 40, how)
    assert board.CHECK_FINITE not in ended()


def test_a_head_whose_labels_are_rare_may_have_no_loss_for_long(seen):
    model = net()
    optimizer = sgd(model)
    for _ in range(60):
        found = [functional.cross_entropy(model(torch.randn(8, 8)), torch.full((8,), label)) for label in [-100] * 6 + [1]]
        torch.stack(found).nan_to_num().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert board.CHECK_FINITE not in ended()


def test_parameters_of_nan_at_the_end_are_reported(seen):
    kept = train_until_nan(34, 36, lambda model, optimizer, loss: (loss.backward(), optimizer.step()))
    assert board.CHECK_FINITE not in seen
    assert ended()[board.CHECK_FINITE][0] == silent.PARAMETERS and kept


def test_losses_of_a_card_are_read_now_and_then_and_never_waited_for(seen, monkeypatch):
    reads = []
    monkeypatch.setattr(losses, "read_later", lambda torch, tensor, then: reads.append(then) or True)
    loss = torch.ones((), device="meta", requires_grad=True)
    for _ in range(losses.ENOUGH + 1):
        losses.check_loss(torch, loss, losses._backward)
    assert len(reads) == 3
    for read in reads:
        assert board.CHECK_FINITE not in seen
        read([float("inf")])
    assert seen[board.CHECK_FINITE][0] == silent.LOSS


def test_an_empty_part_of_a_sharded_parameter_needs_no_gradient(seen):
    model = net()
    optimizer = torch.optim.SGD(list(model.parameters()) + [nn.Parameter(torch.empty(0)) for _ in range(4)], lr=0.01)
    train(model, optimizer, samples())
    assert board.CHECK_GRADIENTS not in ended()


def play(episodes, rewarded):
    """A policy gradient whose reward comes from episode `rewarded` on: until then each gradient is exactly zero."""
    policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters())
    for episode in range(episodes):
        chosen = torch.distributions.Categorical(logits=policy(torch.randn(10, 4)))
        (-(chosen.log_prob(chosen.sample()) * float(episode >= rewarded)).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return policy, optimizer


def test_gradients_of_zeros_may_wait_for_a_reward(seen):
    kept = play(45, rewarded=30)
    assert board.CHECK_GRADIENTS not in ended() and kept


def test_gradients_of_zeros_are_a_note_in_a_short_run_and_a_warning_in_a_long_one(seen):
    kept = play(25, rewarded=1000)
    assert board.CHECK_GRADIENTS not in seen
    assert ended()[board.CHECK_GRADIENTS][:3] == (1, 4, 4)
    silent._optimizers.clear()
    silent._without[:] = [0, 0, 0, "", silent.MISSING]
    kept = play(201, rewarded=1000)
    assert seen[board.CHECK_GRADIENTS][:3] == (0, 4, 4) and kept


@pytest.mark.parametrize("steps", [60, 200])
def test_a_gradient_that_is_never_there_is_a_note_after_the_first_steps_and_a_warning_later(seen, steps):
    model, unused = net(), nn.Linear(8, 3)
    optimizer = torch.optim.SGD(list(model.parameters()) + list(unused.parameters()), lr=0.01)
    train(model, optimizer, samples(count=8 * 21))
    assert seen[board.CHECK_GRADIENTS][:4] == (silent.MISSING, 2, 6, 20)
    train(model, optimizer, samples(count=8 * (steps - 21)))
    assert seen[board.CHECK_GRADIENTS][0] == (silent.CERTAIN if steps == 200 else silent.MISSING)
    assert ended()[board.CHECK_GRADIENTS][:3] == (silent.CERTAIN, 2, 6) and unused


@pytest.mark.parametrize("first,every", [(40, 1), (25, 30)])
def test_a_branch_may_join_later_or_seldom(seen, first, every):
    model, late = net(), nn.Linear(8, 3)
    optimizer = torch.optim.SGD(list(model.parameters()) + list(late.parameters()), lr=0.01)
    for number, (inputs, labels) in enumerate(DataLoader(samples(count=8 * 210), 8)):
        outputs = model(inputs)
        if number >= first and (number - first) % every == 0:
            outputs = outputs + late(inputs)
        functional.cross_entropy(outputs, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert ended()[board.CHECK_GRADIENTS][0] == silent.MISSING


# ---- where the parameters are

@pytest.fixture
def with_card(monkeypatch):
    monkeypatch.setattr(card, "kind", lambda: "cuda")
    monkeypatch.setattr(card, "index", lambda: 0)


def test_parameters_on_the_cpu_are_judged_when_others_had_time_to_come(seen, with_card, monkeypatch):
    model = net()
    optimizer = sgd(model)
    train(model, optimizer, samples(count=152))
    assert board.CHECK_DEVICE not in seen, "19 steps"
    train(model, optimizer, samples(count=8))
    assert seen[board.CHECK_DEVICE][0] == 1


def test_the_end_of_the_cards_probe_is_reported(monkeypatch):
    """Work on the card before the probe is not the program's; later work is."""
    reported_text = []
    monkeypatch.setattr(board, "ours", lambda: types.SimpleNamespace(probed=lambda: reported_text.append("end")))
    monkeypatch.setattr(card, "device", lambda: torch.device("cpu"))
    monkeypatch.setattr(probe, "prove", lambda device: reported_text.append("probe"))
    monkeypatch.setattr(probe, "_done", False)
    probe.prove_once()
    assert reported_text == ["probe", "end"]
    probe.prove_once()
    monkeypatch.setattr(probe, "_done", False)
    monkeypatch.setenv("FULLDECK_PROBE", "0")
    probe.prove_once()
    assert reported_text == ["probe", "end"], "once, and not where nothing was probed"


@pytest.mark.parametrize("held,expected", [(64 << 20, False), (512, True)])
def test_a_card_that_holds_frozen_layers_is_used(seen, with_card, monkeypatch, held, expected):
    monkeypatch.setattr(torch, "cuda", types.SimpleNamespace(is_initialized=lambda: True, device_count=lambda: 1, memory_allocated=lambda number: held))
    model = net()
    optimizer = sgd(model)
    train(model, optimizer, samples(count=200))
    assert (board.CHECK_DEVICE in seen) == expected


def test_an_optimizer_on_the_cpu_beside_one_on_the_card_is_meant(seen, with_card):
    model = net()
    optimizer = sgd(model)
    train(model, optimizer, samples(count=80))
    on_card = types.SimpleNamespace(device=types.SimpleNamespace(type="cuda", index=0))
    silent.device(torch, types.SimpleNamespace(param_groups=[{"params": [on_card]}]), 1)
    train(model, optimizer, samples(count=160))
    assert seen[board.CHECK_DEVICE][0] == 2 and ended()[board.CHECK_DEVICE][0] == 2


@pytest.mark.parametrize("kind,variable", [("sdaa", "SDAA_VISIBLE_DEVICES"), ("hpu", "HABANA_VISIBLE_MODULES"), ("gcu", "TOPS_VISIBLE_DEVICES")])
def test_a_card_is_named_by_the_list_of_its_vendor(kind, variable):
    assert silent.physical(kind, 0, {variable: "5"}) == kind + ":5"


def test_a_kind_that_each_process_numbers_from_0_has_a_name_only_with_a_list_of_one():
    assert silent.physical("hpu", 0, {}) is None and silent.physical("hpu", 0, {"HABANA_VISIBLE_MODULES": "0,1"}) is None
    assert silent.physical("sdaa", 0, {}) == "sdaa:0"


# ---- labels

def constant(value, count=320):
    return TensorDataset(torch.randn(count, 8), torch.full((count,), value))


def test_labels_of_one_class_are_reported_when_a_pass_has_ended(seen):
    model = net()
    optimizer = sgd(model)
    train(model, optimizer, constant(2, count=480))
    assert seen[board.CHECK_LABELS][:4] == (1, 2, 60, 0)


def test_data_that_is_sorted_by_class_is_no_fault_before_a_pass_has_ended(seen):
    model = net()
    optimizer = sgd(model)
    data = TensorDataset(torch.randn(1200, 8), torch.arange(2).repeat_interleave(600))
    for number, (inputs, labels) in enumerate(DataLoader(data, 8)):
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        assert board.CHECK_LABELS not in seen or number >= 75
    assert ended()[board.CHECK_LABELS][0] == 2


def test_a_label_that_comes_late_in_the_pass_is_seen(seen):
    model = net()
    optimizer = sgd(model)
    data = constant(0, count=1600)
    data.tensors[1][-3] = 1
    for inputs, labels in DataLoader(data, 8):
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    assert ended()[board.CHECK_LABELS][0] == 2


def test_labels_that_the_script_makes_itself_are_left_out_though_the_batch_has_other_zeros(seen):
    model = nn.EmbeddingBag(100, 16)
    optimizer = sgd(model)
    texts = [{"input_ids": torch.randint(1, 90, (12,)), "token_type_ids": torch.zeros(12, dtype=torch.long)} for _ in range(200)]
    for _ in range(2):
        for batch in DataLoader(texts, 8):
            query = functional.normalize(model(batch["input_ids"]), dim=1)
            logits = torch.cat([(query * query.roll(1, 1)).sum(1, keepdim=True), query @ torch.randn(16, 32)], 1) / 0.07
            functional.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long)).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert board.CHECK_LABELS not in ended()


def train_on_masks(data, epochs=1):
    model = nn.Linear(8, 16)
    optimizer = sgd(model)
    for _ in range(epochs):
        for inputs, masks in DataLoader(data, 8):
            functional.binary_cross_entropy_with_logits(model(inputs).view(-1, 4, 4), masks).backward()
            optimizer.step()
            optimizer.zero_grad()


def test_masks_that_are_zero_throughout_a_pass_are_reported(seen):
    train_on_masks(TensorDataset(torch.randn(480, 8), torch.zeros(480, 4, 4)))
    assert seen[board.CHECK_LABELS][:2] == (1, 0) and seen[board.CHECK_LABELS][2] >= 50


def test_one_positive_in_the_masks_of_a_pass_is_enough(seen):
    masks = torch.zeros(2400, 4, 4)
    masks[2390, 1, 2] = 1
    train_on_masks(TensorDataset(torch.randn(2400, 8), masks))
    assert ended()[board.CHECK_LABELS][0] == 2


def test_targets_of_a_generator_are_no_labels(seen):
    generator, discriminator = nn.Linear(4, 8), nn.Linear(8, 1)
    optimizer = sgd(generator)
    for (real,) in DataLoader(TensorDataset(torch.zeros(480, 8)), 8):  # blank images, as many values as targets
        functional.binary_cross_entropy_with_logits(discriminator(generator(torch.randn(len(real), 4))), torch.zeros(len(real), 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert board.CHECK_LABELS not in ended()


def train_with(loss, data, epochs=2):
    """`loss` of the outputs, features (8, 3, 4, 4), and the batch."""
    model = nn.Conv2d(2, 3, 1)
    optimizer = sgd(model)
    for _ in range(epochs):
        for batch in DataLoader(data, 8):
            loss(model(batch[0]), *batch[1:]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return ended().get(board.CHECK_LABELS, (0,))[0]


def pictures(*columns, count=480):
    return TensorDataset(torch.randn(count, 2, 4, 4), *columns)


def padded(count=480):
    found = torch.full((count, 16), -100)
    for row in found:
        row[:int(torch.randint(4, 12, (1,)))] = 0
    return found


@pytest.mark.parametrize("loss,columns", [
    (lambda outputs, labels: functional.cross_entropy(outputs.permute(0, 2, 3, 1).reshape(-1, 3), labels.view(-1)), [padded()]),
    (lambda outputs, labels: functional.cross_entropy(outputs.mean((2, 3)), labels), [functional.one_hot(torch.zeros(480, dtype=torch.long), 3).float()]),
    (lambda outputs, masks, labels: functional.cross_entropy(outputs, masks) + functional.cross_entropy(outputs.mean((2, 3)), labels),
     [torch.zeros(480, 4, 4, dtype=torch.long), torch.randint(3, (480,))]),
    (lambda outputs, masks: functional.cross_entropy(outputs[..., :2, :2], masks[:, ::2, ::2]), [torch.zeros(480, 4, 4, dtype=torch.long)]),
], ids=["padded", "probabilities", "one of two heads", "scaled masks"])
def test_labels_of_one_class_in_other_forms_are_reported(seen, loss, columns):
    assert train_with(loss, pictures(*columns)) == 1


@pytest.mark.parametrize("loss,columns,count", [
    (lambda outputs: functional.cross_entropy(outputs.flatten(2), torch.zeros(8, 16, dtype=torch.long)), [], 480),
    (lambda outputs, unused: functional.binary_cross_entropy_with_logits(outputs[:, 0, 0, 0], torch.ones(8))
     + functional.binary_cross_entropy_with_logits(outputs[:, 1, 0, 0], torch.zeros(8)), [torch.zeros(160, dtype=torch.long)], 160),
    (lambda outputs, labels: functional.cross_entropy(outputs.mean((2, 3)), outputs.detach().mean((2, 3)).softmax(1)), [torch.zeros(480, dtype=torch.long)], 480),
    (lambda outputs, labels: functional.cross_entropy(outputs.mean((2, 3)), labels), [functional.one_hot(torch.arange(480) // 400, 3).float()], 480),
], ids=["at each place", "a discriminator", "a teacher", "probabilities that differ"])
def test_labels_that_are_made_or_differ_are_none_of_one_class(seen, loss, columns, count):
    assert train_with(loss, pictures(*columns, count=count), epochs=1) in (0, 2)


def test_labels_on_a_card_are_compared_there_and_read_now_and_then(seen):
    kind = batches._classes
    kind.label, kind.batches, kind.judged, kind.looks, zeros = 0, 100, 100, 100, torch.zeros(8, dtype=torch.long)
    zeros[3] = -100
    for _ in range(25):
        batches._compare_labels(torch, kind, zeros, -100)
    assert (kind.batches, kind.unread, kind.over) == (120, 5, False)
    kind.looks += 25
    batches.labels_passed(torch)
    assert kind.batches == 125 and seen[board.CHECK_LABELS][:3] == (1, 0, 125)
    kind.over = False
    batches._compare_labels(torch, kind, torch.tensor([0, 1]), -100)
    batches.labels_passed(torch)
    assert kind.over and kind.batches == 125


def test_batches_cost_no_minimum_when_no_loss_shows_labels(seen, monkeypatch):
    looks = []
    monkeypatch.setattr(batches, "_constant", lambda *unused: looks.append(1))
    model = nn.Linear(8, 1)
    optimizer = sgd(model)
    for inputs, labels in DataLoader(samples(count=800), 8):
        model(inputs).square().mean().backward()
        optimizer.step()
    assert len(looks) == batches.FIRST_BATCHES


# ---- batches that are read without being trained on

def validate(model, data, score=True, mode=False):
    model.train(mode)
    with torch.no_grad():
        for inputs, labels in DataLoader(data, 16):
            outputs = model(inputs)
            if score:
                functional.cross_entropy(outputs, labels)
    model.train()


def run_validation(data, held_out, epochs=2, between=True, **named):
    model = net()
    optimizer = sgd(model)
    for _ in range(epochs):
        train(model, optimizer, data)
        validate(model, held_out, **named)
    if between:
        train(model, optimizer, data)
    return ended().get(board.CHECK_VALIDATION, (0,))[0]


def test_a_validation_on_training_samples_is_reported(seen):
    assert run_validation(samples(), samples()) == 1


def test_a_validation_that_only_counts_is_known_by_its_name(seen):
    assert run_validation(samples(), samples(), score=False) == 1


def test_a_validation_on_other_samples_is_sound(seen):
    assert run_validation(samples(), samples(seed=2)) == 2


def test_a_few_samples_to_debug_with_are_a_note(seen):
    assert run_validation(samples(count=48), samples(count=48)) == 3


def test_training_samples_in_training_mode_are_read_for_something_else(seen):
    """Statistics of batch norm layers, for example."""
    assert run_validation(samples(), samples(), mode=True) == 0


def test_statistics_of_the_data_set_are_no_validation(seen):
    data, model = samples(), net()
    optimizer = sgd(model)
    mean = torch.stack([inputs.mean(0) for inputs, _ in DataLoader(data, 32)]).mean(0)
    for _ in range(2):
        train(model, optimizer, data)
        mean += torch.stack([inputs.mean(0) for inputs, _ in DataLoader(data, 32)]).mean(0)
    assert board.CHECK_VALIDATION not in ended()


def bank_of_features(model, data):
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(inputs) for inputs, _ in DataLoader(data, 32)])
    model.train()
    return found


def test_a_bank_of_features_is_no_validation(seen):
    def main():
        data, model = samples(), net()
        optimizer = sgd(model)
        for _ in range(3):
            train(model, optimizer, data)
            bank_of_features(model, data)

    main()
    assert board.CHECK_VALIDATION not in ended()


def gather(model, data):
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(inputs) for inputs, _ in DataLoader(data, 32)])
    model.train()
    return outputs


def test_what_has_neither_a_score_nor_a_name_is_a_note(seen):
    def main():
        data, model = samples(), net()
        optimizer = sgd(model)
        for _ in range(3):
            train(model, optimizer, data)
            gather(model, data)

    main()
    assert ended()[board.CHECK_VALIDATION][0] == 3


def evaluate_generator(generator, reals):
    generator.eval()
    with torch.no_grad():
        moments = [(real.mean(0), generator(torch.randn(len(real), 4)).mean(0)) for real, _ in DataLoader(reals, 32)]
    generator.train()
    return moments


def test_real_images_that_made_ones_are_compared_with_are_no_validation(seen):
    data, generator, discriminator = samples(), nn.Linear(4, 8), nn.Linear(8, 1)
    optimizers = [torch.optim.Adam(model.parameters()) for model in (generator, discriminator)]
    loss = functional.binary_cross_entropy_with_logits
    for _ in range(3):
        for real, _ in DataLoader(data, 8, shuffle=True):
            made = generator(torch.randn(len(real), 4))
            (loss(discriminator(real), torch.ones(len(real), 1)) + loss(discriminator(made.detach()), torch.zeros(len(real), 1))).backward()
            optimizers[1].step()
            loss(discriminator(made), torch.ones(len(real), 1)).backward()
            optimizers[0].step()
            for optimizer in optimizers:
                optimizer.zero_grad()
        evaluate_generator(generator, data)
    assert board.CHECK_VALIDATION not in ended()


def test_the_score_on_training_data_that_is_called_so_is_meant(seen):
    def main():
        data, model = samples(), net()
        optimizer = sgd(model)
        for _ in range(3):
            train(model, optimizer, data)
            train_eval_loader = DataLoader(data, 16)
            model.eval()
            with torch.no_grad():
                for inputs, labels in train_eval_loader:
                    functional.cross_entropy(model(inputs), labels)
            model.train()

    main()
    assert board.CHECK_VALIDATION not in ended()


def test_a_validation_after_the_last_step_only_is_a_note(seen):
    assert run_validation(samples(), samples(), epochs=1, between=False) == 3


def losses_of_all(model, loader):
    model.eval()
    with torch.no_grad():
        found = torch.cat([functional.cross_entropy(model(inputs), labels, reduction="none") for inputs, labels in loader])
    model.train()
    return found


def test_a_loss_without_a_name_is_a_note(seen):
    def main():
        data, model = samples(), net()
        optimizer = sgd(model)
        for _ in range(3):
            train(model, optimizer, data)
            losses_of_all(model, DataLoader(data, 32))

    main()
    assert ended()[board.CHECK_VALIDATION][0] == 3


@pytest.mark.parametrize("name,expected", [("val_loader", 1), ("loader_again", None), ("train_eval_loader", None)])
def test_the_loader_that_trains_validates_where_it_is_called_so(seen, name, expected):
    train_loader, model = DataLoader(samples(), 8, shuffle=True), net()
    optimizer = sgd(model)
    script = """
for _ in range(3):
    for inputs, labels in train_loader:
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for inputs, labels in {0}:
            functional.cross_entropy(model(inputs), labels)
    model.train()
"""
    exec(script.format(name), {"train_loader": train_loader, name: train_loader, "model": model, "optimizer": optimizer, "torch": torch,
                               "functional": functional, "__name__": "script"})
    assert ended().get(board.CHECK_VALIDATION, (None,))[0] == expected


class Files(torch.utils.data.Dataset):
    """Like torchvision's ImageFolder: a list of files with their labels."""
    contents = torch.randn(640, 8, generator=torch.Generator().manual_seed(3))

    def __init__(self, augment=False, first=0, count=320, **named):
        self.samples = [("image {}.png".format(number), number % 3) for number in range(first, first + count)]
        self.augment, self.first = augment, 0
        self.__dict__.update(named)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        inputs = self.contents[int(self.samples[number][0].split()[1].split(".")[0])]
        return inputs + 0.1 * torch.randn(8) if self.augment else inputs, self.samples[number][1]


def test_a_validation_on_the_training_files_is_reported_though_they_are_augmented(seen):
    assert run_validation(Files(augment=True), Files()) == 1
    assert seen[board.CHECK_VALIDATION][1] == seen[board.CHECK_VALIDATION][2] > 0


def test_a_validation_on_other_files_is_sound(seen):
    assert run_validation(Files(augment=True), Files(first=320)) == 2


def sampled(data, **named):
    return sources.of(data, DataLoader(data, 8, **named)._index_sampler)


def test_data_sets_are_compared_by_their_lists():
    train_files = Files(augment=True)
    first, second = (torch.utils.data.Subset(train_files, numbers) for numbers in (range(200), range(200, 320)))
    assert sources.are_same(sampled(train_files, shuffle=True), sampled(Files()))
    assert sources.are_same(sampled(first), sampled(torch.utils.data.Subset(Files(), range(100, 200))))
    assert not sources.are_same(sampled(first), sampled(second)), "two parts of one list"
    assert not sources.are_same(sampled(train_files), sampled(Files(count=319)))
    assert not sources.are_same(sampled(train_files), sampled(Files(split="val"))), "something of its own is chosen"
    assert not sources.are_same(sampled(Files(targets=[0] * 320)), sampled(Files(targets=[1] * 320)))
    chosen = torch.utils.data.SubsetRandomSampler(range(100))
    assert sampled(train_files, sampler=chosen) is None, "the sampler chooses"
    assert sampled(samples()) is None and sampled(list(range(100))) is None, "nothing is listed"
    numbers = Files()
    numbers.samples = list(range(320))
    assert sampled(numbers) is None, "numbers are no files"


def test_no_hook_stays_on_the_model(seen):
    data, model = samples(), net()
    optimizer = sgd(model)
    train(model, optimizer, data)
    model.eval()
    with torch.no_grad():
        for inputs, _ in DataLoader(data, 16):
            break  # the model does not run, and the pass does not end
    assert any(module._forward_pre_hooks for module in model.modules())
    model.train()
    train(model, optimizer, data)
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("name,words", [("run_val_epoch", True), ("ValLoop", True), ("testloader", True), ("evaluate", True), ("value", False),
                                        ("device", False), ("contest", False), ("latest", False)])
def test_names_say_validation(name, words):
    assert validation._matches_name(validation.VALIDATES, name) == words


# ---- weights

class Renames(nn.Module):
    """Accepts checkpoints with a prefix, and omits the frozen part from its own."""

    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.register_load_state_dict_pre_hook(self.rename)

    @staticmethod
    def rename(module, state, prefix, *unused):
        for name in [name for name in state if name.startswith("module.")]:
            state[name[len("module."):]] = state.pop(name)

    def state_dict(self, *arguments, **named):
        raise AssertionError("asked for once more: a collective call with FSDP")


@pytest.mark.parametrize("prefix,reported", [("module.", False), ("", False), ("other.", True)])
def test_weights_are_compared_as_torch_counts_them(seen, prefix, reported):
    model = Renames()
    model.load_state_dict({prefix + name: tensor for name, tensor in nn.Module.state_dict(model).items()}, strict=False)
    assert (board.CHECK_WEIGHTS in ended()) == reported
    assert not model._load_state_dict_post_hooks


def test_weights_of_one_part_are_enough(seen):
    model = Renames()
    model.load_state_dict({"backbone.weight": torch.ones(4, 4), "backbone.bias": torch.ones(4)}, strict=False)
    assert board.CHECK_WEIGHTS not in ended()


def test_a_misfit_is_made_good_by_a_strict_load_or_one_of_a_large_part(seen):
    other = {"module." + name: tensor for name, tensor in net().state_dict().items()}
    strict, part, small = net(), nn.Sequential(net(), nn.Linear(3, 3)), nn.Sequential(*[nn.Linear(8, 8) for _ in range(12)])
    for model in (strict, part, small):
        model.load_state_dict(other, strict=False)
    assert len(silent._misfits) == 3
    strict.load_state_dict(net().state_dict())
    part[0].load_state_dict(net().state_dict())
    small[0].load_state_dict(nn.Linear(8, 8).state_dict())
    assert [misfit[0]() for misfit in silent._misfits.values()] == [small]


def test_the_own_weights_loaded_again_are_no_second_attempt(seen):
    model = net()
    model.load_state_dict({"module." + name: tensor for name, tensor in net().state_dict().items()}, strict=False)
    own = model.state_dict()
    model.load_state_dict(own)
    assert board.CHECK_WEIGHTS in ended()


@pytest.mark.parametrize("read,before,expected", [("weights", False, True), ("weights", True, False), ("data", False, False), ("", False, False)])
def test_an_empty_load_counts_where_weights_were_read_and_none_was_loaded(seen, tmp_path, read, before, expected):
    model = net()
    own, found = model.state_dict(), {}
    if read:
        saved = {"module." + name: tensor for name, tensor in own.items()} if read == "weights" else {"inputs": torch.zeros(2), "labels": torch.zeros(2)}
        torch.save({"model": saved}, str(tmp_path / "saved.pt"))
        found = torch.load(str(tmp_path / "saved.pt"))["model"]
    if before:
        net().load_state_dict({name[len("module."):]: tensor for name, tensor in found.items()})
    found = {name: tensor for name, tensor in found.items() if name in own}
    model.load_state_dict(found, strict=False)
    assert (board.CHECK_WEIGHTS in ended()) == expected


# ---- groups

def test_ranks_that_meet_through_remote_calls_have_a_group(seen, monkeypatch):
    monkeypatch.setattr(silent, "_grouped", False)
    train(net(), sgd(net()), samples(count=80))
    assert seen[board.CHECK_GROUP][0] == 1
    remote = types.SimpleNamespace(api=types.SimpleNamespace(_is_current_rpc_agent_set=lambda: True))
    monkeypatch.setitem(sys.modules, "torch.distributed.rpc", remote)
    train(net(), sgd(net()), samples(count=80))
    assert seen[board.CHECK_GROUP][0] == 2


# ---- the same batches, and parameters that differ

@pytest.fixture
def wrapped(seen, tmp_path, monkeypatch):
    """A model that DistributedDataParallel wraps, in a group of one rank that poses as the first of two."""
    monkeypatch.setattr(fingerprints, "_tell", lambda torch, name, number: reported_text.append((name, number)))
    reported_text = seen["told"] = []
    torch.distributed.init_process_group("gloo", init_method="file://{}/store".format(tmp_path), rank=0, world_size=1)
    try:
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda *unused: 2)
        fingerprints._batches = fingerprints._mixed = fingerprints._hashed = fingerprints._batch = 0
        fingerprints._shard = None
        fingerprints._watched.clear()
        fingerprints._optimizers.clear()
        fingerprints._others.clear()
        model = nn.parallel.DistributedDataParallel(net())
        fingerprints.watch(model)
        loop.steps = 0
        yield model
    finally:
        torch.distributed.destroy_process_group()


def numbers_of(model, of_rank):
    """The fingerprints of three steps: each trains on of_rank(batch)."""
    optimizer, found = sgd(model), []
    loop._turn.clear()
    for inputs, labels in DataLoader(samples(count=64), 16):
        functional.cross_entropy(model(of_rank(inputs)), of_rank(labels)).backward()
        optimizer.step()
        found.append(loop.figures().batch_fingerprint)
        optimizer.zero_grad()
    return found


@pytest.mark.parametrize("second,differs", [(lambda whole: whole[8:], True), (lambda whole: whole[:8], False)])
def test_parts_of_one_batch_are_compared_and_not_the_batch(wrapped, second, differs):
    first = numbers_of(wrapped, lambda whole: whole[:8])
    fingerprints._batches = fingerprints._mixed = 0
    assert all(first) and (numbers_of(wrapped, second) != first) == differs


def test_whole_batches_are_compared_as_they_come_from_the_loader(wrapped):
    expected = [fingerprints.fingerprint(torch, batch) for batch in DataLoader(samples(count=64), 16)][:3]
    assert numbers_of(wrapped, lambda whole: whole + torch.zeros_like(whole))[:3] == expected


def test_equal_parts_of_different_batches_are_no_fault(wrapped, monkeypatch):
    """A generator's noise may look like a batch."""
    of_first = numbers_of(wrapped, lambda whole: torch.ones(8, 8) if whole.dim() > 1 else whole[:8])
    fingerprints._batches = fingerprints._mixed = 0
    monkeypatch.setattr(sys.modules[__name__], "samples", lambda count, real=samples: real(seed=2, count=count))
    assert numbers_of(wrapped, lambda whole: torch.ones(8, 8) if whole.dim() > 1 else whole[:8]) != of_first


def test_whole_inputs_of_different_widths_are_no_parts_of_each_other(wrapped, monkeypatch):
    monkeypatch.setattr(fingerprints, "_shapes", [(4, 6), (4, 1)])
    fingerprints._observe_inputs(torch, [torch.ones(4, 6), torch.ones(4, 1)], 2)
    assert fingerprints._shard is None


@pytest.mark.parametrize("shape,whole,part", [((8, 3), (16, 3), True), ((16, 128), (16, 256), True), ((16, 255), (16, 256), False), ((8,), (8,), False),
                                              ((8, 3, 224, 224), (16, 3, 256, 256), True), ((16, 3, 112, 112), (16, 3, 224, 224), False)])
def test_shapes_of_a_part_of_a_batch(shape, whole, part):
    assert fingerprints.is_shard(shape, whole, 2) == part


@pytest.mark.parametrize("averages", [True, False])
def test_replicas_of_local_sgd_may_differ(wrapped, seen, averages):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook

    if averages:
        wrapped.register_comm_hook(None, default_hooks.allreduce_hook)
    else:
        state = post_localSGD_hook.PostLocalSGDState(process_group=None, subgroup=None, start_localSGD_iter=100)
        wrapped.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    train(wrapped, sgd(wrapped), samples(count=12 * 8))
    assert any(name.startswith("parameters") for name, _ in seen["told"]) == averages


# ---- children

FAILS = [sys.executable, "fails.py"]
COUNTED = ["subprocess.run(FAILS)", "done = subprocess.run(FAILS)", "subprocess.call(FAILS)", "child = subprocess.Popen(FAILS); child.wait()",
           "child = subprocess.Popen(FAILS)\nwhile child.poll() is None: pass", "with subprocess.Popen(FAILS): pass",
           "def start(): return subprocess.call(FAILS)\nstart()", "subprocess.run(['timeout', '60', 'nice', '-n', '1'] + FAILS)",
           "subprocess.run('LEVEL=1 ' + ' '.join(FAILS), shell=True)", "subprocess.run(['bash', '-e', 'fails.sh'])",
           "subprocess.run(FAILS, stdout=open('log', 'w'), stderr=subprocess.STDOUT)", "log = open('log', 'w'); subprocess.run(FAILS, stdout=log, stderr=log)",
           "os.system(' '.join(FAILS))", "subprocess.run([FAILS[0], 'killed.py'])", "subprocess.run(['bash', 'killed.sh'])"]
NOT_COUNTED = ["if subprocess.call(FAILS): pass", "done = subprocess.run(FAILS)\nif done.returncode: pass",
               "try: subprocess.run(FAILS, check=True)\nexcept subprocess.CalledProcessError: pass",
               "try: subprocess.check_call(FAILS)\nexcept subprocess.CalledProcessError: pass",
               "child = subprocess.Popen(FAILS); child.wait()\ndef failed(child): return child.returncode",
               "status = subprocess.Popen(FAILS).wait()", "def start(): return subprocess.call(FAILS)\nif start(): pass",
               "subprocess.run(['which', 'python2.3'])", "subprocess.run(['diff', '-q', 'fails.py', 'fails.sh'], stdout=-3)",
               "subprocess.run(['git', 'diff', '--quiet', '--no-index', 'fails.py', 'fails.sh'])", "subprocess.run('pgrep -f no_such.py', shell=True)",
               "subprocess.run(['test', '-f', 'no-such.sh'])", "subprocess.run(['bash', '-c', 'python3 fails.py'])",
               "child = subprocess.Popen([FAILS[0], 'serves.py'], start_new_session=True); os.killpg(child.pid, 15); child.wait()",
               "child = subprocess.Popen([FAILS[0], 'serves.py'], start_new_session=True); os.killpg(child.pid, 9); child.wait()",
               "child = subprocess.Popen([FAILS[0], 'serves.py']); os.kill(child.pid, 9); child.wait()",
               "child = subprocess.Popen([FAILS[0], 'serves.py']); subprocess.run(['kill', '-9', str(child.pid)]); child.wait()",
               "subprocess.run(['timeout', '-s', 'KILL', '0.1', FAILS[0], 'serves.py'])",
               "import tempfile\nread = tempfile.TemporaryFile(); subprocess.run(FAILS, stdout=read, stderr=subprocess.STDOUT)",
               "if os.system(' '.join(FAILS)): pass", "os.system('which python2.3')", "os.system(' '.join(FAILS) + ' 2>/dev/null')"]


@pytest.mark.parametrize("script,count", [(script, 1) for script in COUNTED] + [(script, 0) for script in NOT_COUNTED])
def test_a_failed_child_counts_when_nobody_looks_at_its_status(seen, tmp_path, monkeypatch, script, count):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fails.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "fails.sh").write_text("exit 3\n")
    (tmp_path / "serves.py").write_text("import time\ntime.sleep(60)\n")
    (tmp_path / "killed.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    (tmp_path / "killed.sh").write_text(sys.executable + " killed.py\n")
    monkeypatch.setattr(child_failures, "_kills", False)
    exec(compile(script, "script", "exec"), {"__name__": "script", "subprocess": subprocess, "os": os, "FAILS": FAILS})
    assert ended().get(board.CHECK_CHILDREN, (0, 0, 0))[2] == count


# ---- cards

class StubOfCuda:
    """torch.cuda of two cards: records which card is current when events are recorded, and what happens while a graph
    is captured."""

    def __init__(self):
        self.current, self.capturing, self.recorded, self.queried = 0, False, [], 0
        stub = self

        class Device:
            def __init__(self, device):
                self.index = device.index

            def __enter__(self):
                self.before, stub.current = stub.current, self.index

            def __exit__(self, *unused):
                stub.current = self.before

        class Event:
            def record(self):
                stub.recorded.append(stub.current)

            def query(self):
                stub.queried += 1
                return True

        self.device, self.Event = Device, Event

    def is_current_stream_capturing(self):
        return self.capturing and self.current == 1


class OnCard:
    """A tensor that must not be waited for."""
    device, shape, dtype = types.SimpleNamespace(type="cuda", index=1), (2,), torch.float32

    def __getattr__(self, name):
        raise AssertionError("the card was used: " + name)


@pytest.fixture
def stub(seen):
    host = types.SimpleNamespace(copy_=lambda tensor, non_blocking: None, tolist=lambda: [1.0, 2.0])
    return types.SimpleNamespace(cuda=StubOfCuda(), empty=lambda shape, dtype, pin_memory: host)


def test_an_event_is_recorded_on_the_card_of_the_tensor(stub):
    got = []
    assert observing.read_later(stub, OnCard(), got.append)
    assert stub.cuda.recorded == [1] and stub.cuda.current == 0
    observing.arrived()
    assert got == [[1.0, 2.0]]


def test_nothing_is_launched_copied_or_asked_for_while_a_graph_is_captured(stub):
    got = []
    assert observing.read_later(stub, OnCard(), got.append)
    stub.cuda.capturing = True
    assert observing.is_capturing(stub, OnCard()) and not observing.read_later(stub, OnCard(), got.append)
    observing.arrived()
    assert got == [] and stub.cuda.queried == 0 and stub.cuda.recorded == [1]
    stub.cuda.capturing = False
    observing.arrived()
    assert got == [[1.0, 2.0]]


def test_gradients_labels_losses_and_hashes_leave_a_capture_alone(seen, monkeypatch):
    monkeypatch.setattr(observing, "is_capturing", lambda torch, tensor: True)
    monkeypatch.setattr(silent, "is_capturing", lambda torch, tensor: True)
    monkeypatch.setattr(batches, "is_capturing", lambda torch, tensor: True)
    monkeypatch.setattr(batches, "_least_and_largest", lambda *unused: pytest.fail("a kernel was launched"))
    batches.labels(torch, net()(torch.randn(8, 8)), torch.zeros(8, dtype=torch.long), -100, batches._classes)
    assert fingerprints._totals(torch, net(), ()) is None

    class Gradient(torch.Tensor):
        pass

    parameter = nn.Parameter(torch.ones(2, device="meta"))
    parameter.grad = torch.ones(2, device="meta")
    steps = silent.Steps()
    silent.gradients(torch, types.SimpleNamespace(param_groups=[{"params": [parameter]}]), steps, False)
    assert steps.with_gradient == {id(parameter)} and not observing.pending
    monkeypatch.setattr(loop, "_loss_read_at", 0)
    monkeypatch.setattr(observing, "read_later", lambda *unused: False)
    monkeypatch.setattr(observing, "has_to_wait", lambda *unused: True)
    loop.note_loss(torch.ones((), device="meta"))  # its value is not available: float() raises
    loop._publish_step()


def test_parameters_are_hashed_without_waiting_and_reported_some_steps_later(seen, monkeypatch):
    later = []
    monkeypatch.setattr(observing, "read_later", lambda torch, tensor, then: later.append((tensor, then)) or True)
    monkeypatch.setattr(fingerprints, "_tell", lambda torch, name, number: reported.append((name, number)))
    monkeypatch.setattr(loop, "steps", 10)
    reported, model = [], net()
    wrapper = types.SimpleNamespace(module=model)
    fingerprints._hash_parameters(torch, wrapper)
    assert reported == [] and len(later) == 1
    expected = fingerprints.hash_of(torch, model)
    later[0][1](later[0][0].tolist())
    with torch.no_grad():
        model[0].weight.add_(1)
    fingerprints._publish_parameters(torch)
    assert reported == [("parameters 10", expected)]
    # A copy that has not arrived by then is skipped.
    fingerprints._hash_parameters(torch, wrapper)
    fingerprints._publish_parameters(torch)
    assert len(reported) == 1 and not fingerprints._pending_totals
