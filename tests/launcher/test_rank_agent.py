"""The rank agent in real programs: its reports when they crash, and that it has no other effect on them. Runs without
the launcher; the test sets the launcher's variables."""
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from launching import TOP, BUILD
from launcher.test_rank_board import PROCESS, Board

AGENT = os.path.join(BUILD, "lib", "libfulldeck_agent.so")
PROGRAMS = os.path.join(TOP, "tests", "programs")
TIMEOUT = 120

# Becomes the rank: puts its own pid into the environment, then executes the program with the agent.
START = 'export FULLDECK_RANK_PID=$$ LD_PRELOAD="$AGENT_PRELOAD"; unset AGENT_PRELOAD; exec "$@"'


class Ended:
    def __init__(self, done, crash):
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr
        self.crash = crash
        self.pid = None
        found = re.search(r"^process: (\d+)", crash, re.M)
        if found:
            self.pid = int(found.group(1))

    @property
    def functions(self):
        """The function names in the stack of the first report, innermost first; "" for a frame without one."""
        stack = self.crash.partition("stack, innermost first:\n")[2].partition("files:\n")[0]
        return [(frame.split(" ") + [""] * 3)[3].partition("+")[0] for frame in stack.splitlines() if frame.startswith("#")]


class Ranks:
    def __init__(self, folder):
        self.folder = folder
        self.crash_file = str(folder / "crash")

    def run(self, *command, preload=None, options=None, environment=None, pass_fds=(), timeout=TIMEOUT):
        """Runs a rank to its end. `preload`: the user's own LD_PRELOAD."""
        variables = {name: value for name, value in os.environ.items()
                     if not name.startswith(("FULLDECK_", "PYTHON", "LD_PRELOAD"))}
        variables.update(FULLDECK_AGENT=AGENT, FULLDECK_CRASH_FILE=self.crash_file,
                         AGENT_PRELOAD=preload + ":" + AGENT if preload else AGENT)
        variables.update(environment or {})
        if os.path.exists(self.crash_file):
            os.unlink(self.crash_file)
        done = subprocess.run(["/bin/sh", "-c", START, "sh"] + [str(word) for word in command], env=variables,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=timeout, pass_fds=pass_fds, cwd=str(self.folder))
        crash = ""
        if os.path.exists(self.crash_file):
            with open(self.crash_file) as file:
                crash = file.read()
        return Ended(done, crash)


@pytest.fixture
def ranks(tmp_path):
    return Ranks(tmp_path)


def compile_program(folder, compiler, source, *flags):
    program = str(folder / os.path.basename(source).partition(".")[0])
    subprocess.run([compiler] + list(flags) + ["-O1", "-w", os.path.join(PROGRAMS, source), "-o", program], check=True,
                   timeout=TIMEOUT)
    return program


@pytest.fixture(scope="module")
def crash(tmp_path_factory):
    return compile_program(tmp_path_factory.mktemp("programs"), "cc", "crash.c", "-D_GNU_SOURCE", "-rdynamic", "-pthread",
                           "-fno-stack-protector")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A user's library, preloaded too."""
    folder = tmp_path_factory.mktemp("theirs")
    source = folder / "theirs.c"
    source.write_text("int theirs = 1;\n")
    library = str(folder / "libtheirs.so")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", library], check=True, timeout=TIMEOUT)
    return library


# ---- reports of a crash ----


@pytest.mark.parametrize("what,name,words,function", [
    ("segv", "SIGSEGV", "no memory is mapped at that address", "write_to"),
    ("bus", "SIGBUS", "a mapped file was cut short", "write_to"),
    ("ill", "SIGILL", "", "main"),
    ("abort", "SIGABRT", "raised by the program itself", "main"),
    ("sent", "SIGABRT", "sent by process", "main"),
    ("fpe", "SIGFPE", "integer division by zero" if os.uname().machine == "x86_64" else "", "main"),
    ("overflow", "SIGSEGV", "the stack is used up", "endless"),
])
def test_a_crash_leaves_signal_reason_and_stack_and_ends_as_without_us(ranks, crash, what, name, words, function):
    ended = ranks.run(crash, what)
    assert ended.code == -getattr(signal, name)
    assert ended.err == "" and ended.out == ""
    assert ended.crash.startswith("fulldeck crash report 1\nsignal: " + name)
    assert words in ended.crash.splitlines()[1]
    assert function in ended.functions
    assert ended.crash.endswith("end of report\n")
    assert ended.crash.count("fulldeck crash report") == 1
    assert os.stat(ranks.crash_file).st_mode & 0o777 == 0o600


