"""Stacks of all threads on request: what the agent writes inside a rank, that it does not affect the program, and the
output of `fulldeck stacks` for a whole run."""
import ctypes
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from launching import read, state_of, wait_until
from launcher.test_rank_agent import AGENT, START, TIMEOUT, compile_program
from launcher.test_rank_board import PROCESS, Board

HOOK = os.path.join(os.path.dirname(AGENT), "fulldeck_hook")
SIGNAL = signal.SIGRTMAX - 5
# A complete response is promised within 2 s; a test that fails because the machine is busy proves nothing.
ANSWER = 20

libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    return compile_program(tmp_path_factory.mktemp("programs"), "cc", "stack_shapes.c", "-D_GNU_SOURCE", "-rdynamic", "-pthread",
                           "-fno-optimize-sibling-calls")


class Rank:
    """A program with the agent, and without a launcher."""

    def __init__(self, folder, *command, **options):
        self.folder = str(folder)
        self.file = os.path.join(self.folder, "stacks")
        self.crash_file = os.path.join(self.folder, "crash")
        variables = {name: value for name, value in os.environ.items()
                     if not name.startswith(("FULLDECK_", "PYTHON", "LD_PRELOAD"))}
        variables.update(FULLDECK_AGENT=AGENT, FULLDECK_CRASH_FILE=self.crash_file, FULLDECK_STACK_FILE=self.file,
                         AGENT_PRELOAD=AGENT, PYTHONPATH=HOOK)
        variables.update(options.pop("environment", {}))
        self.process = subprocess.Popen(["/bin/sh", "-c", START, "sh"] + [str(word) for word in command], env=variables,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        universal_newlines=True, cwd=self.folder, **options)
        self.pid = self.process.pid
        self.before = []
        for line in self.process.stdout:
            if line == "ready\n":
                break
            self.before.append(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=TIMEOUT)

    def request(self, number):
        assert libc.sigqueue(self.pid, SIGNAL, ctypes.c_void_p(number)) == 0

    def dumps(self):
        """Complete reports."""
        return [part + "end of stacks\n" for part in read(self.file).split("end of stacks\n")[:-1]]

    def answer(self, number):
        def found():
            return next((dump for dump in self.dumps() if re.search(r"^requests:.* %d( |$)" % number, dump, re.M)), None)
        return wait_until(lambda: found() or self.process.poll() is not None, "the answer to %d" % number, ANSWER) and found()

    def ask(self, number=7):
        self.request(number)
        return self.answer(number)

    def ask_until(self, *texts):
        """The first response that contains all of these: a program may still be starting when it prints that it is
        ready."""
        for number in range(1000, 1200):
            dump = self.ask(number)
            if not dump or all(text in dump for text in texts):
                return dump
            time.sleep(0.01)
        raise AssertionError("no answer with %s:\n%s" % (texts, dump))

    def end(self):
        out, err = self.process.communicate(timeout=TIMEOUT)
        return self.process.returncode, out, err


def threads_of(dump):
    """{name: its lines}"""
    native = dump.partition("\nnative stacks:")[2].partition("\nfiles:\n")[0]
    return {part.partition("\n")[0].partition(" ")[2]: part.partition("\n")[2] for part in native.split("\nthread: ")[1:]}


# ---- the output of a rank ----


def test_every_thread_is_there_with_its_stack_or_with_the_reason_why_not(tmp_path, shapes):
    with Rank(tmp_path, shapes, "threads") as rank:
        dump = rank.ask_until("wait_for_the_end+", "wait_for_a_condition+", "spin_for_ever+", "it blocks the signal; state S")
        assert re.match(r"fulldeck stacks 1\nrequests: 1\d\d\d\nprocess: %d\ntime: \d+\.\d\d\d\n" % rank.pid, dump)
        threads = threads_of(dump)
        assert sorted(threads) == ["deaf", "spins", "stack_shapes", "waits"]
        assert "wait_for_the_end+" in threads["stack_shapes"] and " main+" in threads["stack_shapes"]
        assert "wait_for_a_condition+" in threads["waits"]
        assert re.match(r"pthread: 0x[0-9a-f]+\n#0 0x[0-9a-f]+ stack_shapes\+0x[0-9a-f]+ spin_for_ever\+", threads["spins"])
        deaf = r"no stack: it blocks the signal; state S(, system call \d+)?(, wait channel \w+)?$"
        assert re.match(deaf, threads["deaf"].strip())
        assert shapes in dump.partition("\nfiles:\n")[2].splitlines()
        assert "Python" not in dump
        assert os.stat(rank.file).st_mode & 0o777 == 0o600
        # It continues, and responds again.
        assert rank.ask(8)
        assert rank.end() == (0, "", "")


