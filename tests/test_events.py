"""events.jsonl: written for every run, and documented id by id (docs/events.md)."""
import glob
import json
import os
import re
import signal
import stat

from launching import TOP, read, wait_until


def test_a_run_writes_its_events_in_order_to_its_folder_and_to_the_file_that_is_named(place):
    named = os.path.join(place.folder, "named.jsonl")
    assert place.run_shell(2, "exit 0", extra={"FULLDECK_EVENTS": named}).code == 0
    own = place.events()
    assert [event["id"] for event in own][0] == "run-started"
    assert [event["id"] for event in own][-1] == "run-finished"
    assert own[0]["local_ranks"] == 2 and own[0]["on_cards"] is False
    assert own[-1]["exit_code"] == 0
    assert [event["monotonic_ns"] for event in own] == sorted(event["monotonic_ns"] for event in own)
    assert all(event["version"] == 1 and event["message"] for event in own)
    assert [json.loads(line) for line in read(named).splitlines()] == own


def test_only_the_owner_can_read_events(place):
    place.run_shell(1, "exit 0")
    assert stat.S_IMODE(os.stat(os.path.join(place.run_folder(), "events.jsonl")).st_mode) == 0o600


def test_a_file_that_cannot_be_opened_is_refused_before_any_rank_starts(place):
    done = place.run_shell(1, "touch started", extra={"FULLDECK_EVENTS": os.path.join(place.folder, "no", "such.jsonl")})
    assert done.code == 88
    assert not os.path.exists(os.path.join(place.folder, "started"))


def test_a_full_disk_ends_the_record_and_not_the_run(place):
    done = place.run_shell(1, "exit 0", extra={"FULLDECK_EVENTS": "/dev/full"})
    assert done.code == 0
    assert place.events("run-finished")


def test_a_stopped_rank_and_its_restart_are_events(place):
    run = place.start_shell(2, '[ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && { kill -STOP $$; exit 3; }; '
                               'while [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; do sleep 0.05; done; exit 0', "--max-restarts", 1)
    pid = wait_until(lambda: place.started and glob.glob(place.runs + "/*/events.jsonl") and place.events("rank-stopped"),
                     "the stop")[0]["pid"]
    os.kill(pid, signal.SIGCONT)
    assert run.wait().code == 0
    stopped, = place.events("rank-stopped")
    assert stopped["rank"] == 1 and stopped["severity"] == "warning" and stopped["attempt"] == 0
    assert place.events("restart")[0]["number"] == 1
    assert place.events("run-finished")[0]["attempt"] == 1


def test_every_id_that_the_sources_report_is_documented():
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", read(os.path.join(TOP, "docs", "events.md")), re.M))
    documented -= {"version", "time", "monotonic_ns", "id", "severity", "attempt", "message"}
    reported = set()
    for path in glob.glob(os.path.join(TOP, "src", "**", "*.cc"), recursive=True):
        if not path.endswith("_test.cc"):
            # An Event is written as {"the-id", Severity::kX or events::Severity::kX, …}, or its id is assigned.
            reported.update(re.findall(r'\{\s*"([a-z]+(?:-[a-z]+)*)",\s*(?:\w+ \? )?(?:events::)?(?:Severity::|severity)', read(path)))
            reported.update(re.findall(r'\bevent\.id = "([a-z-]+)"', read(path)))
    assert reported == documented
