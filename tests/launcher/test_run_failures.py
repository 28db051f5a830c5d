"""Failing ranks: exit codes, root cause, the report, restarts."""
import concurrent.futures
import json
import os
import re
import shutil
import signal

import pytest

from launching import FULLDECK, HERE, PROGRAMS, free_port, read, wait_until

BOARD_WRITER = os.path.join(PROGRAMS, "board_writer")


# ---- exit codes

def test_all_exit_codes_are_reported_and_passed_on(workspace):
    """C6: a failed rank never counts as a finished run."""
    def launch(code):
        return code, workspace.run_shell(1, "exit %d" % code, "--no-agent")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for code, done in pool.map(launch, range(256)):
            assert done.code == code, done
            assert bool(done.root_cause) == (code != 0), done
            if code != 0:
                assert re.search(r"root cause: rank 0 \(.*\) exited with code %d " % code, done.root_cause), done


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
                                  "PIPE", "ALRM", "TERM", "XCPU", "VTALRM", "PROF", "IO", "SYS"])
def test_signals_are_reported_by_name_and_end_as_a_shell_would(workspace, name):
    number = getattr(signal, "SIG" + name)
    done = workspace.run_shell(2, 'if [ $RANK = 1 ]; then kill -%d $$; fi; exec sleep 60' % number, "--no-agent")
    assert done.code == 128 + number, done
    assert re.search(r"root cause: rank 1 \(.*\) killed by SIG%s\b" % name, done.root_cause), done


def test_a_signal_without_a_name_has_its_number(workspace):
    done = workspace.run_shell(1, "kill -%d $$; sleep 60" % (signal.SIGRTMIN + 3), "--no-agent")
    assert done.code == 128 + signal.SIGRTMIN + 3
    assert "killed by signal %d" % (signal.SIGRTMIN + 3) in done.root_cause


def test_all_ranks_that_end_well_are_a_success_whenever_they_do(workspace):
    done = workspace.run_shell(4, "sleep 0.$RANK")
    assert done.code == 0 and not done.root_cause, done


# ---- root cause and report

def test_the_report_names_the_first_rank_and_shows_the_end_of_its_stderr(workspace):
    workspace.write("train.py", """
import os, sys, time
def load_the_data(step):
    return step / 0
print("rank", os.environ["RANK"], "begins")
if os.environ["RANK"] == "2":
    time.sleep(0.2)
    load_the_data(7)
time.sleep(60)
""")
    done = workspace.run("--nproc-per-node", 4, "train.py")
    assert done.code == 1, done
    assert re.search(r"root cause: rank 2 \(.*pid \d+\) exited with code 1 after \d.* 3 others were then stopped", done.root_cause)
    for text in ("Traceback (most recent call last)", "in load_the_data", "ZeroDivisionError: division by zero",
                 "attempt_0/2/stderr.log"):
        assert text in done.ours, done
    # The report is in the merged log too.
    assert done.root_cause in workspace.merged_log()


def test_ranks_that_fail_because_another_one_did_are_not_blamed(workspace):
    """The survivors notice the failure immediately and exit with codes of their own."""
    done = workspace.run_shell(8, "if [ $RANK = 5 ]; then exit 9; fi; trap 'exit 77' TERM; sleep 60 & wait")
    assert done.code == 9 and "root cause: rank 5 (" in done.root_cause, done


def test_an_older_error_file_of_a_rank_that_we_stopped_is_not_the_root_cause(workspace):
    """A clock that was set back, or an error of the program: the launcher saw the root cause first."""
    workspace.write("train.py", """
import json, os, signal, sys, time
rank = int(os.environ["RANK"])
def fail(message, stamp):
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": {"message": message, "extraInfo": {"py_callstack": "stack of rank %d" % rank,
                                                                 "timestamp": str(stamp)}}}, file)
def stopped(*unused):
    fail("stopped", 1700000000)
    os._exit(9)
if rank == 0:
    signal.signal(signal.SIGTERM, stopped)
    open("ready", "w").close()
    time.sleep(60)
while not os.path.exists("ready"):
    time.sleep(0.01)
fail("ValueError: bad batch", 1700003600)
raise SystemExit(7)
""")
    outer = os.path.join(workspace.folder, "outer.json")
    done = workspace.run("--nproc-per-node", 2, "train.py", extra={"TORCHELASTIC_ERROR_FILE": outer})
    failed = workspace.event("run-failed")
    assert done.code == 7 and failed["root_rank"] == 1 and failed["exit_code"] == 7, done
    # If the launcher's caller set its own error file, it contains the root cause.
    assert json.loads(read(outer))["message"]["message"] == "ValueError: bad batch"


