"""The bookkeeping of tests/grids/promises.py, and that the document quotes only measured values."""
import json
import os
import re

import pytest

from grids import promises
from launching import TOP

SOME = promises.Series("R2", "SIGSTOP: named", "named", "p99", 250, "ms", 100)
SOAK = promises.Series("Q3", "random faults: not handled, or other bits", "0 in an hour", "faults", 0, "faults", 500, seconds=3600)
FAULTS = promises.Series("R9", "ports held, stolen, 100 launches at once", "0 failures", "faults", 0, "faults", 300)
SHARE = promises.Series("R4", "hang in a C program: wrong rank or call named", "right in at least 99 %", "share", 1, "%", 100)


@pytest.mark.parametrize("series,values,tries,verdict", [
    (SOME, [10.0] * 100, None, "kept"),
    (SOME, [10.0] * 99, None, "too few runs"),
    (SOME, [10.0] * 99 + [300.0], None, "kept"),       # one in a hundred does not change the p99
    (SOME, [10.0] * 98 + [300.0] * 2, None, "not kept"),
    (SOME, [251.0], None, "not kept"),                  # a few runs are enough to break a promise
    (SOME, [], None, "too few runs"),
    (SOME, [10.0] * 199 + [None], None, "not kept"),    # a missing value does not count in a p99
    (FAULTS, [0], 300, "kept"),
    (FAULTS, [0], 299, "too few runs"),
    (FAULTS, [0, 1], 1000, "not kept"),
    (SHARE, [1], 100, "kept"),
    (SHARE, [2], 100, "not kept"),
])
def test_a_promise_fails_at_its_figure_and_is_kept_only_with_enough_runs(series, values, tries, verdict):
    assert promises.judge(series, values, tries)["verdict"] == verdict


def test_what_never_came_is_counted_as_later_than_everything_and_leaves_the_rest_of_the_series():
    row = promises.judge(SOME, [10.0] * 150 + [None, None])
    assert (row["n"], row["p50"], row["p99"], row["max"], row["missed"]) == (152, 10.0, None, None, 2)
    assert "Infinity" not in json.dumps(row)
    line, = [line for line in promises.table([row]).splitlines() if SOME.name in line]
    assert line.endswith("| 152 | 10.00 ms | never | never | not kept |")


def test_results_are_merged_by_series_in_the_order_of_the_table():
    old = [promises.judge(SOME, [1.0] * 100), promises.judge(FAULTS, [0], 300)]
    new = [promises.judge(SOME, [300.0] * 100)]
    rows = promises.merge(old[::-1], new)
    assert [(row["id"], row["verdict"]) for row in rows] == [("R2", "not kept"), ("R9", "kept")]


@pytest.mark.parametrize("seconds,verdict", [(3601, "kept"), (1440, "too few runs")])
def test_an_hour_is_promised_only_when_it_was_run(seconds, verdict):
    row = promises.judge(SOAK, [0], 800, seed=7, seconds=seconds)
    assert (row["verdict"], row["seed"], row["seconds"]) == (verdict, 7, seconds)
    # A row that was measured under a weaker promise is not quoted as kept either.
    line, = [line for line in promises.table([dict(row, verdict="kept")]).splitlines() if SOAK.name in line]
    assert line.endswith("| %s |" % verdict)


def test_the_row_of_a_soak_has_its_seed_and_its_seconds(monkeypatch):
    from grids import chaos

    def run(series, seconds):
        series.handled["rank-killed"] = 800

    monkeypatch.setattr(chaos, "PROGRAM", __file__)
    monkeypatch.setattr(chaos.Chaos, "run", run)
    row, = promises.measure("Q3", 0.4, {})
    assert (row["verdict"], row["n"], row["seconds"]) == ("too few runs", 800, 0) and chaos.Chaos(row["seed"], ["restart"]).kind_of(0) == "restart"


def test_a_million_calls_are_made_in_any_case_and_those_under_load_for_ten_minutes_at_most(monkeypatch):
    from grids import hang_grid

    asked = []

    def quiet(kind, steps, seconds, loaded):
        asked.append((loaded, seconds))
        return min(steps, 10000 if loaded else 10**9), [], [], []

    monkeypatch.setattr(hang_grid, "quiet", quiet)
    row, = promises.measure("Q1", 1, {})
    assert (row["verdict"], row["n"]) == ("kept", 1000000) and asked[0] == (True, 600) and [loaded for loaded, _ in asked] == [True, False]