def test_a_flood_of_requests_is_answered_whole_and_every_number_once(tmp_path, shapes):
    with Rank(tmp_path, shapes, "threads") as rank:
        numbers = list(range(100, 108))
        for number in numbers:
            rank.request(number)
        for number in numbers:
            assert rank.answer(number)
        text = read(rank.file)
        assert text.count("fulldeck stacks 1\n") == text.count("end of stacks\n") <= len(numbers)
        reported = [int(number) for line in re.findall(r"^requests:(.*)$", text, re.M) for number in line.split()]
        assert sorted(reported) == numbers
        assert rank.end()[0] == 0


def test_a_file_that_has_grown_too_long_begins_anew(tmp_path, shapes):
    (tmp_path / "stacks").write_text("x" * (5 << 20))
    with Rank(tmp_path, shapes, "threads") as rank:
        assert rank.ask()
        assert read(rank.file).startswith("fulldeck stacks 1\n")


def test_what_stands_in_the_way_of_the_file_is_left_alone(tmp_path, shapes):
    os.symlink(str(tmp_path / "elsewhere"), str(tmp_path / "stacks"))
    with Rank(tmp_path, shapes, "threads") as rank:
        rank.request(1)
        assert rank.end() == (0, "", "")
    assert not (tmp_path / "elsewhere").exists()


def test_a_crash_after_and_amid_requests_is_reported_as_ever(tmp_path, shapes):
    with Rank(tmp_path, shapes, "crash") as rank:
        assert rank.ask(1)
        for number in range(2, 6):
            rank.request(number)
        code, _, err = rank.end()
        assert (code, err) == (-signal.SIGSEGV, "")
        assert read(rank.crash_file).count("fulldeck crash report 1\n") == 1
        assert read(rank.crash_file).endswith("end of report\n")


# ---- effects on the program ----


def test_calls_that_can_go_on_go_on_and_errno_stays(tmp_path, shapes):
    with Rank(tmp_path, shapes, "calls") as rank:
        for number in range(1, 6):
            assert rank.ask(number)
        assert rank.end() == (0, "ended early: 0, errno 0\n", "")


def board_variables(board):
    return {"FULLDECK_BOARD_FD": str(board.fd), "FULLDECK_BOARD_SLOT": "1"}


def signal_on(board):
    return board.read(PROCESS, "IIQQ64sQ24s")[5]


def test_the_program_sees_the_default_action_and_what_it_installs_itself(tmp_path, shapes):
    board = Board()
    with Rank(tmp_path, shapes, "asks", environment=board_variables(board), pass_fds=[board.fd]) as rank:
        # Default, its own (called once), ignored, default, and by signal() default and its own.
        assert rank.before == ["mine\n", "dhiddhd\n"]
        # A returned handler is accepted again.
        assert signal_on(board) == SIGNAL
        assert rank.ask()
        assert rank.end()[0] == 0
    board.close()


def test_a_handler_of_the_programs_own_wins_and_the_board_says_so(tmp_path, shapes):
    board = Board()
    with Rank(tmp_path, shapes, "handler", environment=board_variables(board), pass_fds=[board.fd]) as rank:
        assert signal_on(board) == 0
        rank.request(1)
        assert rank.process.stdout.readline() == "mine\n"
        assert rank.end()[0] == 0
        assert not os.path.exists(rank.file)
    board.close()


def test_children_do_not_have_it(tmp_path, shapes):
    with Rank(tmp_path, shapes, "child") as rank:
        assert rank.before == ["fork d 0\n", "exec 0\n"]
        assert rank.ask()
        assert rank.end()[0] == 0


# ---- Python ----

PYTHON = """
import ctypes, os, sys, threading, time

def waits_for_an_event():
    threading.Event().wait()

def holds_the_interpreter():
    library = ctypes.PyDLL(None)
    while True:
        library.usleep(999000)

def goes_round():
    while True:
        pass

thread = threading.Thread(target=waits_for_an_event, daemon=True)
thread.start()
shape = sys.argv[1]
if shape == "own":
    import faulthandler
    faulthandler.enable()
    faulthandler.register(10)
if shape == "worker" and os.fork() == 0:
    goes_round()
print("ready", flush=True)
if shape == "read":
    sys.stdin.read()
    sys.exit(0)
{"held": holds_the_interpreter}.get(shape, goes_round)()
"""


