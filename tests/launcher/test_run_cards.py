"""Ranks on simulated cards: placement, leases between runs, and the reported use of the cards."""
import os
import re
import signal

import pytest

from launching import BUILD, PROGRAMS, TOP, children_of, read, variables_of, wait_until

SHOW = 'echo "$RANK $FULLDECK_DEVICE $FULLDECK_CARD_SERIAL $TOPS_VISIBLE_DEVICES" >> cards'
HOLD = 'touch ready-$RANK; exec sleep 60'
USE_OWN = 'exec %s $LOCAL_RANK 1048576' % os.path.join(PROGRAMS, "use_simulated_card")
USE_FIRST = 'exec %s 0 1048576' % os.path.join(PROGRAMS, "use_simulated_card")


def cards(workspace):
    """By rank: device, serial, visible list."""
    rows = [line.split(" ") for line in read(os.path.join(workspace.folder, "cards")).splitlines()]
    return {int(row[0]): row[1:] for row in rows}


def none_ran(workspace):
    return not os.path.exists(os.path.join(workspace.folder, "cards")) and not os.path.exists(workspace.runs)


def start_holding(workspace, count, *flags):
    running = workspace.start_shell(count, HOLD, *flags)
    wait_until(lambda: not running.alive or all(os.path.exists(os.path.join(workspace.folder, "ready-%d" % rank))
                                                for rank in range(count)), "%d ranks" % count)
    assert running.alive, running.err
    return running


def stop(running):
    running.signal(signal.SIGTERM)
    assert running.wait(20).code == 143


# ---- placement

def test_without_a_number_there_is_one_rank_a_card_each_with_its_own(workspace):
    workspace.simulate("gcu:8")
    done = workspace.run("--no-python", "/bin/sh", "-c", SHOW)
    assert done.code == 0, done
    seen = cards(workspace)
    assert sorted(seen) == list(range(8))
    assert [seen[rank][0] for rank in range(8)] == ["gcu:%d" % rank for rank in range(8)]
    assert len({seen[rank][1] for rank in range(8)}) == 8
    # Reported before the start, and in the first line of each rank's own file.
    for rank in range(8):
        assert re.search(r"local rank %d: gcu %d \(serial %s\) simulated" % (rank, rank, seen[rank][1]), done.ours)
        assert seen[rank][1] in workspace.log(rank).splitlines()[0]


def test_ranks_on_cards_get_what_the_vendor_needs(workspace):
    workspace.simulate("gcu:2")
    done = workspace.run("--no-python", "/bin/sh", "-c", 'echo "$ECCL_BACKEND/$ECCL_DEVICE_TYPE/$ACCELERATE_USE_CPU" > env-$RANK')
    assert done.code == 0, done
    backend, device, cpu = read(os.path.join(workspace.folder, "env-1")).strip().split("/")
    assert backend and device and cpu == ""


def test_more_ranks_than_cards_is_refused_and_both_ways_out_are_named(workspace):
    """B8: two ranks would share a card."""
    workspace.simulate("gcu:8")
    done = workspace.run_shell(9, SHOW)
    assert done.code == 83 and "--share-cards" in done.err and "--devices cpu" in done.err, done
    assert none_ran(workspace)
    assert workspace.run_shell(9, SHOW, "--devices", "cpu").code == 0
    assert len(cards(workspace)) == 9 and cards(workspace)[8][0] == ""


def test_cards_can_be_shared_on_request(workspace):
    workspace.simulate("gcu:2")
    assert workspace.run_shell(4, SHOW, "--share-cards").code == 0
    assert len({row[1] for row in cards(workspace).values()}) == 2


def test_named_cards_come_in_that_order_and_local_rank_is_their_index(workspace):
    workspace.simulate("gcu:8")
    done = workspace.run("--devices", "6,2", "--no-python", "/bin/sh", "-c", SHOW)
    assert done.code == 0, done
    seen = cards(workspace)
    assert [seen[rank][0] for rank in (0, 1)] == ["gcu:0", "gcu:1"]
    assert seen[0][2] == "6,2" and "TOPS_VISIBLE_DEVICES=6,2" in done.ours


def test_the_users_visible_list_is_kept(workspace):
    workspace.simulate("gcu:8")
    done = workspace.run("--no-python", "/bin/sh", "-c", SHOW, extra={"TOPS_VISIBLE_DEVICES": "1,3,5"})
    assert done.code == 0, done
    seen = cards(workspace)
    assert sorted(seen) == [0, 1, 2] and {row[2] for row in seen.values()} == {"1,3,5"}


@pytest.mark.parametrize("devices", ["9,", "0,0", "0,8", "npu", "flying-carpet", ""])
def test_cards_that_are_not_there_are_refused(workspace, devices):
    workspace.simulate("gcu:8")
    done = workspace.run("--devices", devices, "--no-python", "/bin/sh", "-c", SHOW)
    assert done.code in (2, 83) and done.err.startswith("fulldeck: error: "), done
    assert none_ran(workspace)


def test_a_card_that_fell_off_the_bus_is_not_used_silently(workspace):
    workspace.simulate("gcu:4,dropped=2")
    done = workspace.run_shell(4, SHOW)
    assert done.code == 83, done
    assert none_ran(workspace)


# ---- leases

