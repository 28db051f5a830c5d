"""A part of torch's own tests of its collectives with fulldeck in place of Gloo (tests/torch_suite); `make torch-suite`
runs all of them, for Gloo too, and writes docs/torch-suite.md. One set of processes serves all tests of a size."""
import os

import pytest

from cluster import launch
from torch_suite import ranks, suite, table

pytestmark = pytest.mark.skipif(not launch.has_module("torch") or not launch.has_module("expecttest"),
                                reason="this Python has no torch, or not what torch's tests import (scripts/setup installs it)")

AT_TWO = """
    test_all_gather test_all_gather_coalesced_simple test_all_gather_object_subgroup test_all_reduce_coalesced_sum
    test_all_reduce_full_group_max test_all_reduce_sum test_all_reduce_sum_async test_all_to_all_single_unequal_split
    test_barrier_timeout_full_group test_batch_isend_irecv_gloo_tags test_broadcast test_ddp_logging_data_cpu test_destroy_group
    test_DistributedDataParallelCPU_grad_is_view test_gather test_get_backend test_get_future test_isend_torch_profiler
    test_monitored_barrier_gloo_rank_0_timeout test_reduce_sum_twice test_scatter test_send_recv_any_source test_send_recv_with_tag
    test_sparse_all_reduce_sum
""".split()
AT_FOUR = """
    test_accumulate_gradients_no_sync_allreduce_hook test_all_reduce_full_group_product test_all_to_all test_gather_object_subgroup
    test_irecv test_new_subgroups_with_group_param
""".split()


@pytest.fixture(scope="module")
def sets():
    made = ranks.RankSets()
    yield made
    made.close()


@pytest.mark.parametrize("size, name", [(2, name) for name in AT_TWO] + [(4, name) for name in AT_FOUR])
def test_torch_says_it_is_right(sets, size, name):
    outcome = suite.run_test(sets(size), name)
    assert outcome.kind == "passed", outcome


def test_the_chosen_tests_run_with_gloo_too():
    """fulldeck must pass what Gloo passed; a test that is skipped there would prove nothing here."""
    gloo = suite.Record("gloo", os.path.join(ranks.HERE, "gloo.json"))
    seen = {(size, name): gloo.results[size][name]["result"] for size, names in ((2, AT_TWO), (4, AT_FOUR)) for name in names}
    # torch reserves the second for MPI; Gloo accepts only chunks of equal size.
    assert {what for what, result in seen.items() if result != "passed"} == {(4, "test_all_to_all")}


class Written:
    """A record in the format of suite.Record, without running anything."""

    def __init__(self, backend, results):
        self.backend, self.results = backend, {2: {name: dict(reason="", seconds=1, **test) for name, test in results.items()}}
        self.about = {2: dict(torch="2.13.0", python="3.11.2", cores=2, machine="x86_64", date="2026-01-02", tests=len(results))}


def test_the_table_tells_what_was_seen():
    gloo = Written("gloo", {"test_a": {"result": "passed"}, "test_b": {"result": "passed"}, "test_c": {"result": "skipped"},
                            "test_m": {"result": "failed", "mpi": True}})
    ours = Written("fulldeck", {"test_a": {"result": "passed"}, "test_b": {"result": "failed", "error": "rank 1: wrong sum"},
                                "test_c": {"result": "skipped"}, "test_m": {"result": "passed", "mpi": True}})
    ours.results[2]["test_c"]["reason"] = "CUDA is not available."
    assert suite.worse_than(gloo, ours) == [(2, "test_b")]
    text = table.markdown(gloo, ours)
    assert "| 2 | 2 | 1 | 0 | 1 | 1 | 1 |" in text
    assert "| 2, kept for MPI | 0 | 0 | 1 | 1 | 0 | 0 |" in text
    assert "| `test_b` | passed | **failed** |" in text and "rank 1: wrong sum" in text
    assert "**Pass with Gloo and not with fulldeck:** `test_b` at 2 ranks." in text
    assert "**CUDA is not available** (1): `test_c`" in text
    assert "2026-01-02, torch 2.13.0" in text


HANG = """
import time
def hang(place):
    if place.rank == 1:
        time.sleep(600)
def die(place):
    import os, signal
    if place.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
def fine(place):
    return place.rank
def leave_things(place):
    import os
    import torch.distributed as dist
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "OFF"
    os.environ["LEFT_BEHIND"] = "1"
    dist.new_group([0])
    dist.destroy_process_group()
def look(place):
    import os
    import torch.distributed as dist
    return [os.environ.get("LEFT_BEHIND"), dist.is_initialized()]
"""


def test_a_job_that_hangs_dies_or_leaves_things_behind_does_not_harm_the_next(tmp_path):
    """The harness itself, with Gloo: what it reports as failed must have failed, and the rest must continue."""
    path = tmp_path / "jobs.py"
    path.write_text(HANG)

    def job(function):
        return {"do": "call", "file": str(path), "function": function}

    with ranks.RankSet(2, "gloo") as rank_set:
        assert rank_set.run(job("leave_things")).kind == "passed"
        assert rank_set.run(job("look")).values == [[None, True], [None, True]]
        hung = rank_set.run(job("hang"), seconds=2)
        assert hung.kind == "failed" and [answer.kind for answer in hung.answers] == ["passed", "hung"]
        assert "in hang" in hung.answers[1].text, hung
        died = rank_set.run(job("die"), survivors=[0])
        assert died.answers[0].kind == "died" and "SIGKILL" in died.reason
        assert rank_set.run(job("fine")).values == [0, 1]
        assert rank_set.starts == 3