def pythons():
    found = [sys.executable] + [shutil.which("python3.%d" % minor) or "" for minor in range(8, 15)]
    versions = {}
    for path in filter(None, found):
        reported = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True, timeout=TIMEOUT)
        if reported.returncode == 0:
            versions.setdefault(reported.stdout.strip(), path)
    return sorted(versions.items())


@pytest.mark.parametrize("version,python", pythons())
def test_pythons_stacks_stand_before_the_native_ones(tmp_path, version, python):
    script = tmp_path / "train.py"
    script.write_text(PYTHON)
    with Rank(tmp_path, python, script, "spin") as rank:
        dump = rank.ask_until("in goes_round")
        reported = dump.partition("\nPython stacks:\n")[2].partition("\nnative stacks:\n")[0]
        assert dump.count("\nthread: ") == 2
        assert re.search(r'^  File "%s", line \d+ in waits_for_an_event$' % re.escape(str(script)), reported, re.M)
        assert re.search(r"^Current thread (0x[0-9a-f]+)", reported, re.M)
        assert re.search(r'^  File "%s", line \d+ in goes_round$' % re.escape(str(script)), reported, re.M)
        # The threads of both parts can be matched.
        assert {int(number, 16) for number in re.findall(r"hread (0x[0-9a-f]+)", reported)} == {
            int(number, 16) for number in re.findall(r"^pthread: (0x[0-9a-f]+)$", dump, re.M)}


@pytest.mark.parametrize("shape,function", [("held", "holds_the_interpreter"), ("own", "goes_round")])
def test_python_answers_while_its_lock_is_held_and_beside_a_faulthandler_of_the_users(tmp_path, shape, function):
    script = tmp_path / "train.py"
    script.write_text(PYTHON)
    with Rank(tmp_path, sys.executable, script, shape) as rank:
        for _ in range(2):
            assert rank.ask_until("in %s\n" % function)
        assert "FULLDECK_PYTHON_STACKS" not in read("/proc/%d/environ" % rank.pid)


def test_python_ends_as_ever_after_it_was_asked_and_opens_no_file_for_it(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PYTHON)
    with Rank(tmp_path, sys.executable, script, "read") as rank:
        files = sorted(os.listdir("/proc/%d/fd" % rank.pid))
        assert "waits_for_an_event" in rank.ask()
        assert sorted(os.listdir("/proc/%d/fd" % rank.pid)) == files
        assert rank.end() == (0, "", "")


# ---- the whole run ----


def start_shapes(workspace, shapes, cases):
    """A run with one shape per rank. The ranks read a pipe that stays open: the launcher's standard input."""
    script = workspace.write("train.py", PYTHON)
    words = {"c": "'%s' %%s" % shapes, "python": "'%s' '%s' %%s" % (sys.executable, script)}
    text = "case $RANK in\n"
    for rank, (kind, shape) in enumerate(cases):
        text += "%d) %s;;\n" % (rank, shape if kind == "shell" else "exec " + words[kind] % shape)
    running = workspace.start_shell(len(cases), text + "esac", "--shutdown-timeout", "1", stdin=subprocess.PIPE)
    wait_until(lambda: all(read(path).count("ready\n") for path in outputs(workspace, cases)), "the ranks")
    workspace.wait_for_registered_ranks(len(cases))
    return running


def outputs(workspace, cases):
    folder = glob.glob(os.path.join(workspace.runs, "*", "attempt_0"))
    return [os.path.join(folder[0], str(rank), "stdout.log") if folder else "/nowhere"
            for rank, (kind, _) in enumerate(cases) if kind != "shell"]


def stop(running):
    running.signal(signal.SIGTERM)
    running.wait()


CASES = [("c", "threads"), ("python", "held"), ("python", "spin"), ("c", "calls"), ("c", "stopped"), ("c", "forks"),
         ("python", "worker"), ("c", "child")]


