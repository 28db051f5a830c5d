"""A scheduler ends a job by signaling all of its processes at the same time: both launcher processes and the ranks.
That is one request, and not a failure of a rank."""
import os
import signal

import pytest

from cluster import launch
from cluster.launch import FULLDECK, places, read, script, wait_until


@pytest.fixture
def start(tmp_path):
    """start(RANKS, ARGUMENTS) starts a run and returns its launcher when all ranks are running."""
    variables = launch.environment(tmp_path)
    started = []

    def start_one(ranks, arguments):
        command = [FULLDECK, "run", "--nproc-per-node", ranks, "--devices", "cpu"] + arguments
        started.append(launch.Launcher(command, variables, tmp_path))
        wait_until(lambda: len(places(tmp_path)) == ranks, "{} ranks".format(ranks))
        return started[-1]

    yield start_one
    for launcher in started:
        launcher.kill()
    assert launch.kill_marked(variables[launch.MARKER]) == [], "the test left processes behind"


def signal_everything(launcher, number, folder, ranks_first):
    """At the same time from the launcher's view: its supervisor, which asks what arrived within 100 ms, runs again only
    when all have the signal."""
    supervisor = launch.children_of(launcher.pid)
    ranks = [place["pid"] for place in places(folder)]
    for pid in supervisor:
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda pid=pid: launch.state_of(pid) == "T", "the supervisor to stop")
    order = ranks + supervisor + [launcher.pid] if ranks_first else [launcher.pid] + supervisor + ranks
    for pid, sent in [(pid, number) for pid in order] + [(pid, signal.SIGCONT) for pid in supervisor]:
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            pass  # it died of an earlier one


@pytest.mark.parametrize("ranks_first", [True, False])
def test_ranks_that_save_on_sigterm_have_their_time(start, tmp_path, ranks_first):
    launcher = start(4, [script("saves_on_term.py"), tmp_path])
    signal_everything(launcher, signal.SIGTERM, tmp_path, ranks_first)
    assert launcher.wait(30) == 128 + signal.SIGTERM, launcher.output()
    assert sorted(name for name in os.listdir(str(tmp_path)) if name.startswith("saved.")) == ["saved.%d" % i for i in range(4)]
    assert "root cause" not in launcher.output()


@pytest.mark.parametrize("ranks_first", [True, False])
def test_ranks_that_die_of_it_are_not_called_the_cause(start, tmp_path, ranks_first):
    launcher = start(4, ["--max-restarts", "3", script("lockstep.py"), tmp_path, "--steps", "0"])
    signal_everything(launcher, signal.SIGTERM, tmp_path, ranks_first)
    assert launcher.wait(30) == 128 + signal.SIGTERM, launcher.output()
    assert "root cause" not in launcher.output() and "restart" not in launcher.output(), launcher.output()
    assert launcher.lines("stopped by SIGTERM"), launcher.output()


def test_a_rank_that_alone_is_ended_by_sigterm_is_the_cause(start, tmp_path):
    launcher = start(2, [script("lockstep.py"), tmp_path, "--steps", "0"])
    os.kill(places(tmp_path)[1]["pid"], signal.SIGTERM)
    assert launcher.wait(30) == 128 + signal.SIGTERM, launcher.output()
    assert launcher.lines("root cause: rank 1 ", "SIGTERM"), launcher.output()


@pytest.mark.parametrize("ranks_first", [True, False])
def test_usr1_to_every_process_reaches_each_rank_once(start, tmp_path, ranks_first):
    launcher = start(4, [script("counts_usr1.py"), tmp_path])
    signal_everything(launcher, signal.SIGUSR1, tmp_path, ranks_first)
    wait_until(lambda: launcher.lines("SIGUSR1 was sent to every process"), "a word about it")
    os.kill(launcher.pid, signal.SIGTERM)
    launcher.wait(30)
    assert [read(tmp_path / "count.{}".format(rank)) for rank in range(4)] == ["1"] * 4, launcher.output()


def test_usr1_to_the_launcher_reaches_each_rank_once(start, tmp_path):
    launcher = start(4, [script("counts_usr1.py"), tmp_path])
    for passed in (1, 2):
        os.kill(launcher.pid, signal.SIGUSR1)
        wait_until(lambda: len(launcher.lines("SIGUSR1 passed on to 4 ranks")) == passed, "a word about it")
    os.kill(launcher.pid, signal.SIGTERM)
    launcher.wait(30)
    assert [read(tmp_path / "count.{}".format(rank)) for rank in range(4)] == ["2"] * 4, launcher.output()
