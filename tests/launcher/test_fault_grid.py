"""A dozen cells of the fault grid; `make fault-grid` runs all of them, many times."""
import pytest

from grids import fault_grid


def run(cell, *arguments):
    try:
        cell(*arguments)
    except fault_grid.NotHere as reason:
        pytest.skip(str(reason))


# Covers every fault, every rank and every phase of the long grid once.
@pytest.mark.parametrize("fault,rank,phase", [("kill", 0, "collective"), ("segv", 1, "init"), ("abort", 4, "checkpoint"),
                                              ("exit:1", 7, "teardown")])
def test_a_rank_that_dies_is_named_and_everything_ends(workspace, fault, rank, phase):
    run(fault_grid.rank_dies, workspace, fault, rank, phase)


def test_what_ranks_started_ends_with_them_even_if_it_is_deaf_to_sigterm(workspace):
    run(fault_grid.rank_dies_with_company, workspace, "kill", 4, "collective")


def test_ranks_that_fork_when_they_are_asked_to_end_do_not_escape(workspace):
    run(fault_grid.rank_dies_and_others_fork, workspace, "exit:1", 7, "collective")


@pytest.mark.parametrize("rank,phase", [(0, "init"), (4, "collective")])
def test_a_rank_that_is_stopped_is_named_and_may_go_on(workspace, rank, phase):
    run(fault_grid.rank_stops, workspace, rank, phase)


def test_a_stopped_rank_can_save_when_the_run_is_stopped(workspace):
    run(fault_grid.stopped_rank_is_stopped_with_the_run, workspace)


@pytest.mark.parametrize("victim,while_stopping", [("front", False), ("supervisor", False), ("front", True)])
def test_nothing_survives_the_launcher_and_its_port_is_free_again(workspace, victim, while_stopping):
    run(fault_grid.launcher_is_killed, workspace, victim, while_stopping)


def test_what_survives_both_processes_of_the_launcher_is_ended_by_stop(workspace):
    run(fault_grid.both_are_killed, workspace)


def test_out_of_memory_is_said_with_limit_and_peak(workspace):
    run(fault_grid.out_of_memory, workspace)


def test_a_kill_is_not_taken_for_out_of_memory(workspace):
    run(fault_grid.killed_but_not_for_memory, workspace)


def test_the_port_of_rank_0_cannot_be_stolen(workspace):
    run(fault_grid.port_cannot_be_stolen, workspace)


@pytest.mark.parametrize("by_user", [False, True])
def test_the_launcher_ends_and_names_a_rank_that_cannot_be_killed(workspace, by_user):
    run(fault_grid.rank_cannot_be_killed, workspace, by_user)


def test_a_crash_loop_ends_after_three_attempts(workspace):
    run(fault_grid.crash_loop, workspace)
