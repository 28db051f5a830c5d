"""Scripts without any reference to fulldeck train with its backend as with Gloo: DDP and FSDP2 (tests/scripts),
compared by the bits of their losses."""
import re

import pytest

from cluster import launch
from cluster.launch import script
from torch_suite import ranks
from torch_suite.scripts import run_script, run_script_in

pytestmark = pytest.mark.skipif(not launch.has_module("torch"), reason="this Python has no torch")

STEPS = 20


@pytest.fixture(scope="module")
def sets():
    made = ranks.RankSets()
    yield made
    made.close()


def losses_in(texts):
    """The losses that each rank printed: [[loss, …], …]."""
    found = []
    for rank, text in enumerate(texts):
        line = re.search(r"^(?:\[\d+\] )?rank {} losses (.*)$".format(rank), text, re.MULTILINE)
        assert line, text
        found.append([float.fromhex(word) for word in line.group(1).split()])
        assert len(found[-1]) == STEPS
    return found


def losses(rank_set, name, *arguments):
    return losses_in(run_script_in(rank_set, script(name), ("--backend", rank_set.backend, "--steps", str(STEPS)) + arguments))


def assert_close(ours, theirs):
    """Sums of more than two numbers depend on their order, and Gloo's ring has a different order."""
    for mine, other in zip(ours, theirs):
        assert mine == pytest.approx(other, rel=1e-5)


def assert_trained(found):
    """The ranks have their own data and train on it."""
    assert found[0] != found[1] and sum(found[0][-5:]) < sum(found[0][:5])


@pytest.mark.parametrize("arguments", [(), ("--unused",)], ids=["plain", "unused parameters"])
def test_two_ranks_with_ddp_have_the_losses_of_gloo_bit_by_bit(sets, arguments):
    ours = losses(sets(2), "ddp_losses.py", *arguments)
    assert ours == losses(sets(2, "gloo"), "ddp_losses.py", *arguments)
    assert_trained(ours)


def test_four_ranks_with_ddp_have_the_losses_of_gloo_and_the_same_bits_with_other_buckets(sets):
    ours = losses(sets(4), "ddp_losses.py")
    assert_close(ours, losses(sets(4, "gloo"), "ddp_losses.py"))
    assert ours == losses(sets(4), "ddp_losses.py", "--bucket-mb", "0.01")


@pytest.mark.parametrize("arguments", [(), ("--bfloat16-reduce",), ("--group-memory",)],
                         ids=["plain", "bfloat16", "group memory"])
def test_two_ranks_with_fsdp2_have_the_losses_of_gloo_bit_by_bit(sets, arguments):
    ours = losses(sets(2), "fsdp_losses.py", *arguments)
    # Gloo provides no memory; the location of the buffers changes no number.
    assert ours == losses(sets(2, "gloo"), "fsdp_losses.py", *[one for one in arguments if one != "--group-memory"])
    assert_trained(ours)


def test_four_ranks_with_fsdp2_have_the_losses_of_gloo(sets):
    assert_close(losses(sets(4), "fsdp_losses.py"), losses(sets(4, "gloo"), "fsdp_losses.py"))


def test_a_script_in_processes_of_its_own_gives_the_same(sets, tmp_path):
    """From `import torch` to the end of the process, with only the package on PYTHONPATH."""
    texts = run_script(script("ddp_losses.py"), 2, ["--backend", "fulldeck", "--steps", STEPS], tmp_path)
    assert losses_in(texts) == losses(sets(2), "ddp_losses.py")


def test_a_script_under_fulldeck_run_finds_the_backend_by_itself(sets, tmp_path):
    """No PYTHONPATH, nothing installed: the launcher provides the package that was built with it."""
    variables = launch.environment(tmp_path, OMP_NUM_THREADS="1")
    done = launch.run(["run", "--nproc-per-node", "2", "--devices", "cpu", script("ddp_losses.py"), "--backend", "fulldeck", "--steps",
                       STEPS], variables, tmp_path, 150)
    assert launch.kill_marked(variables[launch.MARKER]) == [], "the test left processes behind"
    assert done.returncode == 0, done.stdout
    assert losses_in([done.stdout] * 2) == losses(sets(2), "ddp_losses.py")