@pytest.mark.parametrize("here", [True, False])
def test_r7_kills_both_processes_of_the_launcher_too_where_a_cgroup_can_be_made(monkeypatch, here):
    from grids import fault_grid

    def both_are_killed(workspace):
        if not here:
            raise fault_grid.NotHere("no cgroup can be made here")
        return {"R7": 0.04}

    monkeypatch.setattr(fault_grid, "both_are_killed", both_are_killed)
    monkeypatch.setattr(fault_grid, "launcher_is_killed", lambda workspace, victim, while_stopping: {"R7": 0.03})
    rows = {row["series"]: row for row in promises.measure("R7", 1, {})}
    assert rows["launcher killed: last survivor gone"]["verdict"] == "kept"
    both = rows["both processes of the launcher killed: last rank gone"]
    assert (both["verdict"], both["n"], both["max"]) == (("kept", 10, 40.0) if here else ("not measured here", 0, None))


def measure_all(monkeypatch, *arguments, changes=()):
    """main(), in a tree with these changes."""
    monkeypatch.setattr(promises, "machine", lambda: {})
    monkeypatch.setattr(promises, "uncommitted", lambda: list(changes))
    monkeypatch.setattr(promises.sys, "argv", ["promises.py"] + list(arguments))
    return promises.main()


def test_what_cannot_be_measured_here_replaces_what_was_kept_and_is_no_success(monkeypatch, tmp_path, capsys):
    def lacks_root(_):
        raise promises.NotHere("network namespaces need root")

    results = str(tmp_path / "results.json")
    links = next(series for series in promises.SERIES if series.id == "R10")
    promises.write_results(results, [promises.judge(SOME, [1.0] * 100), promises.judge(links, [1.0] * 100)])
    monkeypatch.setattr(promises, "why_not_idle", lambda: None)
    monkeypatch.setitem(promises.MEASURES, "R10", lacks_root)
    assert measure_all(monkeypatch, "--only", "R10", "--output", results) == 1
    assert "network namespaces need root" in capsys.readouterr().out
    found = {row["series"]: row for row in promises.read_results(results)}
    assert found[SOME.name]["verdict"] == "kept"
    for series in (one for one in promises.SERIES if one.id == "R10"):
        row = found[series.name]
        assert (row["verdict"], row["reason"], row["n"], row["max"]) == ("not measured here", "network namespaces need root", 0, None)
        assert "| %s | %s | – | – | – | – | not measured here |" % (series.name, series.promise) in promises.table(found.values())


def test_a_row_with_fewer_runs_than_its_promise_asks_for_by_now_is_not_quoted_as_kept():
    row = dict(promises.judge(FAULTS, [0], 300), n=299)
    assert row["verdict"] == "kept"
    line, = [line for line in promises.table([row]).splitlines() if FAULTS.name in line]
    assert line.endswith("| too few runs |")


def test_the_tries_of_cpp_tests_are_the_faults_that_they_recorded():
    report = {"testsuites": [{"testsuite": [{"name": "Some", "tries": "58"}, {"name": "InjectsNothing"}]}, {"testsuite": [{"name": "More", "tries": "2"}]}]}
    assert promises.recorded_tries(report) == 60
    with pytest.raises(AssertionError):
        promises.recorded_tries({"testsuites": [{"testsuite": [{"name": "InjectsNothing"}]}]})


def hung(kind, fault, seconds, waiting=None, times=1):
    from grids import hang_grid
    result = hang_grid.Result(kind, fault, 0)
    result.seconds, result.waiting = seconds, waiting
    return [result] * times


# Result of a run of all hangs if everything is as documented; seconds.
GOOD = (hung("c", "loop", 2.8, times=60) + hung("c", "stop", 2.8, times=60) + hung("c", "sleep", 11.0, 2.9, times=28) +
        hung("gloo", "deadlock", 2.8, times=56) + hung("gloo", "mismatch", 2.8, times=56) + hung("gloo", "stop", 2.8, times=28) +
        hung("gloo", "loop", 10.2, 2.9, times=28) + hung("gloo", "sleep", 11.1, 2.9, times=28))


