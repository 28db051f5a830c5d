"""`fulldeck doctor --script` from the command line. src/control/lint/script_traps_test.cc tests which trap is reported
at which line, with the same fixtures."""
import importlib.util
import json
import os
import subprocess

from launching import FULLDECK, TOP

TRAPS = os.path.join(TOP, "tests", "fixtures", "script-traps")


def doctor(*arguments, **options):
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "FULLDECK_"))}
    variables["FULLDECK_SIMULATE"] = options.pop("cards", "gcu:8")
    return subprocess.run([FULLDECK, "doctor", "--script"] + [str(word) for word in arguments], env=variables, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=60, **options)


def fixture(name):
    return os.path.join(TRAPS, name)


def test_a_trap_is_reported_with_line_code_and_fix():
    done = doctor(fixture("no-sampler.py"))
    assert done.returncode == 91, done.stderr
    assert "FAIL J1 no-sampler: a DataLoader for training without a sampler" in done.stdout
    assert "       10  loader = DataLoader(data, batch_size=2, shuffle=True)" in done.stdout
    assert "→ sampler = DistributedSampler(dataset)" in done.stdout and "Nothing was run." in done.stdout


def test_a_sound_script_gives_nothing_and_warnings_do_not_fail():
    done = doctor(fixture("tutorial.sound.py"))
    assert (done.returncode, done.stderr) == (0, "") and "none of the known traps" in done.stdout
    assert doctor(fixture("fixed-port.py")).returncode == 0


def test_the_machine_decides_about_cuda():
    assert "cuda-call" in doctor(fixture("cuda-call.py")).stdout
    assert "none of the known traps" in doctor(fixture("cuda-call.py"), cards="cuda:8").stdout


def test_json_and_chinese():
    done = doctor(fixture("eccl.py"), fixture("mmengine_config.py"), fixture("accelerate.yaml"), "--json", "--lang", "zh")
    found = json.loads(done.stdout)
    assert found["version"] == 1 and found["cards"] == 8 and found["ranks"] == 8
    assert [os.path.basename(name) for name in found["files"]] == ["eccl.py", "mmengine_config.py", "mmengine_base.py", "accelerate.yaml"]
    first = found["findings"][0]
    assert (first["trap"], first["row"], first["verdict"], first["line"]) == ("eccl-module", "D4", "fail", 1)
    assert first["text"].startswith("import eccl") and "C 库" in first["what"]
    assert {one["trap"] for one in found["findings"]} >= {"config-missing", "sync-batchnorm", "accelerate-processes"}
    assert "2，本机为 8" in [one for one in found["findings"] if one["trap"] == "accelerate-processes"][0]["detail"]


def test_what_fulldeck_itself_writes_for_accelerate_is_sound(tmp_path):
    for cards in ("gcu:8", "cuda:1", "cuda:4"):
        path = str(tmp_path / (cards.replace(":", "-") + ".yaml"))
        subprocess.run([FULLDECK, "config", "accelerate", "-o", path], env=dict(os.environ, FULLDECK_SIMULATE=cards), check=True, timeout=60,
                       stdout=subprocess.PIPE)
        assert "none of the known traps" in doctor(fixture("tutorial.sound.py"), path, cards=cards).stdout, open(path).read()


def test_files_that_are_not_there():
    done = doctor("/nonexistent/train.py")
    assert done.returncode == 2 and "/nonexistent/train.py: No such file or directory" in done.stderr
    done = doctor(fixture("tutorial.sound.py"), "/nonexistent/config.py")
    assert done.returncode == 91 and "C7 config-missing" in done.stdout
    both = subprocess.run([FULLDECK, "doctor", "--collectives", "--script", "x.py"], stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
    assert both.returncode == 2 and "two questions" in both.stderr


def test_nothing_is_run(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("open(%r, 'w').write('ran')\n" % str(tmp_path / "mark"))
    assert doctor(script).returncode == 0 and not (tmp_path / "mark").exists()


def test_scripts_of_this_tree_and_of_frameworks_raise_no_false_alarm():
    """Machines with CUDA: what remains are undisputed traps. Every file of two packages in one command each would start
    a hundred processes, so only the largest files are checked."""
    folder = os.path.join(TOP, "tests", "scripts")
    files = [os.path.join(folder, name) for name in ("train_ddp.py", "train_mmengine.py", "train_accelerate.py", "ddp_losses.py", "fsdp_losses.py", "all_reduce.py", "cuda_tutorial.py")]
    for name, parts in (("mmengine", ["runner/runner.py", "dist/utils.py"]), ("accelerate", ["accelerator.py", "state.py", "test_utils/scripts/test_script.py"])):
        found = importlib.util.find_spec(name)  # importing them takes seconds
        if found is None:
            continue
        package = os.path.dirname(found.origin)
        files += [os.path.join(package, part) for part in parts]
    for path in files:
        done = doctor(path, cards="cuda:8")
        assert done.returncode == 0 and "none of the known traps" in done.stdout, done.stdout + done.stderr
