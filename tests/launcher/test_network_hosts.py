"""`fulldeck run` on two nodes: network namespaces with a cable between them (tests/cluster/hosts.py). The long version
of the fault grid is tests/grids/host_grid.py."""
# Runs alone: nodes that receive nothing from each other for 4 s drop the link, and that happens on an overloaded
# machine.
import concurrent.futures
import importlib.util
import json
import os
import signal
import subprocess
import sys

import pytest

from cluster import host_cells, hosts, launch
from cluster.host_cells import Pair
from cluster.launch import FULLDECK, places, script
from launching import BUILD

REASON = hosts.why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="this Python has no torch")

PORT = 29511
HOSTS_DID_NOT_MEET = 85
IDLE_CARD = 86
ENDPOINT = "{}:{}".format(hosts.ADDRESSES[0], PORT)
C10D = ["--rdzv-backend", "c10d", "--rdzv-endpoint", ENDPOINT, "--rdzv-id", "grid"]


def by_node_rank(side):
    return ["--nnodes", "2", "--node-rank", str(side), "--master-addr", hosts.ADDRESSES[0], "--master-port", str(PORT)]


def four_ranks(folder):
    return ["--nproc-per-node", "4", "--devices", "cpu", script("lockstep.py"), folder / "ranks"]


@pytest.fixture
def two_hosts():
    made = hosts.TwoHosts()
    yield made
    made.remove()


@pytest.fixture
def start(two_hosts, tmp_path):
    """start(SIDE, ARGUMENTS) starts a launcher there, in the background."""
    variables = launch.environment(tmp_path)
    (tmp_path / "ranks").mkdir()

    def start_one(side, arguments, **more):
        folder = tmp_path / "launcher{}-{}".format(side, len(started))
        folder.mkdir()
        started.append(launch.Launcher(two_hosts.command(side, [FULLDECK, "run"] + arguments), dict(variables, **more), folder))
        return started[-1]

    started = []
    yield start_one
    for launcher in started:
        launcher.kill()
    assert launch.kill_marked(variables[launch.MARKER]) == [], "the test left processes behind"


@pytest.fixture
def pair(two_hosts, tmp_path):
    """pair(**options) starts a launcher on each node; see cluster.host_cells.Pair."""
    made = []

    def make(**options):
        made.append(Pair(two_hosts, tmp_path, PORT, **options))
        return made[-1]

    yield make
    for one in made:
        assert one.end() == [], "the test left processes behind"


def assert_two_times_four(found, address=hosts.ADDRESSES[0]):
    assert [place["rank"] for place in found] == list(range(8))
    assert {place["world_size"] for place in found} == {8}
    assert [place["local_rank"] for place in found] == [0, 1, 2, 3] * 2
    assert [place["group_rank"] for place in found] == [0] * 4 + [1] * 4
    assert [place["host"] for place in found] == ["hosta"] * 4 + ["hostb"] * 4
    assert {place["master_addr"] for place in found} == {address}
    assert len({(place["master_port"], place["torchelastic_run_id"]) for place in found}) == 1


@pytest.mark.parametrize("numbered", [True, False], ids=["node-rank", "c10d"])
def test_two_hosts_make_one_world(pair, numbered):
    both = pair(by_node_rank=numbered, rank_flags=["--steps", "3"])
    assert both.wait(60) == [0, 0], both.output()
    assert_two_times_four(places(both.places))


def test_a_card_that_does_nothing_on_one_node_fails_the_run_on_both(start, tmp_path):
    program = os.path.join(BUILD, "examples", "simulated_rank")
    launchers = []
    for side, cards in enumerate(("gcu:2", "gcu:2,idle=1")):
        variables = {"FULLDECK_SIMULATE": cards, "FULLDECK_TEST_LIB": os.path.join(BUILD, "lib"),
                     "FULLDECK_EVENTS": str(tmp_path / "events-{}.jsonl".format(side))}
        for name in ("SIMULATE_DIR", "LEASE_DIR", "RUNTIME_DIR"):
            path = tmp_path / "{}-{}".format(name, side)
            path.mkdir(mode=0o700)
            variables["FULLDECK_" + name] = str(path)
        launchers.append(start(side, by_node_rank(side) + ["--idle-card", "fail", "--no-python", program, "20", "100"], **variables))
    codes = [launcher.wait() for launcher in launchers]
    events = [[json.loads(line) for line in (tmp_path / "events-{}.jsonl".format(side)).read_text().splitlines()] for side in (0, 1)]
    idle = [[event["card"] for event in events[side] if event["id"] == "card-idle"] for side in (0, 1)]
    assert (codes, idle) == ([IDLE_CARD, IDLE_CARD], [[], ["gcu 1"]]), [launcher.output() for launcher in launchers]


def test_min_and_max_start_with_those_that_came(start, tmp_path):
    flags = ["--nnodes", "2:3"] + C10D + ["--rdzv-conf", "last_call_timeout=1,join_timeout=60,keep_alive_interval=10"] + four_ranks(tmp_path)
    launchers = [start(0, flags), start(1, flags)]
    for launcher in launchers:
        assert launcher.wait() == 0, launcher.output()
    assert_two_times_four(places(tmp_path / "ranks"))
    assert {place["group_world_size"] for place in places(tmp_path / "ranks")} == {2}


def test_one_host_of_one_to_two_starts_alone(start, tmp_path):
    launcher = start(0, ["--nnodes", "1:2"] + C10D + ["--rdzv-conf", "last_call_timeout=1,keep_alive_interval=10"] + four_ranks(tmp_path))
    assert launcher.wait() == 0, launcher.output()
    assert {(place["world_size"], place["group_world_size"]) for place in places(tmp_path / "ranks")} == {(4, 1)}


