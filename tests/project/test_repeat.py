"""scripts/test-repeat: what it counts as consecutive, and what it records."""
import importlib.machinery
import importlib.util
import os

import pytest

from launching import TOP


@pytest.fixture(scope="module")
def repeat():
    loader = importlib.machinery.SourceFileLoader("test_repeat_script", os.path.join(TOP, "scripts", "test-repeat"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def row(commit="a", failed=0, load="none"):
    return {"commit": commit, "date": "2026-01-01", "load": load, "passed": 3, "failed": failed, "skipped": 0, "seconds": 9,
            "failed tests": "x::y" if failed else "-"}


@pytest.mark.parametrize("rows,quiet,loaded", [
    ([], 5, 5),
    ([row(), row(load="some")], 4, 4),
    # Runs of another commit do not count for this one, and do not interrupt it either.
    ([row(), row("b", failed=1), row()], 3, 5),
    # After a failure the count restarts.
    ([row(), row(load="some"), row(failed=1)], 5, 5),
    ([row()] * 10, 0, 5),
    ([row()] * 5 + [row(load="some")] * 5, 0, 0),
])
def test_a_series_goes_on_where_it_stopped(repeat, tmp_path, rows, quiet, loaded):
    path = str(tmp_path / "evidence" / "repeat.tsv")
    for one in rows:
        repeat.append(path, one)
    wanted = repeat.still_wanted(repeat.read_record(path), "a", 10, 5)
    assert (wanted.count(False), wanted.count(True)) == (quiet, loaded)


def test_failed_tests_are_named_without_folders(repeat, tmp_path):
    (tmp_path / "pytest-test_run.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.test_run" name="good"/><testcase classname="tests.test_run" name="bad[1]">'
        '<failure message="no"/></testcase></testsuite></testsuites>')
    (tmp_path / "ctest.xml").write_text('<testsuite><testcase name="Loop.Ends" status="fail"><failure message=""/></testcase></testsuite>')
    assert repeat.failed_tests(str(tmp_path)) == ["Loop.Ends", "test_run::bad[1]"]


def test_the_load_ends_with_its_block(repeat, monkeypatch):
    started = []
    original = repeat.subprocess.Popen

    def start(*arguments, **options):
        started.append(original(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(repeat.subprocess, "Popen", start)
    monkeypatch.setattr(repeat.os, "cpu_count", lambda: 1)
    with repeat.load(True):
        assert len(started) == repeat.BUSY_PER_CPU + repeat.WRITERS and all(process.poll() is None for process in started)
    assert all(process.poll() is not None for process in started)
