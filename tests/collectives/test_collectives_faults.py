"""Part of the fault grid of the collectives; `make collectives-grid` runs all of it, many times."""
import random

import pytest

from grids import collectives_grid as grid

# The same moments each time; tests/grids/collectives_grid.py --seed draws others.
DRAWS = random.Random(16)


def run(cell, *arguments):
    try:
        figures = cell(*arguments)
        assert all(grid.bound_of(series) for series in figures), "`make collectives-grid` has no bound for one of %s" % sorted(figures)
    except grid.NotHere as reason:
        pytest.skip(str(reason))


# Covers every rank, every way of watching, and short and long calls.
@pytest.mark.parametrize("victim,operation,count,watch", [
    (0, "all_reduce", 100, "pidfd"), (1, "all_reduce", 5000000, "connection"), (2, "broadcast", 600000, "both"),
    (3, "all_to_all", 600000, "pidfd"), (0, "barrier", 0, "connection"), (2, "mixed", 600000, "both"),
    (1, "message", 600000, "pidfd")])
def test_a_rank_that_is_killed_in_a_call_ends_the_others_and_is_named(victim, operation, count, watch):
    run(grid.rank_is_killed, victim, operation, count, watch, DRAWS.uniform(0, 0.2))


@pytest.mark.parametrize("fault,victim,watch", [("segv", 0, "pidfd"), ("exit", 3, "connection")])
def test_a_rank_that_ends_before_a_call_is_missed_in_it(fault, victim, watch):
    run(grid.rank_dies_by_itself, fault, victim, watch)


@pytest.mark.parametrize("victim,operation,count,watch", [(0, "all_reduce", 5000000, "pidfd"), (3, "gather", 100, "connection")])
def test_a_stopped_rank_is_named_in_the_time_out_with_where_each_one_is(victim, operation, count, watch):
    run(grid.rank_is_stopped, victim, operation, count, watch, DRAWS.uniform(0, 0.2))


def test_a_rank_that_makes_no_call_is_named_in_the_time_out():
    run(grid.rank_makes_no_call, 1, "pidfd")


def test_a_rank_that_left_is_named():
    run(grid.rank_leaves, 2, "connection")


def test_a_rank_in_a_container_of_its_own_is_watched_too():
    run(grid.rank_of_another_pid_namespace_is_killed, 1)


@pytest.mark.parametrize("kind", sorted(grid.DESYNCS))
def test_different_calls_are_reported_to_all_ranks(kind):
    run(grid.ranks_differ, kind, 2)


def test_abort_from_another_thread_ends_a_call_on_all_ranks():
    run(grid.one_thread_aborts, 1, "all_reduce", 5000000)


@pytest.mark.parametrize("operation", ["mixed", "message"])
def test_calls_without_a_fault_go_well_and_ranks_may_leave_in_any_order(operation):
    run(grid.calls_go_well, operation, 50000, "both")


def test_a_thousand_groups_leave_no_descriptor_open():
    run(grid.many_groups, 1000, "both")