@pytest.mark.parametrize("by_variable", [True, False], ids=["FULLDECK_TOKEN", "rdzv-id"])
def test_who_has_another_token_is_turned_away(start, tmp_path, by_variable):
    launchers = []
    for side, token in enumerate(["right", "wrong"]):
        flags = by_node_rank(side) + ["--rdzv-id", "grid" if by_variable else token, "--rdzv-conf", "join_timeout=15,keep_alive_interval=10", "--devices",
                                      "cpu", script("place.py"), tmp_path / "ranks"]
        launchers.append(start(side, flags, **({"FULLDECK_TOKEN": token} if by_variable else {})))
    for launcher in launchers:
        assert launcher.wait(30) == HOSTS_DID_NOT_MEET, launcher.output()
    assert places(tmp_path / "ranks") == []
    assert launchers[1].lines("error", "token"), launchers[1].output()
    # The secrets themselves are not printed.
    if by_variable:
        assert not any("wrong" in launcher.output() or "right" in launcher.output() for launcher in launchers)


def test_a_host_that_never_comes_is_named_after_the_time_to_join(start, tmp_path):
    """A9: the launcher waits for its ranks."""
    def flags(side):
        return by_node_rank(side) + ["--rdzv-conf", "join_timeout=2", "--rdzv-id", "grid", "--devices", "cpu", script("place.py"),
                                     tmp_path / "ranks"]
    first = start(0, flags(0))
    assert first.wait(30) == HOSTS_DID_NOT_MEET
    assert first.lines("error", "missing", "1"), first.output()
    second = start(1, flags(1))
    assert second.wait(30) == HOSTS_DID_NOT_MEET
    assert second.lines("error", ENDPOINT), second.output()
    assert places(tmp_path / "ranks") == []


def test_a_meeting_point_that_is_taken_is_refused_with_its_owner(start, two_hosts, tmp_path):
    listening = "import socket, sys; s = socket.create_server(('', {})); print('up', flush=True); sys.stdin.read()".format(PORT)
    listener = subprocess.Popen(two_hosts.command(0, [sys.executable, "-c", listening]), stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, universal_newlines=True)
    try:
        assert listener.stdout.readline() == "up\n"
        launcher = start(0, by_node_rank(0) + ["--rdzv-id", "grid", "--devices", "cpu", script("place.py"), tmp_path / "ranks"])
        assert launcher.wait(30) in (84, HOSTS_DID_NOT_MEET)
        assert launcher.lines("error", str(PORT), str(listener.pid)), launcher.output()
    finally:
        listener.communicate("", timeout=120)


def test_all_hosts_start_again_together(pair):
    both = pair(flags=["--max-restarts", "2"], rank_flags=["--steps", "20", "--fail-once", "6"])
    assert both.wait(60) == [0, 0], both.output()
    found = places(both.places)
    assert_two_times_four(found)
    assert {place["torchelastic_restart_count"] for place in found} == {"1"}


def test_sigterm_to_one_launcher_ends_both(pair):
    both = pair()
    both.wait_until_joined()
    both.launchers[1].process.send_signal(signal.SIGTERM)
    codes = both.wait(30)
    assert codes[1] == 128 + signal.SIGTERM and codes[0] != 0, both.output()
    assert both.first_hosts()[0] == "hostb", both.output()


@pytest.mark.parametrize("cell", [cell for cell in host_cells.cells() if "link" not in cell.words], ids=lambda cell: cell.name)
def test_both_sides_end_and_name_the_host_that_began(two_hosts, tmp_path, cell):
    outcome = host_cells.try_cell(cell, two_hosts, tmp_path, PORT)
    assert outcome.troubles == [], "\n".join(outcome.troubles)


def test_links_that_fail_are_named_on_both_sides_and_one_that_loses_packets_is_not(tmp_path):
    """These mostly wait, so they run concurrently, each on its own nodes."""
    def try_one(number, cell):
        folder = tmp_path / str(number)
        folder.mkdir()
        own = hosts.TwoHosts()
        try:
            if cell is None:
                return "5 % loss", host_cells.try_losses(own, folder, PORT, seconds=10)
            return cell.name, host_cells.try_cell(cell, own, folder, PORT)
        finally:
            own.remove()

    links = [cell for cell in host_cells.cells() if "link" in cell.words] + [None]
    with concurrent.futures.ThreadPoolExecutor(len(links)) as pool:
        outcomes = list(pool.map(try_one, range(len(links)), links))
    bad = [name + ": " + "\n".join(outcome.troubles) for name, outcome in outcomes if outcome.troubles]
    assert bad == [], "\n".join(bad)


@needs_torch
def test_a_hang_is_reported_by_the_launcher_of_its_host(start, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    launchers = [start(side, by_node_rank(side) + ["--nproc-per-node", "2", "--devices", "cpu", "--on-hang", "fail", "--shutdown-timeout", "2",
                                                   script("hang_gloo.py"), notes]) for side in (0, 1)]
    steps = notes / "steps"
    launch.wait_until(lambda: steps.exists() and int(steps.read_text() or 0) >= 16 or launchers[0].process.poll() is not None, "steps", 120)
    (notes / "order.new").write_text("1 stop 3")
    (notes / "order.new").rename(notes / "order")
    assert launchers[1].wait(60) == 90, launchers[1].output()
    assert launchers[0].wait(60) != 0, launchers[0].output()
    assert launchers[1].lines("HANG: rank 3 ("), launchers[1].output()
    assert not launchers[0].lines("HANG: "), launchers[0].output()
