"""Whether every card works for its rank: the tricks of card_tricks.py that take longer, a card that becomes idle later,
and the training job. Takes a minute and a half."""
import json
import os
import re
import signal

import pytest

from cluster.launch import has_module
from grids import card_tricks
from launching import BUILD, FULLDECK, read, wait_until

with_torch = pytest.mark.skipif(not has_module("torch") or not os.path.exists(os.path.join(BUILD, "bin", "fulldeck-train")),
                                reason="this Python or this build has no torch")


@pytest.mark.parametrize("trick", [pytest.param(each, id=each.name, marks=with_torch if each.needs_torch else ())
                                   for each in card_tricks.TRICKS if not each.quick])
def test_the_verdict_is_right(workspace, trick):
    assert not trick.wrong(workspace)


def test_a_card_that_falls_idle_later_is_reported_once(workspace):
    workspace.simulate("gcu:2")
    path = os.path.join(workspace.folder, "events.jsonl")
    workspace.variables.update({"FULLDECK_EVENTS": path, "FULLDECK_TEST_LIB": os.path.join(BUILD, "lib")})
    running = workspace.start("--idle-card-after", 3, card_tricks.RANK, "burst", 100000, 50, 120)

    def later():
        return sorted(event["card"] for event in card_tricks.events_of(path) if event["id"] == "card-idle-later")
    wait_until(lambda: len(later()) >= 2 or not running.alive, "both cards fall idle", 60)
    assert later() == ["gcu 0", "gcu 1"], running.err
    running.signal(signal.SIGTERM)
    done = running.wait()
    assert done.code == 143 and later() == ["gcu 0", "gcu 1"], done


@with_torch
def test_the_training_job_counts_busy_cards_by_their_telemetry(workspace):
    seen = card_tricks.train("gcu:2,idle=1")(workspace)
    assert seen.cards_busy[-1] == 1 and max(seen.cards_busy) == 1, seen.cards_busy
    assert re.search(r"^\[0\] step 40/40 .* cards 1/2 busy", seen.done.out, re.M), seen.done


@with_torch
def test_on_the_cpu_the_training_job_counts_ranks_and_nothing_is_simulated(workspace):
    workspace.simulate("gcu:2")
    done = workspace.start_program([FULLDECK, "train", workspace.write("job.toml", card_tricks.JOB), "--devices", "cpu"]).wait(card_tricks.SECONDS)
    assert done.code == 0, done
    folder = os.path.join(workspace.folder, "work_dirs", "job")
    line = json.loads(read(os.path.join(folder, "metrics.jsonl")).splitlines()[0])
    assert line["ranks"] == 1 and "cards_busy" not in line
    assert re.search(r"^step 40/40 .* ranks 1/1", done.out, re.M), done
    assert "simulated" not in read(os.path.join(folder, "report.txt"))