@pytest.mark.parametrize("more,broken", [
    ([], set()),
    # A few that take as long as a sleeping rank, or that were not named.
    (hung("gloo", "deadlock", 10.9, times=3), {"stopped, deadlocked, mismatched in a plain torch script: verdict"}),
    (hung("gloo", "stop", 3.1, times=3), {"stopped, deadlocked, mismatched in a plain torch script: verdict"}),
    (hung("c", "deadlock", 3.1, times=3), {"stopped, deadlocked, spinning, mismatched in a C program: verdict"}),
    (hung("gloo", "loop", 11.1, 2.9), {"spinning in a plain torch script: verdict"}),
    (hung("gloo", "sleep", 11.9, 2.9), set()),
    (hung("gloo", "sleep", 12.1, 2.9), {"asleep in a plain torch script: verdict"}),
    (hung("c", "sleep", 12.1, 2.9), {"asleep in a C program: verdict"}),
    (hung("c", "sleep", 11.0, 3.1), {"hang in a C program: line of who waits for whom"}),
    (hung("gloo", "loop", 10.2, None), {"hang in a plain torch script: line of who waits for whom"}),
    (hung("gloo", "deadlock", 2.8, 3.1), {"hang in a plain torch script: line of who waits for whom"}),
    (hung("c", "loop", None), {"stopped, deadlocked, spinning, mismatched in a C program: verdict"}),
])
def test_each_kind_of_hang_is_held_to_its_own_time(more, broken):
    figures = promises.hang_times(GOOD + more)
    rows = [promises.row_of(series, figures[series.name]) for series in promises.SERIES if series.id == "R3"]
    assert {row["series"] for row in rows if row["verdict"] != "kept"} == broken


def test_one_kind_of_hangs_can_be_measured_alone_and_leaves_the_rows_of_the_other(monkeypatch):
    from grids import hang_grid

    made = []
    monkeypatch.setattr(hang_grid, "run_kind", lambda kind, repeats, results, seconds: made.append(kind))
    monkeypatch.setattr(promises, "crashes", lambda scale: pytest.fail("its ranks are C programs"))
    promises.hangs.cache_clear()
    rows = promises.measure("R3", 0.1, {}, ("gloo",)) + promises.measure("R4", 0.1, {}, ("gloo",))
    promises.hangs.cache_clear()
    assert made == ["gloo"] and len(rows) == 5 and all("plain torch script" in row["series"] for row in rows)
    others = [dict(row, series=row["series"].replace("a plain torch script", "a C program")) for row in rows if "asleep" in row["series"]]
    assert len(promises.merge(others, rows)) == 6


def test_the_hangs_of_two_promises_are_made_once(monkeypatch):
    from grids import hang_grid

    made = []
    monkeypatch.setattr(hang_grid, "run_kind", lambda kind, repeats, results, seconds: made.append(kind))
    monkeypatch.setattr(promises, "crashes", lambda scale: (promises.Tries(), [], []))
    monkeypatch.setattr(promises, "stops", lambda scale: (promises.Tries(), []))
    promises.hangs.cache_clear()
    promises.measure_r3(0.25)
    promises.measure_r4(0.25)
    promises.hangs.cache_clear()
    assert made == ["c", "gloo"]


@pytest.mark.parametrize("said,lost,verdict", [
    ("example-train: begins at step 30\n", 1, "kept"),
    ("example-train: begins at step 20\n", 2, "not kept"),
    ("example-train: begins at step 0\n", 4, "not kept"),   # its next checkpoint is still that of step 40
])
def test_intervals_lost_count_from_the_step_that_the_program_resumed_from(said, lost, verdict):
    series = next(series for series in promises.SERIES if series.name == "restart: checkpoint intervals lost")
    found = promises.intervals_lost(30, promises.resumed_step("fulldeck: rank 0/8\n" + said))
    assert found == lost and promises.judge(series, [found] * 20)["verdict"] == verdict


def test_a_program_that_does_not_say_where_it_begins_is_no_measurement():
    with pytest.raises(AssertionError):
        promises.resumed_step("fulldeck: rank 0/8\n")


def test_which_rank_was_notified_first_is_read_from_the_clocks_of_the_ranks():
    assert promises.first_notified(["", "2500000000 17\n", "2400000000 18\n"]) == 2.4
    for notes in (["", ""], ["yes\n"]):
        with pytest.raises(AssertionError):
            promises.first_notified(notes)


def test_every_promise_has_a_measure_and_every_series_a_name_of_its_own():
    assert set(promises.MEASURES) == set(promises.IDS)
    assert promises.IDS == (["R%d" % n for n in range(1, 12)] + ["C%d" % n for n in range(1, 7)] + ["S1", "S2", "S3"] + ["Q1", "Q2", "Q3", "Q4"])
    assert len({(series.id, series.name) for series in promises.SERIES}) == len(promises.SERIES)