def test_eight_ranks_of_every_shape_tell_their_stacks(workspace, shapes):
    running = start_shapes(workspace, shapes, CASES)
    ranks = workspace.ranks()
    wait_until(lambda: state_of(ranks[4]) == "T", "the stopped rank")
    done = workspace.fulldeck("stacks", "--json")
    assert done.code == 0, done
    reported = json.loads(done.out)
    assert [rank["rank"] for rank in reported["ranks"]] == list(range(8))
    assert all(rank["complete"] and rank["why_none"] == "" for rank in reported["ranks"])
    assert all(rank["milliseconds"] >= 0 for rank in reported["ranks"])  # `make promises` measures it (R5)
    assert [rank["was_stopped"] for rank in reported["ranks"]] == [False] * 4 + [True] + [False] * 3
    wait_until(lambda: state_of(ranks[4]) == "T", "the stopped rank stopped again")
    top = {rank["rank"]: rank["threads"][0] for rank in reported["ranks"]}
    assert [frame["function"] for frame in top[1]["python"]][0] == "holds_the_interpreter"
    assert [frame["function"] for frame in top[2]["python"]][:2] == ["goes_round", "<module>"]
    assert "wait_for_the_end" in [frame["function"] for frame in top[3]["native"]]
    # The worker that rank 6 forked does not respond for it, and is named.
    assert [child["parent"] for child in reported["ranks"][6]["children"]] == [ranks[6]]
    assert len(reported["ranks"][6]["threads"]) == 2

    # Again for one rank, as human-readable text: the file's number increases.
    done = workspace.fulldeck("stacks", os.path.basename(workspace.run_folder()), "--rank", 2)
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert re.match(r"rank 2 \(pid %d\): 2 threads, told in \d+ ms$" % ranks[2], lines[0])
    assert lines[1].startswith("  thread %d " % ranks[2]) and lines[1].endswith(" (main):")
    assert lines[2] == "    Python:" and re.search(r"/train.py:\d+ in goes_round$", lines[3])
    assert "    native:" in lines and "wait_for_a_condition" not in done.out
    saved = os.path.join(workspace.run_folder(), "stacks-1.txt")
    assert "saved, with nothing left out, in " + saved in done.err
    assert "goes_round" in read(saved) and os.stat(saved).st_mode & 0o777 == 0o600
    assert os.path.exists(os.path.join(workspace.run_folder(), "stacks-0.txt"))
    stop(running)


def test_a_rank_that_cannot_tell_is_shown_with_what_the_kernel_tells_and_why(workspace, shapes):
    cases = [("c", "held"), ("c", "deaf"), ("c", "handler"), ("shell", "sleep 60; true")]
    running = start_shapes(workspace, shapes, cases)
    ranks = workspace.ranks()
    began = time.monotonic()
    done = workspace.fulldeck("stacks")
    assert done.code == 1, done
    assert time.monotonic() - began < ANSWER
    assert "0 of 4 ranks told their stacks; the others are shown with what the kernel tells of them" in done.err
    blocks = done.out.split("\n\n")
    assert "rank 0 (pid %d): held by the kernel, not to be interrupted (state D)" % ranks[0] in blocks[0]
    assert "no stack: the kernel holds all its threads (state D), so that none can answer" in blocks[0]
    assert re.search(r"^  thread %d stack_shapes: held by the kernel" % ranks[0], blocks[0], re.M)
    assert re.search(r"^  started process \d+, .*stack_shapes held$", blocks[0], re.M)
    assert "no stack: every thread of it blocks signal %d" % SIGNAL in blocks[1]
    assert re.search(r"^  thread \d+ waits: sleeping \(state S\)", blocks[1], re.M)
    for block in blocks[2:4]:
        assert "no stack: the rank does not take the request: the agent is not in it" in block
    # The requests killed no rank, and no program received a signal.
    assert workspace.ranks() == ranks and "mine" not in workspace.log(2, "stdout")
    stop(running)


def test_a_run_that_is_not_there_or_over_is_said_so(workspace):
    done = workspace.fulldeck("stacks", "nothing")
    assert done.code == 1 and "there is no run 'nothing'" in done.err
    done = workspace.fulldeck("stacks")
    assert done.code == 1 and "no run is running" in done.err
    workspace.run_shell(1, "true")
    name = os.path.basename(workspace.run_folder())
    done = workspace.fulldeck("stacks", name)
    assert done.code == 1 and "run %s is over: it has no processes any more" % name in done.err
    running = workspace.start_shell(2, "sleep 60")
    workspace.wait_for_registered_ranks(2)
    done = workspace.fulldeck("stacks", "--rank", 5)
    assert done.code == 1 and "rank 5 of run " in done.err and "is not on this host: ranks 0 to 1 are" in done.err
    stop(running)
