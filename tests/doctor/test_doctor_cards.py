"""`fulldeck doctor` on simulated cards through the user's torch, and on this Python's own packages. The C++ tests
(src/control/doctor/cards/card_checks_test.cc, stack_checks_test.cc) have the results of each check on each machine."""
import json
import os
import subprocess
import sys

import pytest

from cluster import launch
from launching import BUILD, FULLDECK
from python_ranks import clean_environment

LIBRARY = os.path.join(BUILD, "lib", "libfulldeck_sim.so")
CHECK_FAILED = 91


def doctor(folder, *arguments, **variables):
    variables.setdefault("FULLDECK_SIMULATE", "gcu:8")
    variables.setdefault("PYTHONPATH", None)
    environment = clean_environment(FULLDECK_SIMULATE_DIR=str(folder / "cards"), FULLDECK_RUNTIME_DIR=str(folder / "runtime"), **variables)
    done = subprocess.run([FULLDECK, "doctor", "--json", "--lang", "en", "--python", sys.executable] + list(arguments), cwd=str(folder),
                          env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, {check["id"]: check for check in json.loads(done.stdout)["checks"]}


def lines(check):
    return ["{}: {}".format(finding["verdict"], finding["evidence"]) for finding in check["findings"]]


@pytest.mark.skipif(not launch.has_module("torch") or not os.path.exists(LIBRARY),
                    reason="this Python has no torch, or the build no libfulldeck_sim.so")
def test_every_fault_of_a_card_is_named_through_torch(tmp_path):
    code, checks = doctor(tmp_path, "--deep", "--only", "cards", "--timeout", "6",
                          FULLDECK_SIMULATE="gcu:8,idle=1,slow=2:6,broken=3,lying=4,hung=5,dropped=6")
    assert code == CHECK_FAILED
    proof = lines(checks["card-proof"])
    assert len(proof) == 8
    assert proof[0].startswith("ok: gcu 0 ") and "through torch " in proof[0] and " on gcu:0; " in proof[0] and "GB/s to it" in proof[0], proof[0]
    assert "fail: gcu 3 " in proof[3] and "broken and refuses to compute" in proof[3], proof[3]
    assert "fail: gcu 4 " in proof[4] and "a product of two matrices is wrong in 1 of 65536 numbers" in proof[4], proof[4]
    assert "fail: gcu 5 " in proof[5] and "hangs: its test did not answer within 6 s" in proof[5], proof[5]
    assert "fail: gcu 6 " in proof[6] and "was not tried: it is not there" in proof[6], proof[6]
    for sound in (1, 2, 7):
        assert proof[sound].startswith("ok: gcu {} ".format(sound)), proof[sound]
    pace = lines(checks["card-pace"])
    assert len(pace) == 1 and pace[0].startswith("warn: gcu 2 ") and "the others' median is" in pace[0], pace
    telemetry = "\n".join(lines(checks["card-telemetry"]))
    assert "fail: gcu 1 " in telemetry and "ok: gcu 0" in telemetry, telemetry
    assert any(line.startswith("fail: gcu 6 ") for line in lines(checks["card-present"]))


def test_the_stack_of_this_python_is_asked_in_one_child(tmp_path):
    (tmp_path / "eccl.py").write_text("")
    # --deep for its longer timeouts: this machine may be busy.
    code, checks = doctor(tmp_path, "--deep", "--timeout", "60", "--only", "stack", LD_LIBRARY_PATH="/opt/tops-not-here")
    assert lines(checks["python-interpreter"])[0].startswith("ok: {} is Python {}.{}".format(sys.executable, *sys.version_info[:2]))
    assert checks["library-path"]["findings"][0]["row"] == "D5"
    made = checks["hand-made-modules"]["findings"][0]
    assert made["row"] == "D9" and made["figures"]["path"] == str(tmp_path / "eccl.py") and code == CHECK_FAILED
    if launch.has_module("torch"):
        assert checks["torch-import"]["verdict"] == "ok", checks["torch-import"]
        assert checks["version-pairs"]["verdict"] in ("ok", "cannot tell"), checks["version-pairs"]
        edited = checks["edited-packages"]
        assert edited["verdict"] in ("ok", "cannot tell"), edited
