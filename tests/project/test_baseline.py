"""scripts/baseline, with build folders whose only program is a shell script."""
import json
import os
import subprocess
import sys

from launching import TOP

FULLDECK = """#!/bin/sh
case "$*" in
  --help) printf 'Subcommands:\\n  devices  Show the cards\\n' ;;
  "devices --help") echo "%s, one line each" ;;
  *) echo "$0: no run is running" >&2; exit 2 ;;
esac
"""


def build(folder, text):
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "fulldeck").write_text(FULLDECK % text)
    (folder / "bin" / "fulldeck").chmod(0o755)
    return str(folder)


def baseline(*arguments):
    return subprocess.run([sys.executable, os.path.join(TOP, "scripts", "baseline")] + list(arguments), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=300)


def test_equal_builds_in_other_folders_are_equal_and_a_changed_help_text_is_named(tmp_path):
    file = str(tmp_path / "baseline.json")
    assert baseline("capture", build(tmp_path / "first", "cards"), file).returncode == 0
    with open(file) as stream:
        entries = json.load(stream)
    assert entries["fulldeck devices --help"] == "exit code 0\ncards, one line each\n"
    assert entries["fulldeck ps"] == "exit code 2\n--- stderr\n<build>/bin/fulldeck: no run is running\n"
    assert entries["demo job"] == "no fulldeck-train in this build"

    same = baseline("compare", file, build(tmp_path / "second", "cards"))
    assert (same.returncode, same.stdout) == (0, "0 of %d entries differ\n" % len(entries)), same

    other = baseline("compare", file, build(tmp_path / "third", "devices"))
    lines = other.stdout.splitlines()
    assert other.returncode == 1 and [line for line in lines if line.startswith("===")] == ["=== fulldeck devices --help"], other
    assert "-cards, one line each" in lines and "+devices, one line each" in lines
    assert lines[-1] == "1 of %d entries differ" % len(entries)


def test_an_entry_that_only_one_side_has_differs_and_what_cannot_run_is_no_difference(tmp_path):
    file = tmp_path / "baseline.json"
    file.write_text('{"gone": "text"}')
    done = baseline("compare", str(file), build(tmp_path / "build", "cards"))
    assert done.returncode == 1 and "=== gone: not in " + str(tmp_path / "build") in done.stdout, done
    for arguments in (["compare", str(file), str(tmp_path)], ["compare", str(tmp_path / "absent.json"), str(tmp_path / "build")], ["capture"]):
        done = baseline(*arguments)
        assert done.returncode == 2 and "error: " in done.stderr, done
