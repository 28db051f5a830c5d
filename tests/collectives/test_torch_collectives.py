"""torch.distributed with the backend `fulldeck`, compared with Gloo: every collective, groups, threads, futures, DDP's
buckets, invalid input, and a rank that dies. tests/torch_suite/jobs.py has the code that runs in a rank; one set of
ranks serves all tests of a size."""
import os
import re
import signal
import time

import pytest

from cluster import launch
from torch_suite import ranks

pytestmark = pytest.mark.skipif(not launch.has_module("torch"), reason="this Python has no torch")

JOBS = os.path.join(ranks.HERE, "jobs.py")
# Short, so that Gloo's waits for mismatched calls end soon.
BAD_INPUT_SECONDS = 40  # far more than a call takes on a loaded machine: a call that reaches it has hung


@pytest.fixture(scope="module")
def sets():
    made = ranks.RankSets()
    yield made
    made.close()


def do(rank_set, function, timeout=60, **arguments):
    """The function's return value on each rank."""
    outcome = rank_set.run({"do": "call", "file": JOBS, "function": function, "arguments": arguments, "timeout": timeout},
                           seconds=120)
    assert outcome.kind == "passed", outcome
    return outcome.values


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("function", ["every_collective", "subgroups", "async_work"])
def test_it_gives_what_gloo_gives(sets, size, function):
    assert do(sets(size), function) == do(sets(size, "gloo"), function)


def test_sums_are_the_same_on_every_rank_and_in_every_run(sets):
    sizes = [1, 3, 1000, 65537, 1 << 20]
    first, second = do(sets(4), "sums", sizes=sizes), do(sets(4), "sums", sizes=sizes)
    assert all(one == first[0] for one in first + second)
    assert max(error for _, error in first[0]) < 1e-6


def test_two_ranks_add_up_to_the_bits_that_gloo_gives(sets):
    """Two numbers have only one sum; with more ranks the order differs from Gloo's ring."""
    sizes = [1, 3, 1000, 65537, 1 << 20]
    assert do(sets(2), "sums", sizes=sizes) == do(sets(2, "gloo"), "sums", sizes=sizes)


def test_it_does_what_gloo_refuses(sets):
    for rank, found in enumerate(do(sets(4), "beyond_gloo")):
        assert found["all_to_all"] == [[[10.0 * other + rank] * 2] * (1 + other) for other in range(4)]
        assert found["uint16"] == [2, 2] and found["float8"] == [2.0] * 4
        assert found["strided"] == [4.0 * value + 6 for value in (0, 2, 4, 6, 8)]


def test_the_buckets_of_ddp_lie_in_shared_memory(sets):
    ours, theirs = do(sets(2), "ddp_buckets"), do(sets(2, "gloo"), "ddp_buckets")
    for backed_by, _ in ours:
        assert backed_by and all("memfd:" in name for name in backed_by), ours
    assert not any("memfd:" in name for backed_by, _ in theirs for name in backed_by)
    assert [weights for _, weights in ours] == [weights for _, weights in theirs]


def test_the_buffers_of_fsdp2_lie_in_shared_memory_when_it_takes_them_from_the_group(sets):
    for kinds in do(sets(2), "fsdp_memory", from_group=True):
        assert all(kind and all("memfd:" in name for name in kind) for kind in kinds), kinds
    for kinds in do(sets(2), "fsdp_memory", from_group=False):
        assert all(kind and not any("memfd:" in name for name in kind) for kind in kinds), kinds


# ---- invalid input: as with Gloo, or a clear message; never a hang, and never wrong numbers ----

AS_WITH_GLOO = [
    "non-contiguous all_reduce, a transpose", "non-contiguous broadcast", "non-contiguous reduce", "non-contiguous all_gather input",
    "non-contiguous all_gather output", "non-contiguous all_gather_into_tensor", "channels last all_reduce", "sparse all_reduce",
    "complex all_reduce", "complex broadcast", "nothing in the tensors", "no dimensions",
    "input within the output, all_gather_into_tensor", "output within the input, reduce_scatter_tensor",
    "bool all_reduce", "bool all_reduce, max", "a leaf that requires grad",
    # torch's dispatcher handles meta tensors without calling a backend.
    "meta tensor all_reduce", "meta tensor broadcast",
    "ranks differ in shape, same number of elements",
    "outputs that overlap, all_gather",
]

# Messages that every rank must get. Gloo rejects these too.
REFUSED = {
    "sparse all_reduce, max": "sparse|Sparse",
    "sparse broadcast": "SparseCPU|sparse",
    "sparse all_gather": "SparseCPU|sparse",
    "complex all_reduce, max": "complex",
    "conjugate view all_reduce": "conj",
    "meta output all_gather": "meta",
    "wrong shapes in all_gather": r"4.*3|3.*4",
    "too few outputs in all_gather": r"\b2\b",
    "output of all_gather_into_tensor too small": r"\b[2356]\b",
    "input of reduce_scatter_tensor too small": r"5|6",
    "splits that do not add up": "[Ss]plit",
    "mixed types in all_gather": "dtype|type",
    "float8 all_reduce": "[Ff]loat8|scalar type",
    "quantized all_reduce": "[Qq]uantized",
    "bits of floats": r"BAND|\band\b.*[Ff]loat",
    "root that does not exist": "root|rank",
    "send to oneself": "same|itself|oneself",
    "no tensor at all": "Tensor",
    "an empty list, all_gather": r"\b2\b",
}

