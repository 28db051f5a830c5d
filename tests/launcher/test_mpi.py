"""`mpirun fulldeck run`: several launchers on one machine, which OpenMPI's variables combine into one run."""
import os
import shutil
import tempfile

import pytest

from cluster import launch
from cluster.launch import FULLDECK, places, script

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (scripts/setup does)")


sessions = []  # folders of the jobs of a test


@pytest.fixture
def variables(tmp_path):
    found = launch.environment(tmp_path)
    yield found
    while sessions:
        shutil.rmtree(sessions.pop(), ignore_errors=True)
    assert launch.kill_marked(found[launch.MARKER]) == [], "the test left processes behind"


def options(launchers):
    """The session folder for mpirun. Each job has its own: two that start at the same time may both try to create the
    shared one, and one of them fails. Its path must be short, since it contains sockets."""
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    sessions.append(tempfile.mkdtemp(prefix="ompi-", dir="/tmp"))
    return ["-np", str(launchers), "--oversubscribe", "--mca", "orte_tmpdir_base", sessions[-1]] + root


def mpirun(launchers, arguments, variables, folder):
    return launch.run(options(launchers) + [FULLDECK, "run"] + arguments, variables, folder, program="mpirun")


def test_two_launchers_on_one_host_make_one_world(variables, tmp_path):
    done = mpirun(2, ["--nproc-per-node", "2", "--devices", "cpu", script("lockstep.py"), tmp_path], variables, tmp_path)
    assert done.returncode == 0, done.stdout
    found = places(tmp_path)
    assert [place["rank"] for place in found] == [0, 1, 2, 3]
    assert {place["world_size"] for place in found} == {4}
    assert [place["local_rank"] for place in found] == [0, 1, 0, 1]
    assert [place["group_rank"] for place in found] == [0, 0, 1, 1]
    assert [place["ompi_comm_world_rank"] for place in found] == ["0", "0", "1", "1"]
    assert len({(place["master_addr"], place["master_port"]) for place in found}) == 1
    assert all(place["met"] for place in found)


def test_each_launcher_takes_its_share_of_the_cards(variables, tmp_path):
    variables["FULLDECK_SIMULATE"] = "gcu:8"
    done = mpirun(2, ["--idle-card", "off", script("lockstep.py"), tmp_path], variables, tmp_path)
    assert done.returncode == 0, done.stdout
    found = places(tmp_path)
    assert [place["local_rank"] for place in found] == [0, 1, 2, 3] * 2
    assert {place["world_size"] for place in found} == {8}
    assert len({place["fulldeck_card_serial"] for place in found}) == 8
    # LOCAL_RANK is the index of the card that torch sees.
    assert [place["fulldeck_device"] for place in found] == ["gcu:%d" % i for i in range(4)] * 2


def test_one_launcher_under_mpirun_is_a_run_on_one_host(variables, tmp_path):
    done = mpirun(1, ["--nproc-per-node", "3", "--devices", "cpu", script("lockstep.py"), tmp_path], variables, tmp_path)
    assert done.returncode == 0, done.stdout
    assert {(place["world_size"], place["group_world_size"]) for place in places(tmp_path)} == {(3, 1)}


def test_two_jobs_of_mpirun_at_once_do_not_meet_each_other(variables, tmp_path):
    folders, running = [], []
    for name in ("first", "second"):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        running.append(launch.Launcher(["mpirun"] + options(2) + [
            FULLDECK, "run", "--nproc-per-node", "2", "--devices", "cpu", script("lockstep.py"), folders[-1], "--steps", "10"],
            variables, folders[-1]))
    for launcher, folder in zip(running, folders):
        assert launcher.wait() == 0, launcher.output()
        assert [place["rank"] for place in places(folder)] == [0, 1, 2, 3]


def test_a_rank_that_fails_ends_all_launchers(variables, tmp_path):
    done = mpirun(2, ["--nproc-per-node", "2", "--devices", "cpu", script("lockstep.py"), tmp_path, "--steps", "0", "--fail", "3"],
                  variables, tmp_path)
    assert done.returncode != 0
    assert "rank 3 " in done.stdout and "the loss of rank 3 is not a number" in done.stdout, done.stdout
    launch.nothing_left(variables[launch.MARKER])


def test_flags_that_contradict_mpirun_are_refused(variables, tmp_path):
    done = mpirun(2, ["--nnodes", "3", "--nproc-per-node", "1", "--devices", "cpu", script("place.py"), tmp_path], variables,
                  tmp_path)
    assert done.returncode != 0
    assert "--nnodes" in done.stdout and places(tmp_path) == [], done.stdout
