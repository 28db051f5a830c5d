"""events.jsonl: written for every run, and documented per id (docs/events.md)."""
import collections
import glob
import json
import os
import re
import signal
import stat

from launching import TOP, read, wait_until


def test_a_run_writes_its_events_in_order_to_its_folder_and_to_the_file_that_is_named(workspace):
    named = os.path.join(workspace.folder, "named.jsonl")
    assert workspace.run_shell(2, "exit 0", extra={"FULLDECK_EVENTS": named}).code == 0
    own = workspace.events()
    assert [event["id"] for event in own][0] == "run-started"
    assert [event["id"] for event in own][-1] == "run-finished"
    assert own[0]["local_ranks"] == 2 and own[0]["on_cards"] is False
    assert own[-1]["exit_code"] == 0
    assert [event["monotonic_ns"] for event in own] == sorted(event["monotonic_ns"] for event in own)
    assert all(event["version"] == 1 and event["message"] for event in own)
    assert [json.loads(line) for line in read(named).splitlines()] == own


def test_only_the_owner_can_read_events(workspace):
    workspace.run_shell(1, "exit 0")
    assert stat.S_IMODE(os.stat(os.path.join(workspace.run_folder(), "events.jsonl")).st_mode) == 0o600


def test_a_file_that_cannot_be_opened_is_refused_before_any_rank_starts(workspace):
    done = workspace.run_shell(1, "touch started", extra={"FULLDECK_EVENTS": os.path.join(workspace.folder, "no", "such.jsonl")})
    assert done.code == 88
    assert not os.path.exists(os.path.join(workspace.folder, "started"))


def test_a_full_disk_ends_the_record_and_not_the_run(workspace):
    done = workspace.run_shell(1, "exit 0", extra={"FULLDECK_EVENTS": "/dev/full"})
    assert done.code == 0
    assert workspace.events("run-finished")


def test_a_stopped_rank_and_its_restart_are_events(workspace):
    run = workspace.start_shell(2, '[ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && { kill -STOP $$; exit 3; }; '
                               'while [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; do sleep 0.05; done; exit 0', "--max-restarts", 1)
    pid = wait_until(lambda: workspace.started and glob.glob(workspace.runs + "/*/events.jsonl") and workspace.events("rank-stopped"),
                     "the stop")[0]["pid"]
    os.kill(pid, signal.SIGCONT)
    assert run.wait().code == 0
    stopped, = workspace.events("rank-stopped")
    assert stopped["rank"] == 1 and stopped["severity"] == "warning" and stopped["attempt"] == 0
    assert workspace.events("restart")[0]["number"] == 1
    assert workspace.events("run-finished")[0]["attempt"] == 1


# ---- docs/events.md against the sources

# An Event is written as {"the-id", Severity::kX or events::Severity::kX, {fields}, …}, or its id and fields are
# assigned one by one.
EVENT = re.compile(r'\{\s*"([a-z]+(?:-[a-z]+)*)",\s*((?:\w+ \? )?(?:events::)?(?:Severity::|severity)[\w :]*),\s*')
ID = re.compile(r'\bevent\.id = "([a-z-]+)"')
SET = re.compile(r'\bfields\.Set\("(\w+)"')
# Fields of every event; the first table.
OF_ALL = {"version", "time", "monotonic_ns", "id", "severity", "attempt", "message"}


def in_braces(text, begin):
    """The text between the braces at `begin`, with strings skipped."""
    depth = 0
    for match in re.compile(r'"(?:\\.|[^"\\])*"|[{}]').finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return text[begin + 1:match.start()]
    raise AssertionError("no end of the braces: " + text[begin:begin + 200])


def functions():
    """The text of every function in the sources: it ends with a brace in the first column."""
    for path in glob.glob(os.path.join(TOP, "src", "**", "*.cc"), recursive=True):
        if not path.endswith("_test.cc"):
            yield from read(path).split("\n}\n")


def reported():
    """{id: (fields, severities)} as the sources report it; variable severities are not included."""
    texts = list(functions())
    makers = {name: text for text in texts for name in re.findall(r"^events::(?:Event|Fields) (?:\w+::)*(\w+)\(", text, re.M)}

    def set_in(text):
        fields, severities = set(SET.findall(text)), set(re.findall(r"event\.severity = (?:events::)?Severity::k(\w+)", text))
        for name in re.findall(r"= (?:\w+::)*(\w+)\(", text):
            if name in makers:
                more = set_in(makers[name])
                fields, severities = fields | more[0], severities | more[1]
        return fields, severities

    found = collections.defaultdict(lambda: (set(), set()))

    def add(name, fields, severities):
        found[name][0].update(fields)
        found[name][1].update(severity.lower() for severity in severities)

    for text in texts:
        for match in EVENT.finditer(text):
            inside = in_braces(text, match.end())
            add(match.group(1), re.findall(r'\{"(\w+)",', inside) if inside else set_in(text)[0], re.findall(r"Severity::k(\w+)", match.group(2)))
        for name in ID.findall(text):
            add(name, *set_in(text))
    return found


def documented():
    """{id: (fields, severities)} as docs/events.md has it. Values of a field are in parentheses; "as `other`" inherits
    its fields, and "less `one` and `two`" removes some."""
    found = {}
    for name, severities, cell in re.findall(r"^\| `([a-z-]+)` \| ([a-z, ]+) \|([^|]*)\|", read(os.path.join(TOP, "docs", "events.md")), re.M):
        cell = re.sub(r"\([^)]*\)", "", cell)
        fields = set()
        for other, less in re.findall(r"as `([a-z-]+)`(?: less ((?:`\w+`(?:, | and )?)+))?", cell):
            fields |= found[other][0] - set(re.findall(r"`(\w+)`", less))
        rest = re.sub(r"as `[a-z-]+`(?: less (?:`\w+`(?:, | and )?)+)?", "", cell)
        found[name] = (fields | set(re.findall(r"`(\w+)`", rest)), set(severities.split(", ")))
    return found


def test_every_id_that_the_sources_report_is_documented():
    assert set(reported()) == set(documented())


def test_every_field_that_the_sources_report_is_documented_and_no_other():
    sources, document = reported(), documented()
    assert {name: sorted(fields) for name, (fields, _) in sources.items()} == {name: sorted(fields) for name, (fields, _) in document.items()}
    assert not any(fields & OF_ALL for fields, _ in sources.values())


def test_no_event_has_a_severity_that_is_not_documented():
    document = documented()
    for name, (_, severities) in reported().items():
        assert severities <= document[name][1], name
