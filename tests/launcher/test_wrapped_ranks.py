"""Ranks that are not Python: a shell that starts the training as a child. Its first Python process is adapted and
checked like a rank."""
import os
import sys

import pytest

from cluster.launch import has_module
from launching import BUILD

pytestmark = pytest.mark.skipif(not has_module("torch") or not os.path.exists(os.path.join(BUILD, "lib", "libfulldeck_sim.so")),
                                reason="this Python has no torch, or the build no libfulldeck_sim.so")
PATIENCE = 200

SILENT = """
import torch
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    batch = torch.full((8, 8), float("nan"))
    torch.nn.functional.cross_entropy(model(batch), torch.randint(3, (8,))).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SHOW = """
import os, sys, time
import torch
adapted = any(type(finder).__module__ == "fulldeck.adapters" for finder in sys.meta_path)
assert adapted == ("fulldeck.adapters" in sys.modules) and adapted == (os.environ["FULLDECK_RANK_PID"] == str(os.getpid()))
print(sys.argv[1], "adapted" if adapted else "plain", flush=True)
if sys.argv[2:]:
    open(sys.argv[2], "w").close()
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.01)
"""
BEHIND = """
import subprocess, sys
subprocess.run([sys.executable] + sys.argv[1:], check=True)
"""


def test_a_training_that_a_shell_starts_is_checked_as_the_rank_itself(workspace):
    shell = workspace.write("train.sh", "echo begins\n{} {}\necho ended with $?\n".format(sys.executable, workspace.write("silent.py", SILENT)))
    done = workspace.run("--nproc-per-node", 2, "--strict", "--no-python", "sh", shell, seconds=PATIENCE)
    codes = sorted({event["code"] for event in workspace.events("silent-error")})
    assert done.code == 92 and codes == ["A7", "J6"] and done.out.count("ended with 0") == 2, done


def test_one_python_at_a_time_stands_for_a_rank_that_is_none(workspace):
    """One process after another is adapted; a concurrent one, one below another Python process, one with a different
    rank, and a launcher are not."""
    workspace.variables.update(PYTHON=sys.executable, SHOW=workspace.write("show.py", SHOW), BEHIND=workspace.write("behind.py", BEHIND),
                           LAUNCHER=workspace.write("torchrun", SHOW))
    done = workspace.run("--nproc-per-node", 1, "--no-python", "bash", workspace.write("train.sh", """
        set -e
        $PYTHON -c "import sys; assert 'fulldeck.adapters' not in sys.modules"
        $PYTHON $SHOW first
        sh -c '$PYTHON $SHOW deeper; true'
        $PYTHON $SHOW holder held release &
        while [ ! -e held ]; do sleep 0.05; done
        $PYTHON $SHOW beside
        touch release
        wait $!
        RANK=5 $PYTHON $SHOW other
        $PYTHON $BEHIND $SHOW behind
        PYTHONNOUSERSITE=1 $PYTHON $LAUNCHER launcher
        (setsid $PYTHON $SHOW session)
    """), seconds=PATIENCE)
    assert done.code == 0 and done.out.splitlines() == [
        "first adapted", "deeper adapted", "holder adapted", "beside plain", "other plain", "behind plain", "launcher plain", "session adapted"], done


def test_without_adapters_a_python_below_a_shell_stays_as_it_is(workspace):
    done = workspace.run("--nproc-per-node", 1, "--no-adapt", "--no-python", "sh",
                     workspace.write("train.sh", "{} {} only; true\n".format(sys.executable, workspace.write("show.py", SHOW))), seconds=PATIENCE)
    assert done.code == 0 and done.out == "only plain\n", done
