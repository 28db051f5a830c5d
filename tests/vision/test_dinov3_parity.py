"""Compares the C++ backbone with transformers' DINOv3ViTModel: the same weights, the same images, the same numbers."""
import os
import pathlib
import subprocess

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="4.56")
safetensors_torch = pytest.importorskip("safetensors.torch")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(os.environ.get("FULLDECK_BUILD_DIR", str(ROOT / "build"))) / "tests" / "dinov3_parity"
if not PROGRAM.exists():
    pytest.skip("the vision model was not built", allow_module_level=True)

# Name: (dim, layers, heads, mlp, gated, registers, patch, channels), (N, H, W)
CASES = {
    "plain": ((64, 3, 2, 128, 0, 4, 16, 3), (2, 80, 112)),
    "gated": ((96, 2, 3, 256, 1, 4, 16, 3), (1, 112, 80)),
    "as wide as S, square": ((384, 2, 6, 1536, 0, 4, 16, 3), (1, 224, 224)),
    "four bands, no registers, sides with a rest, one row": ((48, 2, 1, 64, 1, 0, 8, 4), (3, 13, 77)),
}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def reference(case, seed):
    (dim, layers, heads, mlp, gated, registers, patch, channels), (count, height, width) = CASES[case]
    torch.manual_seed(seed)
    model = transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(
        hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=mlp,
        use_gated_mlp=bool(gated), hidden_act="silu" if gated else "gelu", num_register_tokens=registers,
        patch_size=patch, num_channels=channels, image_size=224, layer_norm_eps=1e-5)).eval()
    with torch.no_grad():  # initial values of 0 or 1 would hide errors
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "embeddings" in name:
                parameter.normal_(0, 0.04)
    images = torch.randn(count, channels, height, width)
    tokens = 1 + registers + (height // patch) * (width // patch)
    return model, images, torch.randn(count, tokens, dim)


def lay_out(folder, case, model, images, direction):
    folder.mkdir()
    model.save_pretrained(str(folder / "weights"))
    (folder / "shape").write_text(" ".join(str(number) for part in CASES[case] for number in part))
    safetensors_torch.save_file({"images": images, "direction": direction}, str(folder / "images.safetensors"))


def run(*folders):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    return subprocess.run([str(PROGRAM)] + [str(folder) for folder in folders], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120, env=environment)


def assert_near(name, mine, theirs, tolerance):
    """`tolerance` relative to the value, or absolute if the values are smaller than 1."""
    assert mine.shape == theirs.shape, name
    if theirs.numel() > 0:
        distance = ((mine - theirs).abs() / theirs.abs().clamp(min=1)).max().item()
        assert distance <= tolerance, "%s: %g apart" % (name, distance)


def test_hidden_states_pooled_output_and_gradients_are_those_of_transformers(tmp_path):
    references = {}
    for number, case in enumerate(CASES):
        references[case] = reference(case, number)
        lay_out(tmp_path / str(number), case, *references[case])
    ran = run(*[tmp_path / str(number) for number in range(len(CASES))])
    assert ran.returncode == 0, ran.stderr

    for number, (case, (model, images, direction)) in enumerate(references.items()):
        mine = safetensors_torch.load_file(str(tmp_path / str(number) / "outputs.safetensors"))
        theirs = model(images, output_hidden_states=True)
        layers = CASES[case][0][1]
        assert len(theirs.hidden_states) == layers + 1
        for layer, state in enumerate(theirs.hidden_states):
            assert_near("%s, layer %d" % (case, layer), mine.pop("hidden.%d" % layer), state, 1e-5)
        assert_near(case + ", last", mine.pop("last"), theirs.last_hidden_state, 1e-5)
        assert_near(case + ", pooled", mine.pop("pooled"), theirs.pooler_output, 1e-5)

        (theirs.last_hidden_state * direction).sum().backward()
        gradients = {name.replace("model.layer.", "layer."): parameter.grad
                     for name, parameter in model.named_parameters() if parameter.grad is not None}
        assert set(mine) == {"gradient." + name for name in gradients}, case
        assert len(gradients) >= layers * 14
        for name, gradient in gradients.items():
            # Sums over all tokens: relative to their own magnitude.
            size = max(1.0, gradient.abs().max().item()) if gradient.numel() else 1.0
            assert_near(case + ", gradient of " + name, mine["gradient." + name] / size, gradient / size, 1e-4)


def test_every_key_that_does_not_fit_is_named_and_nothing_passes_silently(tmp_path):
    case = "plain"
    model, images, direction = reference(case, 7)
    lay_out(tmp_path / "good", case, model, images, direction)
    good = safetensors_torch.load_file(str(tmp_path / "good" / "weights" / "model.safetensors"))

    def lay_out_with(name, weights, allowed=""):
        folder = tmp_path / name
        lay_out(folder, case, model, images, direction)
        safetensors_torch.save_file(weights, str(folder / "weights" / "model.safetensors"))
        (folder / "allowed").write_text(allowed)

    # Prefixes that occur in users' files, and a different type.
    good_ones = {
        "of a classifier": {"dinov3_vit." + key: value for key, value in good.items()},
        "of an encoder": {("model." if key.startswith("layer.") else "") + key: value for key, value in good.items()},
        "of mmseg": {"backbone." + key: value for key, value in good.items()},
        "half as wide": {key: value.bfloat16() for key, value in good.items()}}
    for name, weights in good_ones.items():
        lay_out_with(name, weights)
    more = dict(good, **{"head.weight": torch.zeros(2)})
    del more["embeddings.mask_token"]
    lay_out_with("allowed", more, "miss embeddings.mask_token\nmore head.*\n")

    some = dict(good, **{"layer.1.norm1.weight": torch.zeros(63), "head.weight": torch.zeros(2)})
    some["layer.0.attention.k_proj.bias"] = torch.zeros(64)
    del some["norm.bias"], some["layer.2.mlp.up_proj.weight"]
    foreign = {"net." + key: value for key, value in good.items()}
    lay_out_with("not allowed", more)
    lay_out_with("bad keys", some)
    lay_out_with("foreign", foreign)
    lay_out_with("foreign, all allowed", foreign, "miss *\nmore *\n")
    lay_out_with("no file", good)
    (tmp_path / "no file" / "weights" / "model.safetensors").unlink()

    folders = sorted(path for path in tmp_path.iterdir())
    ran = run(*folders)
    errors = {path.name: (path / "error").read_text() for path in folders if (path / "error").exists()}
    assert ran.returncode == 1
    assert sorted(errors) == ["bad keys", "foreign", "foreign, all allowed", "no file", "not allowed"], ran.stderr

    assert "they do not match the module. What may be missing or unexpected must be allowed by name." in errors["bad keys"]
    for line in ("matched (%d):\n" % (len(good) - 3),
                 "missing: in the module, not in the file (2):\n  layer.2.mlp.up_proj.weight\n  norm.bias\n",
                 "unexpected: in the file, not in the module (2):\n  head.weight\n  layer.0.attention.k_proj.bias\n",
                 "wrong shape (1):\n  layer.1.norm1.weight: F32 [63] in the file, F32 [64] in the module\n"):
        assert line in errors["bad keys"], line
    assert "missing: in the module, not in the file (1):\n  embeddings.mask_token\n" in errors["not allowed"]
    # Whatever is allowed, a backbone without any loaded weight is rejected.
    assert "unexpected: in the file, not in the module (%d)" % len(good) in errors["foreign"]
    assert ("not one layer of the backbone is in it, although the recipe allows what is missing."
            in errors["foreign, all allowed"])
    assert "has no model.safetensors. Set model.weights to" in errors["no file"]