def test_the_head_says_address_process_thread_and_time(ranks, crash):
    before = time.time()
    ended = ranks.run(crash, "thread")
    said = float(re.search(r"^time: (\d+\.\d{3})$", ended.crash, re.M).group(1))
    assert before - 0.001 <= said <= time.time()
    assert ended.code == -signal.SIGSEGV
    assert "\naddress: 0x18\n" in ended.crash
    thread, name = re.search(r"^thread: (\d+) (.*)$", ended.crash, re.M).groups()
    assert name == "loader-7"
    assert int(thread) != ended.pid
    assert ended.functions[:2] == ["write_to", ""]


def test_frames_name_file_offset_and_function(ranks, crash):
    ended = ranks.run(crash, "segv")
    assert re.search(r"^#0 0x[0-9a-f]+ crash\+0x[0-9a-f]+ write_to\+0x[0-9a-f]+$", ended.crash, re.M)
    assert re.search(r"^#1 0x[0-9a-f]+ crash\+0x[0-9a-f]+ main\+0x[0-9a-f]+$", ended.crash, re.M)
    files = ended.crash.partition("files:\n")[2].splitlines()
    assert crash in files and any("libc.so" in line for line in files)


def test_offsets_are_those_of_the_file(ranks, crash):
    ended = ranks.run(crash, "segv")
    offset = re.search(r"^#0 \S+ crash\+(0x[0-9a-f]+)", ended.crash, re.M).group(1)
    symbols = subprocess.run(["nm", crash], check=True, stdout=subprocess.PIPE, universal_newlines=True, timeout=TIMEOUT).stdout
    begin = int(re.search(r"^([0-9a-f]+) T write_to$", symbols, re.M).group(1), 16)
    into = int(re.search(r"write_to\+(0x[0-9a-f]+)", ended.crash).group(1), 16)
    assert int(offset, 16) == begin + into


def test_a_call_through_a_bad_pointer_shows_the_caller(ranks, crash):
    ended = ranks.run(crash, "wild")
    assert ended.code == -signal.SIGSEGV
    assert ended.crash.partition("first:\n")[2].startswith("#0 0x10\n#1 ")
    assert ended.functions[1:3] == ["call_nothing", "main"]


def test_a_smashed_stack_still_gives_a_report(ranks, crash):
    ended = ranks.run(crash, "smash")
    assert ended.code == -signal.SIGSEGV
    assert ended.functions[0] == "smash_the_stack"
    assert ended.crash.endswith("end of report\n")


def test_a_long_stack_is_cut(ranks, crash):
    ended = ranks.run(crash, "overflow")
    assert len(ended.functions) == 64
    assert "\nand more frames\n" in ended.crash


def test_threads_that_crash_together_leave_whole_reports(ranks, crash):
    ended = ranks.run(crash, "threads")
    assert ended.code == -signal.SIGSEGV
    reports = ended.crash.split("fulldeck crash report 1\n")[1:]
    assert 1 <= len(reports) <= 8
    # The process dies with the first one; another may be incomplete then.
    assert all(report.endswith("end of report\n") for report in reports[:-1])


def test_a_forked_child_reports_under_its_own_number(ranks, crash):
    ended = ranks.run(crash, "fork")
    assert ended.code == 0
    assert ended.out == "child 11\n"
    child, rank = re.search(r"^process: (\d+) \(forked from the rank, process (\d+)\)$", ended.crash, re.M).groups()
    assert child != rank


@pytest.mark.parametrize("own", [False, True])
def test_an_uncaught_exception_leaves_its_stack(ranks, tmp_path, own):
    program = compile_program(tmp_path, "c++", "terminate.cc", "-rdynamic")
    ended = ranks.run(program, *["own"] * own)
    assert ended.code == -signal.SIGABRT
    assert ("my terminate handler" in ended.out) == own
    assert any("ThrowIt" in function for function in ended.functions)


def test_a_program_that_ends_well_leaves_no_file(ranks, crash):
    ended = ranks.run(crash)
    assert ended.code == 0
    assert not os.path.exists(ranks.crash_file)


def test_a_crash_file_that_cannot_be_made_changes_nothing(ranks, crash):
    ended = ranks.run(crash, "segv", environment={"FULLDECK_CRASH_FILE": "/nowhere/at/all"})
    assert ended.code == -signal.SIGSEGV and ended.err == ""
    ended = ranks.run(crash, "segv", environment={"FULLDECK_CRASH_FILE": "/" + "x" * 9000})
    assert ended.code == -signal.SIGSEGV and ended.err == ""


# ---- the program's handlers ----


