"""Unmodified scripts for torchrun and Accelerate under `fulldeck run`: they are in tests/scripts and do not use
fulldeck. Importing torch costs seconds per rank, so each test starts ranks once."""
import json
import re
import signal
import sys

import pytest

from cluster import launch
from cluster.launch import FULLDECK, script

pytestmark = pytest.mark.skipif(not launch.has_module("torch"), reason="this Python has no torch")

# On two cores eight ranks spend about ten seconds importing torch.
SECONDS = 150


@pytest.fixture
def variables(tmp_path):
    found = launch.environment(tmp_path, OMP_NUM_THREADS="1")
    yield found
    assert launch.kill_marked(found[launch.MARKER]) == [], "the test left processes behind"


def run(arguments, variables, folder):
    return launch.run(["run"] + arguments, variables, folder, SECONDS)


def results(text):
    """The lines that ranks printed, without the launcher's prefix, in order."""
    return sorted(re.sub(r"^\[\d+\] ", "", line) for line in text.splitlines()
                  if re.match(r"^(\[\d+\] )?(rank|process) \d", line))


EIGHT_SUMS = ["rank {} of 8: sum 36, squares [0, 1, 4, 9, 16, 25, 36, 49]".format(rank) for rank in range(8)]
TWO_SUMS = ["rank {} of 2: sum 3, squares [0, 1]".format(rank) for rank in range(2)]


def test_eight_ranks_add_up_over_gloo(variables, tmp_path):
    done = run(["--nproc-per-node", "8", "--devices", "cpu", script("all_reduce.py")], variables, tmp_path)
    assert (done.returncode, results(done.stdout)) == (0, EIGHT_SUMS), done.stdout


def test_called_as_torchrun_it_gives_the_same(variables, tmp_path):
    torchrun = tmp_path / "torchrun"
    torchrun.symlink_to(FULLDECK)
    done = launch.run(["--standalone", "--nproc_per_node=2", script("all_reduce.py")], variables, tmp_path, SECONDS,
                      program=str(torchrun))
    assert (done.returncode, results(done.stdout)) == (0, TWO_SUMS), done.stdout


def test_the_real_torchrun_gives_the_same(variables, tmp_path):
    done = launch.run(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script("all_reduce.py")], variables,
                      tmp_path, SECONDS, program=sys.executable)
    assert (done.returncode, results(done.stdout)) == (0, TWO_SUMS), done.stdout


def test_data_parallel_training_ends_with_equal_weights(variables, tmp_path):
    done = run(["--nproc-per-node", "2", "--devices", "cpu", script("train_ddp.py"), "5"], variables, tmp_path)
    assert done.returncode == 0, done.stdout
    weights = [line.split(": ")[1] for line in results(done.stdout)]
    assert len(weights) == 2 and weights[0] == weights[1], done.stdout


def test_a_killed_rank_of_a_training_is_named(variables, tmp_path):
    done = run(["--nproc-per-node", "2", "--devices", "cpu", script("train_ddp.py"), "100000", "kill"], variables, tmp_path)
    assert done.returncode == 128 + signal.SIGKILL, done.stdout
    causes = [line for line in done.stdout.splitlines() if line.startswith("fulldeck: root cause:")]
    assert len(causes) == 1 and "rank 1 " in causes[0] and "SIGKILL" in causes[0], done.stdout


def test_the_traceback_of_the_first_rank_that_failed_is_shown(variables, tmp_path):
    done = run(["--nproc-per-node", "2", "--devices", "cpu", script("train_ddp.py"), "100000", "raise"], variables, tmp_path)
    assert done.returncode == 1, done.stdout
    ours = "\n".join(line for line in done.stdout.splitlines() if line.startswith("fulldeck:"))
    assert re.search(r"root cause: rank 1 .*exited with code 1", ours), done.stdout
    assert "Traceback (most recent call last)" in ours and "in loss_of_shard" in ours
    assert "ValueError: the batch of rank 1 is broken" in ours


def test_the_error_file_of_record_is_read_and_passed_on(variables, tmp_path):
    outer = tmp_path / "outer_error.json"
    done = run(["--nproc-per-node", "2", "--devices", "cpu", script("record_error.py")],
               dict(variables, TORCHELASTIC_ERROR_FILE=str(outer)), tmp_path)
    assert done.returncode == 1, done.stdout
    assert re.search(r"root cause: rank 1 ", done.stdout), done.stdout
    assert re.search(r"fulldeck: .*no such column: velocity", done.stdout), done.stdout
    # If the launcher's caller set its own error file, it contains the cause.
    message = json.loads(outer.read_text())["message"]
    assert "no such column: velocity" in message["message"]
    assert "in main" in message["extraInfo"]["py_callstack"]


def test_torch_understands_the_variables(variables, tmp_path):
    done = run(["--nproc-per-node", "2", "--devices", "cpu", script("elastic_place.py")], variables, tmp_path)
    assert done.returncode == 0, done.stdout
    assert results(done.stdout) == ["rank {0} of 2, local rank {0}, restart 0".format(rank) for rank in range(2)]


@pytest.mark.skipif(not launch.has_module("accelerate"), reason="this Python has no accelerate (scripts/setup installs it)")
def test_an_accelerate_script_trains_on_four_ranks(variables, tmp_path):
    done = run(["--nproc-per-node", "4", "--devices", "cpu", script("accelerate_gather.py")], variables, tmp_path)
    assert done.returncode == 0, done.stdout
    assert results(done.stdout) == [
        "process {} of 4 on cpu: saw 16 samples, gathered [0, 1, 2, 3], weights agree True".format(rank) for rank in range(4)]
