"""The bookkeeping of tests/promises.py, and that the document quotes what was measured and nothing else."""
import json
import os
import re

import pytest

import promises
from launching import TOP

SOME = promises.Series("R2", "SIGSTOP: named", "named", "p99", 250, "ms", 100)
FAULTS = promises.Series("R9", "ports held, stolen, 100 launches at once", "0 failures", "faults", 0, "faults", 300)
SHARE = promises.Series("R4", "hang: wrong rank or call named", "right in at least 99 %", "share", 1, "%", 100)


@pytest.mark.parametrize("series,values,tries,verdict", [
    (SOME, [10.0] * 100, None, "kept"),
    (SOME, [10.0] * 99, None, "too few runs"),
    (SOME, [10.0] * 99 + [300.0], None, "kept"),       # one of a hundred is the p99's to give
    (SOME, [10.0] * 98 + [300.0] * 2, None, "not kept"),
    (SOME, [251.0], None, "not kept"),                  # few runs are enough to break a promise
    (SOME, [], None, "too few runs"),
    (FAULTS, [0], 300, "kept"),
    (FAULTS, [0], 299, "too few runs"),
    (FAULTS, [0, 1], 1000, "not kept"),
    (SHARE, [1], 100, "kept"),
    (SHARE, [2], 100, "not kept"),
])
def test_a_promise_fails_at_its_figure_and_is_kept_only_with_enough_runs(series, values, tries, verdict):
    assert promises.judge(series, values, tries)["verdict"] == verdict


def test_results_are_merged_by_series_in_the_order_of_the_table():
    old = [promises.judge(SOME, [1.0] * 100), promises.judge(FAULTS, [0], 300)]
    new = [promises.judge(SOME, [300.0] * 100)]
    rows = promises.merge(old[::-1], new)
    assert [(row["id"], row["verdict"]) for row in rows] == [("R2", "not kept"), ("R9", "kept")]


def test_every_promise_has_a_measure_and_every_series_a_name_of_its_own():
    assert set(promises.MEASURES) == set(promises.IDS)
    assert promises.IDS == (["R%d" % n for n in range(1, 12)] + ["C%d" % n for n in range(1, 7)] + ["S1", "S2", "S3"] + ["Q1", "Q2", "Q3", "Q4"])
    assert len({(series.id, series.name) for series in promises.SERIES}) == len(promises.SERIES)


def test_the_document_quotes_the_measured_figures():
    with open(promises.DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    quoted = text.split(promises.BEGIN)[1].split(promises.END)[0].strip("\n") + "\n"
    assert quoted == promises.table(promises.read_results(promises.RESULTS)), "write it with: tests/promises.py --table"


def test_the_evidence_says_on_which_machine_and_commit_and_not_where():
    text = open(promises.RESULTS, encoding="utf-8").read()
    for row in json.loads(text)["results"]:
        assert re.fullmatch("[0-9a-f]{12}", row["commit"]) and set(row["machine"]) == {"cores", "kernel", "machine", "floor_kill_to_wait_ms"}
        assert row["verdict"] in ("kept", "not kept", "too few runs")
    assert os.uname().nodename not in text and TOP not in text and "/home" not in text


def test_a_machine_that_is_busy_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(promises, "why_not_idle", lambda: "somebody computes")
    monkeypatch.setattr(promises, "measure", lambda *_: pytest.fail("it measured"))
    monkeypatch.setattr(promises.sys, "argv", ["promises.py", "--only", "R2"])
    assert promises.main() == 2
    assert "--loaded" in capsys.readouterr().err