def test_the_programs_own_handler_runs_after_the_report_with_what_the_kernel_said(ranks, crash):
    ended = ranks.run(crash, "handler")
    assert ended.code == 3
    assert ended.out == "mine 11 0x28 1\n"
    assert "\naddress: 0x28\n" in ended.crash


def test_a_handler_that_returns_lets_the_program_go_on(ranks, crash):
    ended = ranks.run(crash, "returns")
    assert ended.code == 0
    assert ended.out == "plain 6\non\n"
    assert ended.crash.endswith("end of report\nthen: the program's own handler returned\n")


def test_a_handler_for_one_time_is_spent_by_it(ranks, crash):
    ended = ranks.run(crash, "reset")
    assert ended.code == -signal.SIGSEGV
    assert ended.out == "plain 11\n"
    ended = ranks.run(crash, "once")
    assert ended.code == 0
    assert ended.out == "plain 8\nthen default\n"


def test_masks_in_a_handler_are_those_that_the_program_asked_for(ranks, crash):
    assert ranks.run(crash, "masks").out == "110\n010\n"


def test_the_program_can_query_what_it_installed(ranks, crash):
    assert ranks.run(crash, "ask").out == "default default plain other ignore default default plain -1\n"


def test_an_ignored_signal_is_ignored(ranks, crash):
    ended = ranks.run(crash, "ignore")
    assert (ended.code, ended.out, ended.crash) == (0, "alive\n", "")
    ended = ranks.run(crash, "ignore_fault")
    assert (ended.code, ended.crash) == (-signal.SIGSEGV, "")


def test_a_program_that_recovers_has_a_report_of_each_fault_and_of_its_end(ranks, crash):
    ended = ranks.run(crash, "recover")
    assert ended.code == -signal.SIGABRT
    assert ended.out == "recovered\n"
    assert re.findall(r"^address: (.*)$", ended.crash, re.M) == ["0x8", "0x10", "0x18"]
    assert ended.crash.count("signal: SIGABRT") == 1


def test_a_handler_that_returns_to_its_fault_for_ever_is_reported_once(ranks, crash):
    ended = ranks.run(crash, "loop")
    assert ended.code == -signal.SIGALRM
    assert ended.crash.count("fulldeck crash report") == 1


def test_a_fault_in_the_programs_handler_ends_it(ranks, crash):
    ended = ranks.run(crash, "double")
    assert ended.code == -signal.SIGSEGV
    assert ended.out == "in\n"
    assert ended.crash.count("fulldeck crash report") == 1


def test_another_signal_in_the_programs_handler_is_reported(ranks, crash):
    ended = ranks.run(crash, "abort_in_handler")
    assert ended.code == -signal.SIGABRT
    assert ended.crash.startswith("fulldeck crash report 1\nsignal: SIGSEGV")
    assert ended.crash.endswith("then: SIGABRT while the program handled it\n")


def test_a_child_of_vfork_does_not_change_its_parents_handlers(ranks, crash):
    assert ranks.run(crash, "vfork").out == "plain\n"


def test_an_alternate_stack_of_the_programs_own_is_enough(ranks, crash):
    ended = ranks.run(crash, "own_stack")
    assert ended.code == -signal.SIGSEGV
    assert ended.functions[0] == "endless"


@pytest.mark.parametrize("what,function", [("short_stack", "endless"), ("short_stack_smash", "smash_the_stack")])
def test_a_report_takes_next_to_nothing_of_a_small_alternate_stack(ranks, crash, what, function):
    ended = ranks.run(crash, what)
    assert ended.code == 3
    assert ended.functions[0] == function
    assert ended.out.startswith("mine 11 ") and "used" in ended.out
    assert int(ended.out.rpartition("used ")[2]) < 2048


# ---- children ----


