"""`fulldeck explain` from the command line."""
import json
import os
import subprocess

import pytest

from launching import BUILD, HERE

FULLDECK = os.path.join(BUILD, "bin", "fulldeck")
LOGS = os.path.join(HERE, "fixtures", "logs")
PORT = os.path.join(LOGS, "C5-port-taken.txt")


def explain(*arguments, **options):
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}
    variables.update(options.pop("variables", {}))
    return subprocess.run([FULLDECK, "explain"] + list(arguments), env=variables, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120, **options)


def test_a_log_is_explained_with_cause_and_cure():
    done = explain(PORT)
    text = done.stdout.decode("utf-8")
    assert done.returncode == 0
    assert "C5 port already in use" in text and "Cause: " in text and "Cure: " in text


def test_standard_input_and_json():
    with open(PORT, "rb") as log:
        done = explain("-", "--json", stdin=log)
    found = json.loads(done.stdout.decode("utf-8"))
    assert found["version"] == 1
    first = found["logs"][0]["findings"][0]
    assert first["id"] == "C5" and first["weight"] == "cause" and first["confidence"] == "certain" and first["line"] > 0


@pytest.mark.parametrize("arguments,variables,chinese", [(["--lang", "zh"], {}, True), ([], {"LANG": "zh_CN.UTF-8"}, True),
                                                         ([], {"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, False),
                                                         (["--lang", "en"], {"LANG": "zh_CN.UTF-8"}, False)])
def test_the_language_follows_the_flag_then_the_locale(arguments, variables, chinese):
    text = explain(PORT, *arguments, variables=variables).stdout.decode("utf-8")
    assert ("原因：" in text) == chinese and ("Cause:" in text) != chinese


def test_several_logs_and_one_that_is_not_there(tmp_path):
    done = explain(PORT, str(tmp_path / "absent.log"), "--json")
    assert done.returncode == 1
    assert b"absent.log: No such file or directory" in done.stderr
    assert len(json.loads(done.stdout.decode("utf-8"))["logs"]) == 1


def test_a_folder_or_no_log_at_all_is_refused(tmp_path):
    assert explain(str(tmp_path)).returncode == 1
    assert explain().returncode == 2
    assert explain(PORT, "--lang", "fr").returncode == 2


def test_a_sound_log_is_reported_as_such(tmp_path):
    log = tmp_path / "sound.log"
    log.write_text("epoch 1 loss 0.5\nepoch 2 loss 0.4\n")
    done = explain(str(log))
    assert done.returncode == 0 and b"none of the known failures in 2 lines" in done.stdout


def test_bytes_of_any_kind_do_no_harm(tmp_path):
    log = tmp_path / "bytes.log"
    log.write_bytes(os.urandom(1 << 20) + b"\nOSError: [Errno 98] Address already in use \x1b[31m\xff\x00\n")
    done = explain(str(log))
    assert done.returncode == 0 and b"C5" in done.stdout and b"\x1b" not in done.stdout