def test_the_document_quotes_the_measured_figures():
    with open(promises.DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    quoted = text.split(promises.BEGIN)[1].split(promises.END)[0].strip("\n") + "\n"
    assert quoted == promises.table(promises.read_results(promises.RESULTS)), "write it with: tests/grids/promises.py --table"


def test_the_evidence_says_on_which_machine_and_commit_and_not_where():
    text = open(promises.RESULTS, encoding="utf-8").read()
    for row in json.loads(text)["results"]:
        assert re.fullmatch("[0-9a-f]{12}", row["commit"]) and set(row["machine"]) == {"cores", "kernel", "machine", "floor_kill_to_wait_ms"}
        assert row["verdict"] in promises.VERDICTS and "loaded" not in row
        assert ("reason" in row) == (row["verdict"] == promises.NOT_HERE)
    assert os.uname().nodename not in text and TOP not in text and "/home" not in text


def test_a_machine_that_is_busy_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(promises, "why_not_idle", lambda: "somebody computes")
    monkeypatch.setattr(promises, "measure", lambda *_: pytest.fail("it measured"))
    assert measure_all(monkeypatch, "--only", "R2") == 2
    assert "--loaded" in capsys.readouterr().err


def test_what_was_measured_while_the_machine_became_busy_is_not_recorded(monkeypatch, tmp_path, capsys):
    results = str(tmp_path / "results.json")
    looks = iter([None, "somebody computes", None, None])
    monkeypatch.setattr(promises, "why_not_idle", lambda: next(looks))
    monkeypatch.setitem(promises.MEASURES, "R2", lambda scale: {"SIGSTOP: named": ([1.0] * 100, None)})
    monkeypatch.setitem(promises.MEASURES, "Q4", lambda scale: {"crash loop: not ended after 3 cycles with its code": ([0], 10)})
    assert measure_all(monkeypatch, "--only", "R2,Q4", "--output", results) == 2
    assert [row["id"] for row in promises.read_results(results)] == ["Q4"]
    assert "R2 is not recorded" in capsys.readouterr().err


def test_figures_of_a_busy_machine_are_marked_and_never_written_where_the_docs_read(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(promises, "why_not_idle", lambda: "somebody computes")
    monkeypatch.setitem(promises.MEASURES, "R2", lambda scale: {"SIGSTOP: named": ([1.0] * 100, None)})
    link = str(tmp_path / "link.json")
    os.symlink(promises.RESULTS, link)
    for output in ([], ["--output", promises.RESULTS], ["--output", os.path.relpath(promises.RESULTS)], ["--output", link]):
        with pytest.raises(SystemExit):
            measure_all(monkeypatch, "--only", "R2", "--loaded", *output)
    assert "idle machine only" in capsys.readouterr().err
    results = str(tmp_path / "results.json")
    assert measure_all(monkeypatch, "--only", "R2", "--loaded", "--output", results, changes=["src/a.cc"]) == 0
    row, = promises.read_results(results)
    assert row["loaded"] is True and row["commit"].endswith("-changed")


def test_a_tree_with_changes_is_refused_since_rows_name_a_commit(monkeypatch, capsys):
    monkeypatch.setattr(promises, "measure", lambda *_: pytest.fail("it measured"))
    assert measure_all(monkeypatch, "--only", "R2", changes=["src/a.cc"]) == 2
    assert "src/a.cc" in capsys.readouterr().err


def test_evidence_and_the_table_that_is_written_here_are_no_changes(tmp_path):
    def write(path, text):
        os.makedirs(os.path.dirname(str(tmp_path / path)), exist_ok=True)
        (tmp_path / path).write_text(text)

    def document(before, table):
        write("docs/reliability.md", "\n".join([before, promises.BEGIN, table, promises.END, "after"]))

    promises.git(str(tmp_path), "init", "-q")
    document("before", "| old |")
    write("docs/evidence/promises.json", "{}")
    write("src/a.cc", "int a;")
    promises.git(str(tmp_path), "add", "-A")
    promises.git(str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "all")
    assert promises.uncommitted(str(tmp_path)) == []
    document("before", "| new |")
    write("docs/evidence/promises.json", "[]")
    write("docs/evidence/more.tsv", "")
    assert promises.uncommitted(str(tmp_path)) == []
    document("other words", "| new |")
    write("src/new name.cc", "")
    assert sorted(promises.uncommitted(str(tmp_path))) == ["docs/reliability.md", "src/new name.cc"]
    document("before", "| new |")
    os.unlink(str(tmp_path / "src/a.cc"))
    assert sorted(promises.uncommitted(str(tmp_path))) == ["src/a.cc", "src/new name.cc"]
