"""The output of make portable, if there is one, and the check that judges it."""
import glob
import os
import shutil
import subprocess
import sys

import pytest

from launching import TOP, BUILD

CHECK = os.path.join(TOP, "scripts", "check-portable")


def check(*folders):
    return subprocess.run([sys.executable, CHECK] + list(folders), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, timeout=300)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_portable_binary_starts_on_an_old_system(machine):
    folders = glob.glob(os.path.join(TOP, "dist", "fulldeck-*-linux-" + machine))
    if not folders:
        pytest.skip("not built: make portable")
    done = check(*folders)
    assert done.returncode == 0, done.stdout


def test_the_binary_of_this_machine_is_not_taken_for_a_portable_one(tmp_path):
    for machine in ("x86_64", "aarch64"):
        folder = tmp_path / ("fulldeck-0-linux-" + machine) / "bin"
        folder.mkdir(parents=True)
        shutil.copy(os.path.join(BUILD, "bin", "fulldeck"), str(folder))
        done = check(str(folder.parent))
        assert done.returncode == 1
        assert "newer than 2.27" in done.stdout
    assert done.stdout.count("is built for") == (0 if os.uname().machine == "aarch64" else 1)


def test_an_empty_folder_and_a_wrong_name_are_faults(tmp_path):
    (tmp_path / "fulldeck-0-linux-x86_64").mkdir()
    assert "holds no bin/fulldeck" in check(str(tmp_path / "fulldeck-0-linux-x86_64")).stdout
    assert check(str(tmp_path)).returncode == 1
