"""The backend `fulldeck` on two nodes with four ranks each: network namespaces with a cable between them
(tests/cluster/hosts.py). They share the kernel, its boot id and /tmp, and must still count as two nodes; the tests
query which path the calls took."""
import os
import re
import signal
import time

import pytest

from cluster import hosts, launch
from torch_suite import ranks

REASON = hosts.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)),
              pytest.mark.skipif(not launch.has_module("torch"), reason="this Python has no torch")]

JOBS = os.path.join(ranks.HERE, "jobs.py")
SIZES = [1, 7, 1000, 65537, 1 << 20]
RANKS = 8


def ask(rank_set):
    outcome = rank_set.run({"do": "call", "file": JOBS, "function": "sums_and_path", "arguments": {"sizes": SIZES}}, seconds=240)
    assert outcome.kind == "passed", outcome
    return outcome.values


@pytest.fixture(scope="module")
def one_host():
    with ranks.RankSet(RANKS, "fulldeck") as rank_set:
        return ask(rank_set)


def on_two_hosts(made):
    # The group is created through a file that both nodes see; Gloo must be configured with the route to the other node.
    return ranks.RankSet(RANKS, "fulldeck", variables={"GLOO_SOCKET_IFNAME": "cable"},
                         command_of=lambda rank, command: made.command(rank // 4, command))


@pytest.fixture(scope="module")
def two_hosts():
    made = hosts.TwoHosts()
    try:
        with on_two_hosts(made) as rank_set:
            return ask(rank_set)
    finally:
        made.remove()


def test_on_one_host_all_calls_go_through_shared_memory(one_host):
    for reported in one_host:
        assert reported["paths"]["local"] > 0 and reported["paths"]["hierarchical"] == reported["paths"]["flat"] == 0, reported["paths"]
        assert "1 host" in reported["description"]


def test_on_two_hosts_reductions_go_through_shared_memory_on_each_and_gloo_between(two_hosts):
    for reported in two_hosts:
        assert reported["paths"]["hierarchical"] >= len(SIZES) and reported["paths"]["local"] == 0, reported["paths"]
        assert "2 hosts" in reported["description"]


def test_two_hosts_give_the_values_of_one(one_host, two_hosts):
    assert [reported["values"] for reported in two_hosts] == [reported["values"] for reported in one_host]
    assert [reported["groups"] for reported in two_hosts] == [reported["groups"] for reported in one_host]


def test_two_hosts_add_up_alike_on_every_rank_and_to_the_sums_of_one(one_host, two_hosts):
    digests = [[digest for digest, _ in reported["sums"]] for reported in two_hosts]
    assert all(one == digests[0] for one in digests), "the ranks differ"
    assert max(error for reported in two_hosts + one_host for _, error in reported["sums"]) < 1e-6


def test_the_death_of_a_rank_reaches_both_hosts(tmp_path):
    """Node A learns of a dead rank on node B through Gloo's connections or through its own ranks that lost theirs."""
    made = hosts.TwoHosts()
    killed = []

    def kill_rank_5(rank_set):
        launch.wait_until(lambda: len(os.listdir(str(tmp_path))) == RANKS, "all ranks to be in their all_reduces", 120)
        killed.append(time.monotonic())
        os.kill(rank_set.pids[5], signal.SIGKILL)

    survivors = [rank for rank in range(RANKS) if rank != 5]
    try:
        with on_two_hosts(made) as rank_set:
            outcome = rank_set.run({"do": "call", "file": JOBS, "function": "all_reduce_until_it_fails",
                                    "arguments": {"mebibytes": 16, "started": str(tmp_path)}},
                                   seconds=180, during=kill_rank_5, survivors=survivors)
    finally:
        made.remove()
    for rank in survivors:
        reported = outcome.answers[rank].value
        assert reported is not None, outcome
        assert reported["at"] - killed[0] < 40, reported  # the limit of a call would be 60 s
        if rank >= 4:
            assert re.search(r"rank 1 is gone[\s\S]*counted on this host[\s\S]*ranks 4, 5, 6, 7 of the job", reported["error"]), reported