def test_a_second_run_is_refused_with_the_owner_or_gets_the_free_cards(workspace):
    workspace.simulate("gcu:8")
    first = start_holding(workspace, 5, "--rdzv-id", workspace.name)
    refused = workspace.run_shell(4, SHOW)
    assert refused.code == 83 and workspace.name in refused.err and "--share-leases" in refused.err, refused
    assert not os.path.exists(os.path.join(workspace.folder, "cards"))

    second = workspace.run_shell(3, SHOW)
    assert second.code == 0, second
    seen = cards(workspace)
    assert {row[2] for row in seen.values()} == {"5,6,7"} and [seen[rank][0] for rank in range(3)] == ["gcu:0", "gcu:1", "gcu:2"]
    first_serials = {variables_of(pid)["FULLDECK_CARD_SERIAL"] for pid in workspace.ranks().values()}
    assert len(first_serials) == 5 and not first_serials & {row[1] for row in seen.values()}
    stop(first)


def test_without_a_number_a_second_run_takes_what_is_free_and_says_so(workspace):
    workspace.simulate("gcu:4")
    first = start_holding(workspace, 3, "--rdzv-id", workspace.name)
    second = workspace.run("--no-python", "/bin/sh", "-c", SHOW)
    assert second.code == 0 and len(cards(workspace)) == 1 and workspace.name in second.ours, second
    stop(first)


def test_cards_of_another_run_can_be_used_on_request(workspace):
    workspace.simulate("gcu:2")
    first = start_holding(workspace, 2)
    assert workspace.run_shell(2, SHOW, "--share-leases").code == 0
    stop(first)


def test_leases_end_with_a_run_that_was_killed(workspace):
    workspace.simulate("gcu:2")
    first = start_holding(workspace, 2)
    supervisor, = children_of(first.pid)
    os.kill(supervisor, signal.SIGKILL)
    first.wait(20)
    assert workspace.run_shell(2, SHOW).code == 0


# ---- card usage; test_card_usage.py tests the verdicts themselves

def events(workspace, *ids):
    """Of the only run; none before it has a folder."""
    return [event for event in (workspace.events() if os.path.exists(workspace.runs) and os.listdir(workspace.runs) else []) if event["id"] in ids]


def wait_for_events(workspace, running, count, *ids):
    wait_until(lambda: not running.alive or len(events(workspace, *ids)) >= count, "%d of %r" % (count, ids), 60)
    assert running.alive, running.err
    return events(workspace, *ids)


def test_every_card_at_work_is_reported_while_the_run_goes_on(workspace):
    workspace.simulate("gcu:4")
    running = workspace.start_shell(4, USE_OWN)
    usage, = wait_for_events(workspace, running, 1, "card-usage")
    assert usage["when"] == "running" and usage["busy"] == ["gcu 0", "gcu 1", "gcu 2", "gcu 3"], usage
    stop(running)


def test_an_idle_card_is_named_and_ends_the_run_when_that_was_asked_for(workspace):
    """B6: the model is on the CPU."""
    workspace.simulate("gcu:4,idle=3")
    done = workspace.run_shell(4, USE_OWN, "--idle-card", "fail", "--idle-card-after", 3)
    assert done.code == 86, done
    verdict, = events(workspace, "card-idle")
    assert verdict["card"] == "gcu 3" and verdict["ranks"] == [3] and verdict["reason"] == "no-work", verdict


def test_a_script_that_ignores_local_rank_is_found_out(workspace):
    """B8: all ranks compute on the first card."""
    workspace.simulate("gcu:3")
    running = workspace.start_shell(3, USE_FIRST, "--idle-card-after", 3)
    found = wait_for_events(workspace, running, 2, "card-idle")
    assert {(event["card"], event["reason"], event["works_on"]) for event in found} == {
        ("gcu 1", "rank-on-other-card", "gcu 0"), ("gcu 2", "rank-on-other-card", "gcu 0")}, found
    stop(running)


@pytest.mark.parametrize("policy", ["fail", "require"])
@pytest.mark.parametrize("how", ["run", "cpu", "train"])
def test_a_run_that_must_prove_its_cards_does_not_start_without_any(workspace, how, policy):
    workspace.devices = []
    # Cards that this machine may have are hidden: none is found.
    hidden = {name: "" for name in ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "TOPS_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES")}
    if how == "train":
        if not os.path.exists(os.path.join(BUILD, "bin", "fulldeck-train")):
            pytest.skip("this build has no torch")
        done = workspace.fulldeck("train", os.path.join(TOP, "configs", "demo.toml"), "--idle-card", policy, extra=hidden)
    else:
        count = "cpu" if how == "cpu" else 1
        done = workspace.run("--idle-card", policy, "--nproc-per-node", count, "--no-python", "--", "touch", "started", extra=hidden)
    assert done.code == 83 and "--idle-card {} cannot be kept: no card".format(policy) in done.ours, done
    assert not os.path.exists(os.path.join(workspace.folder, "started")), done


def test_watching_the_cards_can_be_turned_off(workspace):
    workspace.simulate("gcu:2")
    running = start_holding(workspace, 2, "--idle-card", "off")
    # No process monitors the cards.
    supervisor, = children_of(running.pid)
    assert sorted(children_of(supervisor)) == sorted(workspace.ranks().values())
    stop(running)
    assert not events(workspace, "card-usage")


def test_no_card_is_called_idle_when_nobody_watched(workspace):
    workspace.simulate("gcu:2")
    running = start_holding(workspace, 2, "--idle-card", "fail", "--idle-card-after", 2)
    supervisor, = children_of(running.pid)
    watch, = wait_until(lambda: set(children_of(supervisor)) - set(workspace.ranks().values()), "the watch")
    os.kill(watch, signal.SIGKILL)
    wait_for_events(workspace, running, 1, "card-watch-ended")
    stop(running)
    usage, = events(workspace, "card-usage")
    assert usage["unknown"] == ["gcu 0", "gcu 1"] and not events(workspace, "card-idle"), usage