def variables_of(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_what_a_rank_starts_does_not_get_the_agent(ranks, crash):
    seen = variables_of(ranks.run(crash, "env").out)
    assert "PATH" in seen
    assert "LD_PRELOAD" not in seen and "FULLDECK_AGENT" not in seen


@pytest.mark.parametrize("separator", [":", " "])
def test_preloads_of_the_users_own_stay(ranks, crash, theirs, separator):
    seen = variables_of(ranks.run(crash, "env", environment={"AGENT_PRELOAD": theirs + separator + AGENT}).out)
    assert seen["LD_PRELOAD"] == theirs
    assert "FULLDECK_AGENT" not in seen
    assert ranks.run(crash, "segv", preload=theirs).functions[0] == "write_to"


def test_a_shell_hands_the_agent_on_to_the_program_that_it_becomes(ranks, crash):
    ended = ranks.run("bash", "-c", 'x=$(true); exec "$@"', "bash", crash, "segv")
    assert ended.code == -signal.SIGSEGV
    assert ended.functions[0] == "write_to"
    ended = ranks.run("env", "X=1", "nice", "sh", "-c", 'exec "$@"', "sh", crash, "segv")
    assert ended.functions[0] == "write_to"


def test_what_a_shell_starts_beside_it_is_clean(ranks, crash, theirs):
    ended = ranks.run("bash", "-c", 'env; bash -c "env; true"; exec true', preload=theirs)
    assert ended.code == 0 and ended.err == ""
    preloads = re.findall(r"^LD_PRELOAD=(.*)$", ended.out, re.M)
    assert preloads == [theirs, theirs]
    assert "FULLDECK_AGENT" not in ended.out


def test_a_crash_of_another_process_than_the_rank_is_left_alone(ranks, crash):
    ended = ranks.run("bash", "-c", '"$@"; echo "code $?"; true', "bash", crash, "segv")
    assert "code 139" in ended.out
    assert ended.crash == ""


# ---- the board ----


def identity(board):
    """pid, start time, loaded agent, program."""
    value = board.read(PROCESS, "IIQQ64s32s")
    if value is None:
        return None
    return {"pid": value[0], "loaded": value[1], "program": value[4].partition(b"\0")[0].decode()}


def board_variables(board, slot=1):
    return {"FULLDECK_BOARD_FD": str(board.fd), "FULLDECK_BOARD_SLOT": str(slot)}


def test_the_rank_stands_on_the_board_and_its_children_have_no_descriptor(ranks):
    board = Board()
    script = "import os, subprocess; print(os.getpid(), flush=True); subprocess.call(['ls', '/proc/self/fd'], close_fds=False)"
    ended = ranks.run(sys.executable, "-c", script, environment=board_variables(board), pass_fds=[board.fd])
    pid, _, open_in_child = ended.out.partition("\n")
    assert ended.err == ""
    seen = identity(board)
    assert seen["pid"] == int(pid)
    assert seen["loaded"] == 1
    assert seen["program"] == os.path.basename(os.path.realpath(sys.executable))
    assert str(board.fd) not in open_in_child.split()
    board.close()


def test_the_board_goes_through_a_shell(ranks, crash):
    board = Board()
    ended = ranks.run("bash", "-c", 'exec "$@"', "bash", crash, environment=board_variables(board), pass_fds=[board.fd])
    assert ended.code == 0
    assert identity(board)["program"] == "crash"
    board.close()


@pytest.mark.parametrize("version", [0, 77])
def test_a_board_of_an_older_or_newer_version_ends_the_rank_with_one_line(ranks, crash, version):
    board = Board(version=version)
    ended = ranks.run(crash, "segv", environment=board_variables(board), pass_fds=[board.fd])
    assert ended.code == 87
    assert ended.err.startswith("fulldeck: error: ") and ended.err.count("\n") == 1
    assert "has version %d" % version in ended.err and "use the same fulldeck on both sides" in ended.err
    board.close()


@pytest.mark.parametrize("variables", [
    {"FULLDECK_BOARD_FD": "77", "FULLDECK_BOARD_SLOT": "0"},
    {"FULLDECK_BOARD_FD": "0", "FULLDECK_BOARD_SLOT": "0"},
])
def test_without_a_board_nothing_is_said(ranks, crash, variables):
    ended = ranks.run(crash, environment=variables)
    assert (ended.code, ended.err) == (0, "")


# ---- the file itself ----


def test_the_library_needs_the_c_library_alone_and_shows_what_it_takes_over_alone():
    text = subprocess.run(["readelf", "--wide", "--dynamic", AGENT], check=True, stdout=subprocess.PIPE,
                          universal_newlines=True, env=dict(os.environ, LC_ALL="C"), timeout=TIMEOUT).stdout
    needed = re.findall(r"\(NEEDED\)\s+Shared library: \[(.*?)\]", text)
    # A C++ runtime loaded this early would be the system's, and would hide a newer one of the program.
    assert [name for name in needed if not re.match(r"^(libc|libdl|libpthread|ld-linux\S*)\.so\.\d+$", name)] == []
    names = subprocess.run(["nm", "--dynamic", "--defined-only", AGENT], check=True, stdout=subprocess.PIPE,
                           universal_newlines=True, timeout=TIMEOUT).stdout.split("\n")
    assert {row.split()[-1] for row in names if row} == {
        "write", "writev", "sigaction", "__sigaction", "signal", "bsd_signal", "ssignal", "sysv_signal", "__sysv_signal"}
