"""`fulldeck run` under a real Slurm with two nodes (tests/cluster/slurm.py)."""
import os
import stat

import pytest

from cluster import launch
from cluster import slurm as engine
from cluster.launch import FULLDECK, places, read, script, wait_until

REASON = engine.why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    cluster = engine.Slurm(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.stop()
    assert launch.marked(cluster.mark) == []


@pytest.fixture(scope="module", autouse=True)
def limited_job(slurm, tmp_path_factory):
    """Slurm checks time limits twice per minute and may signal a minute too early. So this job has three minutes, of
    which the signal leaves it at least one to start; it is started first and checked last."""
    folder = tmp_path_factory.mktemp("limited")
    job = slurm.sbatch("exec {} run --nproc-per-node 4 --devices cpu {} {} --steps 0 --on-usr1 {}/checkpoint\n".format(
        FULLDECK, script("lockstep.py"), folder, folder), folder, "-N2", "--time=3", "--signal=B:USR1@60")
    return job, folder


@pytest.fixture(autouse=True)
def nothing_is_left(slurm, limited_job):
    """After each test only the daemons and the job with the time limit run."""
    yield
    for job in slurm.ask("squeue", "-h", "-o", "%i").split():
        if job != limited_job[0]:
            slurm.ask("scancel", job)
    wait_until(lambda: slurm.ask("squeue", "-h", "-o", "%i").split() in ([], [limited_job[0]]), "the end of all jobs")


def met(folder, ranks):
    return wait_until(lambda: len(places(folder)) == ranks and places(folder), "{} ranks in {}".format(ranks, folder))


def assert_one_world(found, launchers, ranks_each):
    world = launchers * ranks_each
    assert [place["rank"] for place in found] == list(range(world))
    assert {place["world_size"] for place in found} == {world}
    assert [place["local_rank"] for place in found] == list(range(ranks_each)) * launchers
    assert [place["group_rank"] for place in found] == [i // ranks_each for i in range(world)]
    assert {place["group_world_size"] for place in found} == {launchers}
    assert {place["local_world_size"] for place in found} == {ranks_each}
    assert len({(place["master_addr"], place["master_port"], place["torchelastic_run_id"]) for place in found}) == 1


def test_srun_on_two_nodes_gives_one_world_of_eight(slurm, tmp_path):
    done = slurm.srun(["-N2", "--ntasks-per-node=1", FULLDECK, "run", "--nproc-per-node", "4", "--devices", "cpu",
                       script("lockstep.py"), tmp_path], tmp_path)
    assert done.returncode == 0, done.stdout
    found = places(tmp_path)
    assert_one_world(found, 2, 4)
    assert [place["host"] for place in found] == ["host0"] * 4 + ["host1"] * 4
    assert [place["slurm_procid"] for place in found] == ["0"] * 4 + ["1"] * 4
    # The address of the first node, as a number.
    assert found[0]["master_addr"] == "127.0.0.1"
    assert all(place["met"] for place in found)


def test_two_launchers_on_each_node_share_its_cards(slurm, tmp_path):
    # Both nodes are this machine: each needs its own leases, or the second one would find all cards in use.
    wrapper = tmp_path / "on_its_node"
    wrapper.write_text('#!/bin/sh\nexport FULLDECK_LEASE_DIR="{0}/$(hostname)" FULLDECK_SIMULATE_DIR="{0}/$(hostname)-cards"\n'
                       'mkdir -p -m 700 "$FULLDECK_LEASE_DIR" "$FULLDECK_SIMULATE_DIR"\nexec "$@"\n'.format(tmp_path))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    done = slurm.srun(["-N2", "--ntasks-per-node=2", wrapper, FULLDECK, "run", "--idle-card", "off", script("lockstep.py"), ranks],
                      tmp_path, FULLDECK_SIMULATE="gcu:4")
    assert done.returncode == 0, done.stdout
    found = places(ranks)
    assert_one_world(found, 4, 2)
    for node in engine.NODES:
        assert len({place["fulldeck_card_serial"] for place in found if place["host"] == node}) == 4, done.stdout


def test_a_rank_that_fails_ends_both_nodes_and_both_name_its_node(slurm, tmp_path):
    done = slurm.srun(["-N2", "--ntasks-per-node=1", "-o", tmp_path / "said.%t", FULLDECK, "run", "--nproc-per-node", "4",
                       "--devices", "cpu", script("lockstep.py"), tmp_path, "--steps", "0", "--fail", "5"], tmp_path)
    assert done.returncode != 0
    for task in ("0", "1"):
        said = read(tmp_path / ("said." + task))
        assert "began on host host1: rank 5 " in said, said
    assert "the loss of rank 5 is not a number" in read(tmp_path / "said.1")


@pytest.mark.skipif(not launch.has_module("torch"), reason="this Python has no torch")
def test_torch_distributed_adds_up_over_two_nodes(slurm, tmp_path):
    done = slurm.srun(["-N2", "--ntasks-per-node=1", FULLDECK, "run", "--nproc-per-node", "2", "--devices", "cpu",
                       script("all_reduce.py")], tmp_path, seconds=120)
    assert done.returncode == 0, done.stdout
    # 1 + 2 + 3 + 4, on all ranks.
    for rank in range(4):
        assert "rank {} of 4: sum 10".format(rank) in done.stdout


@pytest.mark.parametrize("flags,words", [
    (["--nnodes", "4"], ["--nnodes", "4", "2"]),
    (["--nnodes", "2", "--node-rank", "7"], ["--node-rank", "7"]),
])
def test_flags_that_contradict_slurm_are_refused(slurm, tmp_path, flags, words):
    done = slurm.srun(["-N2", "--ntasks-per-node=1", FULLDECK, "run"] + flags +
                      ["--nproc-per-node", "1", "--devices", "cpu", script("place.py"), tmp_path], tmp_path)
    assert done.returncode != 0
    refusals = [line for line in done.stdout.splitlines() if line.startswith("fulldeck: error:")]
    assert refusals and all(word in refusals[0] for word in words), done.stdout
    assert places(tmp_path) == []


def test_flags_that_agree_with_slurm_are_fine(slurm, tmp_path):
    done = slurm.srun(["-N2", "--ntasks-per-node=1", FULLDECK, "run", "--nnodes", "2", "--nproc-per-node", "1", "--devices", "cpu",
                       script("place.py"), tmp_path], tmp_path)
    assert done.returncode == 0, done.stdout
    assert_one_world(places(tmp_path), 2, 1)


def test_without_srun_a_job_runs_on_its_first_node_alone(slurm, tmp_path):
    job = slurm.sbatch("{} run --nproc-per-node 2 --devices cpu {} {}\n".format(FULLDECK, script("lockstep.py"), tmp_path),
                       tmp_path, "-N2", "--ntasks-per-node=1")
    assert slurm.wait_until_over(job) == "COMPLETED", read(tmp_path / "job.said")
    assert_one_world(places(tmp_path), 1, 2)


def test_usr1_reaches_the_ranks_of_both_nodes_and_they_save_and_end_well(slurm, tmp_path):
    job = slurm.sbatch("srun --ntasks-per-node=1 {} run --nproc-per-node 4 --devices cpu {} {} --steps 0 --on-usr1 {}/checkpoint\n"
                       .format(FULLDECK, script("lockstep.py"), tmp_path, tmp_path), tmp_path, "-N2")
    met(tmp_path, 8)
    slurm.ask("scancel", "--signal=USR1", job)
    assert slurm.wait_until_over(job) == "COMPLETED", read(tmp_path / "job.said")
    # test_cluster_signals.py, which controls the signals, shows that a rank that has the signal already gets it once.
    assert sorted(name for name in os.listdir(str(tmp_path)) if name.startswith("checkpoint.")) == \
        ["checkpoint.%d" % rank for rank in range(8)], read(tmp_path / "job.said")


def test_scancel_leaves_the_ranks_time_to_save(slurm, tmp_path):
    # Slurm signals every process of the step: both processes of the launcher, and the ranks.
    job = slurm.sbatch("srun --ntasks-per-node=1 {} run --nproc-per-node 2 --devices cpu {} {}\n".format(
        FULLDECK, script("saves_on_term.py"), tmp_path), tmp_path, "-N2")
    met(tmp_path, 4)
    slurm.ask("scancel", job)
    assert slurm.wait_until_over(job) == "CANCELLED"
    saved = sorted(name for name in os.listdir(str(tmp_path)) if name.startswith("saved."))
    assert saved == ["saved.%d" % rank for rank in range(4)], read(tmp_path / "job.said")


def test_a_requeued_job_gathers_anew(slurm, tmp_path):
    first, second = tmp_path / "0", tmp_path / "1"
    first.mkdir()
    second.mkdir()
    # The first incarnation would never end.
    job = slurm.sbatch("count=${{SLURM_RESTART_COUNT:-0}}\n"
                       "srun --ntasks-per-node=1 {} run --nproc-per-node 2 --devices cpu {} {}/$count "
                       "--steps $((count * 3))\n".format(FULLDECK, script("lockstep.py"), tmp_path), tmp_path, "-N2", "--requeue")
    before = met(first, 4)
    slurm.ask("scontrol", "requeue", job)
    after = met(second, 4)
    assert slurm.wait_until_over(job) == "COMPLETED", read(tmp_path / "job.said")
    assert_one_world(after, 2, 2)
    assert {place["slurm_restart_count"] for place in after} == {"1"}
    assert {place["torchelastic_restart_count"] for place in after} == {"0"}
    assert {place["pid"] for place in before}.isdisjoint(place["pid"] for place in after)


def test_slurms_signal_before_the_time_limit_lets_the_ranks_save(slurm, limited_job):
    job, folder = limited_job
    assert slurm.wait_until_over(job, 180) == "COMPLETED", read(folder / "job.said")
    assert sorted(name for name in os.listdir(str(folder)) if name.startswith("checkpoint.")) == \
        ["checkpoint.%d" % rank for rank in range(4)]
    assert "SIGUSR1 passed on to 4 ranks" in read(folder / "job.said")
    assert_one_world(places(folder), 1, 4)