# Gloo rejects these; fulldeck returns the correct values.
RIGHT = {
    "non-contiguous all_to_all_single": [[[0.0, 4.0], [1.0, 5.0], [1.0, 5.0], [2.0, 6.0]],
                                         [[2.0, 6.0], [3.0, 7.0], [3.0, 7.0], [4.0, 8.0]]],
    "non-contiguous send and recv": [[0.0, 2.0, 4.0]] * 2,
    "uint16 all_reduce": [[2, 4]] * 2,
    "premultiplied sum": [[4.0] * 4] * 2,
    "average of integers": [[3, -3]] * 2,
}

# Gloo waits until its timeout, or silently returns wrong numbers. fulldeck must report the calls of all ranks to every
# rank.
TOLD_TO_ALL = {
    "ranks differ in size, all_reduce": r"all_reduce",
    "ranks differ in size, broadcast": r"broadcast",
    "ranks differ in type": r"float32[\s\S]*int32|int32[\s\S]*float32",
    "ranks differ in reduction": r"sum[\s\S]*max|max[\s\S]*sum",
    "ranks differ in root": r"root",
    "ranks differ in the call": r"all_reduce[\s\S]*broadcast|broadcast[\s\S]*all_reduce",
}


def bad_input(rank_set, name):
    return do(rank_set, "bad_input", timeout=BAD_INPUT_SECONDS, name=name)


def assert_the_group_goes_on(found):
    assert [one["after"] for one in found] == [[2.0] * 3] * 2, found


@pytest.mark.parametrize("name", AS_WITH_GLOO)
def test_unusual_input_gives_what_gloo_gives(sets, name):
    ours, theirs = bad_input(sets(2), name), bad_input(sets(2, "gloo"), name)
    assert [one["error"] for one in ours] == [None] * 2, ours
    assert [one["value"] for one in ours] == [one["value"] for one in theirs]
    assert_the_group_goes_on(ours)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_bad_input_is_refused_as_by_gloo(sets, name):
    found = bad_input(sets(2), name)
    for one in found:
        assert one["error"] is not None and re.search(REFUSED[name], one["error"]), found
    assert_the_group_goes_on(found)


def test_a_sum_into_elements_that_share_memory_is_refused(sets):
    found = bad_input(sets(2), "elements that share memory, all_reduce")
    assert all("same memory" in (one["error"] or "") for one in found), found
    assert_the_group_goes_on(found)


def test_a_broadcast_into_elements_that_share_memory_is_refused_where_it_would_write(sets):
    found = bad_input(sets(2), "elements that share memory, broadcast")
    assert "same memory" in (found[0]["error"] or ""), found
    # The root only reads, so its call is valid; it learns that rank 0 went on to a different one.
    assert re.search("different calls[\\s\\S]*rank 0: all_reduce", found[1]["error"] or ""), found


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_what_gloo_refuses_gives_the_right_values(sets, name):
    found = bad_input(sets(2), name)
    assert [(one["error"], one["value"]) for one in found] == [(None, value) for value in RIGHT[name]], found
    assert_the_group_goes_on(found)


@pytest.mark.parametrize("name", sorted(TOLD_TO_ALL))
def test_calls_that_do_not_match_are_reported_to_all_ranks_at_once(sets, name):
    found = bad_input(sets(2), name)
    for one in found:
        assert one["error"] is not None and re.search(TOLD_TO_ALL[name], one["error"]), found
        assert "rank 0" in one["error"] and "rank 1" in one["error"], found
        assert one["seconds"] < BAD_INPUT_SECONDS / 2, found
        assert isinstance(one["after"], str), "a group in which this happened is of no more use"


def test_a_message_of_another_length_is_reported(sets):
    found = bad_input(sets(2), "ranks differ in the length of a message")
    assert found[1]["error"] is not None and re.search("16[\\s\\S]*24|24[\\s\\S]*16", found[1]["error"]), found


# ---- death ----


def test_survivors_of_a_killed_rank_raise_long_before_the_time_limit_and_name_it(sets, tmp_path):
    killed = []

    def kill_rank_2(rank_set):
        launch.wait_until(lambda: len(os.listdir(str(tmp_path))) == 4, "all ranks to be in their all_reduces")
        killed.append(time.monotonic())
        os.kill(rank_set.pids[2], signal.SIGKILL)

    outcome = sets(4).run({"do": "call", "file": JOBS, "function": "all_reduce_until_it_fails",
                           "arguments": {"mebibytes": 64, "started": str(tmp_path)}},
                          seconds=120, during=kill_rank_2, survivors=[0, 1, 3])
    assert outcome.answers[2].kind == "died", outcome
    for rank in (0, 1, 3):
        reported = outcome.answers[rank].value
        assert reported is not None, outcome
        assert re.search(r"rank 2\b", reported["error"]), reported
        # Not by the limit of a call, which is 60 s. tests/grids/promises.py measures how fast it is.
        assert reported["at"] - killed[0] < 40, reported