def test_the_callers_error_file_tells_of_a_rank_that_wrote_none(workspace):
    outer = os.path.join(workspace.folder, "outer.json")
    done = workspace.run_shell(2, '[ $RANK = 0 ] && exit 5; sleep 60', extra={"TORCHELASTIC_ERROR_FILE": outer})
    assert done.code == 5
    reported = json.loads(read(outer))
    assert "rank 0" in reported["message"] and "code 5" in reported["message"] and reported["timestamp"] > 1600000000


@pytest.mark.parametrize("text", ["", "{", '{"message": 5}', '{"message": {"message": []}}', "\x00\xff", "[" * 100000],
                         ids=["empty", "cut short", "number", "list", "binary", "deep"])
def test_a_malformed_error_file_changes_nothing(workspace, text):
    content = workspace.write("content", text)
    done = workspace.run_shell(1, 'cp %s "$TORCHELASTIC_ERROR_FILE"; exit 3' % content, "--no-agent")
    assert done.code == 3 and "root cause: rank 0 (" in done.root_cause, done


@pytest.mark.parametrize("log,row", [("C5-port-taken.txt", "C5"), ("A1-eccl-backend.txt", "A1")])
def test_the_report_says_what_the_catalogue_knows(workspace, log, row):
    text = os.path.join(HERE, "fixtures", "logs", log)
    done = workspace.run_shell(2, '[ $RANK = 1 ] && { cat %s >&2; exit 1; }; sleep 60' % text)
    assert "root cause: rank 1 (" in done.root_cause, done
    assert re.search(r"known failure %s: " % row, done.ours) and "cause: " in done.ours and "to do: " in done.ours, done


def test_a_failure_that_nobody_knows_is_not_explained(workspace):
    done = workspace.run_shell(1, "echo the moon is in the wrong phase >&2; exit 1")
    assert "the moon is in the wrong phase" in done.ours and "known failure" not in done.ours, done


def test_what_a_rank_wrote_cannot_play_with_the_terminal(workspace):
    done = workspace.run_shell(1, r"printf 'bad \033[2J\007 end\n' >&2; exit 1")
    quoted = [line for line in done.err.splitlines() if line.startswith("fulldeck:") and "end" in line and "bad" in line]
    assert len(quoted) == 1 and "\x1b" not in quoted[0] and "\x07" not in quoted[0]


def test_ranks_that_had_ended_before_are_not_said_to_be_stopped(workspace):
    workspace.write("train.sh", """#!/bin/sh
case $RANK in
  0) exit 0 ;;
  1) exec sleep 60 ;;
esac
while [ ! -e go ]; do sleep 0.01; done
exit 5
""", 0o755)
    running = workspace.start("--nproc-per-node", 3, "./train.sh")
    wait_until(lambda: set(workspace.ranks()) == {1, 2}, "rank 0 to end")
    workspace.write("go", "")
    done = running.wait(20)
    assert done.code == 5 and "root cause: rank 2 (" in done.root_cause and "1 other was then stopped" in done.root_cause, done


def test_a_rank_that_said_nothing_on_stderr_has_the_end_of_its_stdout_shown(workspace):
    done = workspace.run_shell(1, "echo only here; exit 1")
    assert "only here" in done.ours, done


# ---- crashes

CRASH = """
import ctypes, os, time
def the_innermost_function():
    ctypes.string_at(8)
def the_training_loop():
    the_innermost_function()
if os.environ["RANK"] == "1":
    the_training_loop()
time.sleep(60)
"""


def test_a_crash_shows_the_native_and_the_python_stack(workspace):
    workspace.write("train.py", CRASH)
    done = workspace.run("--nproc-per-node", 2, "train.py")
    assert done.code == 139 and re.search(r"root cause: rank 1 \(.*\) killed by SIGSEGV", done.root_cause), done
    assert "where it crashed" in done.ours, done
    assert "the_innermost_function" in done.ours and "the_training_loop" in done.ours, done
    assert re.search(r"string_at|libffi|_ctypes|libc\.so", done.ours), done


def test_a_crash_handler_of_the_users_still_runs(workspace):
    workspace.write("train.py", """
import faulthandler, os
own = open("own-report", "w")
faulthandler.enable(own)
os.kill(os.getpid(), 6)
""")
    done = workspace.run("--nproc-per-node", 1, "train.py")
    assert done.code == 134 and "Fatal Python error: Aborted" in read(os.path.join(workspace.folder, "own-report")), done


def test_without_the_agent_a_crash_is_still_named(workspace):
    workspace.write("train.py", CRASH)
    done = workspace.run("--nproc-per-node", 2, "--no-agent", "train.py")
    assert done.code == 139 and "root cause: rank 1 (" in done.root_cause and "where it crashed" not in done.ours, done


