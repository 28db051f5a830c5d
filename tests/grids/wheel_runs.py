"""`pip install .` as a user runs it, with everything compiled: into a fresh environment that sees this Python's torch,
and into one without torch. In each, the command runs two programs, and two ranks reduce. `make package-runs` calls
it."""
import os
import subprocess
import sys
import tempfile
import time

from launching import TOP, remove
from python_ranks import run_ranks
from test_python_package_install import make_venv, pip

TORCH = ("import torch, torch.distributed as dist\ndist.init_process_group('fulldeck')\ntensor = torch.ones(1000)\n"
         "dist.all_reduce(tensor)\nassert tensor[0].item() == 2\nprint('done')\n")
PLAIN = ("import array\nfrom fulldeck.collectives import Group\nnumbers = array.array('f', [1, 2])\n"
         "with Group.from_environment(timeout=60) as group: group.all_reduce(numbers)\nassert numbers.tolist() == [2, 4]\nprint('done')\n")


def install_and_reduce(folder, script, with_torch):
    python = os.path.join(folder, "bin", "python")
    if with_torch:
        python, _ = make_venv(folder)
    else:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    began = time.monotonic()
    code, text = pip(python, "install", "--no-deps", "-v", TOP)
    assert code == 0, text[-8000:]
    print("installed {} torch in {:.0f} s".format("beside" if with_torch else "without", time.monotonic() - began), flush=True)
    command = os.path.join(folder, "bin", "fulldeck")
    done = subprocess.run([command, "run", "--devices", "cpu", "--nproc-per-node", "2", "--no-python", "true"], cwd=folder, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.returncode == 0, done.stdout
    for ended in run_ranks(2, [python, "-c", script], folder, PYTHONPATH=None):
        assert (ended.code, ended.out, ended.err) == (0, "done\n", ""), ended


def main():
    for script, with_torch in ((PLAIN, False), (TORCH, True)):
        folder = tempfile.mkdtemp(prefix="fulldeck-wheel-runs-")
        try:
            install_and_reduce(os.path.join(folder, "venv"), script, with_torch)
        finally:
            remove(folder)
    print("both installs work")
    return 0


if __name__ == "__main__":
    sys.exit(main())
