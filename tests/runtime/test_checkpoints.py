"""Checkpoints across languages and across kill -9. `tests/grids/checkpoint_sweep.py` sweeps over every operation."""
import json
import random
import subprocess

import pytest

from grids import checkpoint_sweep as sweep

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")
safetensors = pytest.importorskip("safetensors")
xxhash = pytest.importorskip("xxhash")

if not sweep.PROGRAM.exists():
    pytest.skip("the C++ runtime was not built", allow_module_level=True)


def hash_of(data):
    return xxhash.xxh3_64_hexdigest(data)


def run(*arguments):
    return subprocess.run([str(sweep.PROGRAM)] + [str(argument) for argument in arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=300)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory and the final weights of an uninterrupted training."""
    directory = tmp_path_factory.mktemp("whole")
    return directory, sweep.final_hash(sweep.train(directory, 60, 3)[1])


def test_pythons_safetensors_reads_every_type_that_is_written(tmp_path):
    assert run("types", tmp_path).returncode == 0
    path = tmp_path / "step-000000001" / "types.safetensors"
    tensors = safetensors_torch.load_file(str(path))
    numbers = torch.arange(12).view(3, 4)
    types = {"Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
             "Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16, "Int": torch.int32, "Long": torch.int64}
    for name, kind in types.items():
        assert torch.equal(tensors.pop(name), numbers.to(kind)), name
    assert torch.equal(tensors.pop("Bool"), (numbers % 2).bool())
    assert tensors.pop("empty").shape == (0, 5)
    assert tensors.pop("scalar").item() == 2.5
    assert torch.equal(tensors.pop("transposed"), numbers.float().t())
    assert list(tensors) == ["name with \"quotes\" and ä"]
    with safetensors.safe_open(str(path), "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_checkpoint_is_what_the_document_says(trained):
    folder = trained[0] / "step-000000060"
    text = (folder / "manifest.json").read_bytes()
    manifest = json.loads(text)
    assert (manifest["format"], manifest["version"], manifest["step"], manifest["world_size"]) == ("fulldeck-checkpoint", 1, 60, 1)
    body, tail = text[:text.rindex(b",\n")], text[text.rindex(b",\n"):]
    assert tail == (',\n"manifest_hash":"%s"}\n' % hash_of(body)).encode()
    assert sorted(file["name"] for file in manifest["files"]) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"]
    for file in manifest["files"]:
        data = (folder / file["name"]).read_bytes()
        assert len(data) == file["bytes"]
        assert hash_of(data[:file["head_bytes"]]) == file["head_hash"]
        place = file["head_bytes"]
        for name, size, checksum in file["tensors"]:
            assert hash_of(data[place:place + size]) == checksum, name
            place += size
        assert place == len(data)
    state = json.loads((folder / "state.json").read_text())
    assert state["optimizer/kind"] == "AdamW"
    assert state["optimizer/parameter/first_weight/step"] == 60
    optimizer = safetensors_torch.load_file(str(folder / "optimizer.safetensors"))
    assert optimizer["first_weight.exp_avg"].shape == (64, 32)
    # The last three are kept, and nothing else is left.
    assert sorted(path.name for path in trained[0].iterdir()) == [".lock", "step-000000054", "step-000000057", "step-000000060"]


def test_weights_that_python_wrote_are_loaded(tmp_path):
    torch.manual_seed(0)
    tensors = {"first_weight": torch.randn(64, 32), "first_bias": torch.randn(64), "second_weight": torch.randn(4, 64),
               "steps": torch.tensor(41)}
    path = tmp_path / "python.safetensors"
    safetensors_torch.save_file(tensors, str(path), metadata={"author": "python"})
    result = run("weights", path)
    assert result.returncode == 0, result.stderr
    assert "matched (4):" in result.stdout
    values = [float.fromhex(line.split()[1]) for line in result.stdout.splitlines() if line.startswith("value ")]
    assert values == torch.cat([tensor.float().reshape(-1) for tensor in tensors.values()]).tolist()


def test_weights_that_do_not_match_are_reported_key_by_key(tmp_path):
    path = tmp_path / "python.safetensors"
    safetensors_torch.save_file({"first_weight": torch.zeros(64, 33), "backbone.first_bias": torch.zeros(64)}, str(path))
    result = run("weights", path)
    assert result.returncode == 1
    for text in ("first_weight: F32 [64, 33] in the file, F32 [64, 32] in the module", "  backbone.first_bias\n",
                 "  second_weight\n", "  steps\n", "no weights were loaded"):
        assert text in result.stderr, result.stderr


def test_a_pickle_is_not_opened(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save({"first_weight": torch.zeros(3)}, str(path))
    result = run("weights", path)
    assert result.returncode == 1 and "no safetensors file" in result.stderr, result.stderr


def test_a_training_that_is_killed_and_resumed_ends_with_the_same_bits(tmp_path):
    expected = sweep.final_hash(sweep.train(tmp_path / "whole", 300)[1])
    found, killed, resumed = sweep.killed_until_done(tmp_path / "killed", random.Random(), 3, 300)
    assert killed >= 1 and resumed >= 1
    assert found == expected


def test_a_checkpoint_that_was_damaged_is_passed_over_loudly_and_the_weights_are_the_same(tmp_path, trained):
    directory = tmp_path / "damaged"
    sweep.train(directory, 30, 3)
    path = directory / "step-000000030" / "optimizer.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    result = run("train", directory, 60, 3)
    assert result.returncode == 0, result.stderr
    assert "resumed 27" in result.stdout
    assert "PASSED OVER" in result.stderr and "optimizer.safetensors" in result.stderr and 'tensor "' in result.stderr
    assert sweep.final_hash(result.stdout.splitlines()) == trained[1]


def test_a_second_job_is_not_let_into_the_directory(tmp_path):
    import fcntl
    directory = tmp_path / "shared"
    directory.mkdir()
    with open(directory / ".lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        result = run("train", directory, 3, 3)
    assert result.returncode == 1
    assert "writes checkpoints there" in result.stderr, result.stderr