def test_no_empty_crash_file_is_left(workspace):
    assert workspace.run("--nproc-per-node", 1, "--no-python", "/bin/true").code == 0
    assert sorted(os.listdir(os.path.join(workspace.run_folder(), "attempt_0", "0"))) == ["stderr.log", "stdout.log"]


# ---- restarts

def test_a_restart_has_a_fresh_port_a_count_and_files_of_its_own(workspace):
    script = 'echo "$MASTER_PORT $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS" >> seen; ' \
             'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exit 3; fi; echo fine'
    done = workspace.run_shell(1, script, "--max-restarts", 2)
    assert done.code == 0, done
    first, second = [line.split() for line in read(os.path.join(workspace.folder, "seen")).splitlines()]
    assert first[1:] == ["0", "2"] and second[1:] == ["1", "2"] and first[0] != second[0]
    assert "restart 1 of 2" in done.ours and "root cause: rank 0 (" in done.root_cause
    assert workspace.log(0, "stdout", attempt=1) == "fine\n" and workspace.log(0, "stdout", attempt=0) == ""


def test_a_named_port_is_kept_in_every_attempt(workspace):
    port = free_port()
    workspace.run_shell(1, 'echo $MASTER_PORT >> seen; exit 3', "--max-restarts", 1, "--master-port", port)
    assert read(os.path.join(workspace.folder, "seen")).split() == [str(port)] * 2


def test_ranks_of_a_restart_live_although_a_straggler_had_to_be_killed(workspace):
    script = ('[ "$TORCHELASTIC_RESTART_COUNT" = 1 ] && exit 0; if [ $RANK = 1 ]; then while [ ! -e ready ]; do sleep 0.01; done; exit 3; fi; '
              'trap "" TERM; touch ready; while :; do sleep 0.1; done')
    done = workspace.run_shell(2, script, "--max-restarts", 1, "--shutdown-timeout", 1)
    assert done.code == 0 and "still there after" in done.ours and "restart 1 of 1" in done.ours, done


def test_when_the_restarts_are_used_up_the_ranks_own_code_is_returned(workspace):
    done = workspace.run_shell(2, "exit $((RANK + 20))", "--max-restarts", 1)
    assert done.code in (20, 21), done
    assert sorted(name for name in os.listdir(workspace.run_folder()) if "attempt" in name) == ["attempt_0", "attempt_1"]


def test_progress_on_the_board_is_no_crash_loop(workspace):
    """Each attempt gets two steps further than the one before, and then fails."""
    script = "for i in 1 2 3 4 5 6 7 8 9 10; do ls /proc/$PPID/fd | wc -l; sleep 0.05; done > descriptors-$TORCHELASTIC_RESTART_COUNT; " \
             "exec %s $((TORCHELASTIC_RESTART_COUNT * 2 + 1)) 1 fail" % BOARD_WRITER
    done = workspace.run_shell(1, script, "--max-restarts", 3)
    assert done.code == 3 and "crash loop" not in done.err, done
    assert done.ours.count("root cause: ") == 4
    # An attempt leaves no descriptor open in the launcher; some are open for a moment when a rank starts.
    counts = [min(map(int, read(os.path.join(workspace.folder, "descriptors-%d" % attempt)).split())) for attempt in range(4)]
    assert counts[3] < counts[1] + 2, counts


def test_no_progress_on_the_board_is_a_crash_loop(workspace):
    """Three attempts that all reach step 2: the first one was progress, the next three were not."""
    done = workspace.run_shell(1, "exec %s 2 1 fail" % BOARD_WRITER, "--max-restarts", 9, seconds=90)
    assert done.code == 82 and "crash loop" in done.ours, done
    assert done.ours.count("root cause: ") == 4


def test_a_stop_between_two_attempts_is_heeded_at_once(workspace):
    running = workspace.start_shell(1, "exit 3", "--max-restarts", 5)
    running.wait_for("restart 1 of 5")
    running.signal(signal.SIGTERM)
    done = running.wait(10)
    assert done.code == 143 and "attempt 1" not in done.ours, done


def test_an_agent_of_another_version_is_refused(workspace):
    """A launcher that finds an agent of a different version in its installation."""
    beside = os.path.join(workspace.folder, "installed")
    os.makedirs(os.path.join(beside, "bin"))
    shutil.copy(FULLDECK, os.path.join(beside, "bin"))
    shutil.copytree(os.path.join(PROGRAMS, "other_version", "lib"), os.path.join(beside, "lib"))
    done = workspace.start_program([os.path.join(beside, "bin", "fulldeck"), "run", "--devices", "cpu", "--nproc-per-node", "2",
                                "--no-python", "/bin/true"]).wait(30)
    assert done.code == 87, done
    assert "version 1, this fulldeck speaks version 99: use the same fulldeck on both sides" in done.ours
    assert "exited with code 87" in done.ours
