"""`fulldeck run` from the view of a script and its user: the environment of a rank, the forms of a program, what is
rejected."""
import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from grids import fault_grid
from launching import BUILD, FULLDECK, MARKER, PROGRAMS, free_port, read, wait_until

# Each rank writes its environment and its arguments to a file in the working directory.
SHOW = 'env -0 > "env-$RANK-$TORCHELASTIC_RESTART_COUNT"; for word in "$0" "$@"; do echo "$word"; done > "arguments-$RANK"'


def environment_of(workspace, rank, attempt=0):
    text = read(os.path.join(workspace.folder, "env-%d-%d" % (rank, attempt)))
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def arguments_of(workspace, rank):
    return read(os.path.join(workspace.folder, "arguments-%d" % rank)).splitlines()


def started_none(workspace):
    return not os.path.exists(os.path.join(workspace.folder, "started")) and not os.path.exists(workspace.runs)


# ---- the environment of a rank

@pytest.mark.parametrize("count", [1, 3])
def test_every_rank_finds_the_contract_in_its_environment(workspace, count):
    done = workspace.run_shell(count, SHOW, "--max-restarts", 2, "--role", "trainer", "--rdzv-id", workspace.name)
    assert done.code == 0, done
    ports = set()
    for rank in range(count):
        variables = environment_of(workspace, rank)
        ports.add(variables["MASTER_PORT"])
        run = workspace.run_folder()
        expected = {
            "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count),
            "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
            "ROLE_NAME": "trainer", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "2", "TORCHELASTIC_RUN_ID": workspace.name,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_ERROR_FILE": "%s/attempt_0/%d/error.json" % (run, rank),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "ACCELERATE_USE_CPU": "true",
            "FULLDECK_RUN_ID": workspace.name, "FULLDECK_RUN_DIR": run, "FULLDECK_BOARD_SLOT": str(rank),
        }
        assert {name: variables.get(name) for name in expected} == expected
        assert int(variables["OMP_NUM_THREADS"]) >= 1
        assert "FULLDECK_DEVICE" not in variables and "FULLDECK_CARD_SERIAL" not in variables
    assert len(ports) == 1 and 1024 < int(ports.pop()) < 65536


def test_what_the_user_has_set_stays(workspace):
    own = {"OMP_NUM_THREADS": "7", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", "MY_OWN": "a b\nc", "CUDA_VISIBLE_DEVICES": "5,3"}
    assert workspace.run_shell(2, SHOW, extra=own).code == 0
    variables = environment_of(workspace, 1)
    assert {name: variables.get(name) for name in own} == own


def test_stale_values_of_another_launcher_do_not_reach_a_rank(workspace):
    stale = {"RANK": "5", "WORLD_SIZE": "9", "LOCAL_RANK": "5", "MASTER_PORT": "1", "MASTER_ADDR": "10.9.9.9",
             "TORCHELASTIC_RUN_ID": "old", "GROUP_RANK": "4"}
    assert workspace.run_shell(1, SHOW, extra=stale).code == 0
    variables = environment_of(workspace, 0)
    assert variables["WORLD_SIZE"] == "1" and variables["LOCAL_RANK"] == "0" and variables["GROUP_RANK"] == "0"
    assert variables["MASTER_ADDR"] == "127.0.0.1" and variables["MASTER_PORT"] != "1"
    assert variables["TORCHELASTIC_RUN_ID"] != "old"


def test_a_rank_inherits_its_streams_and_the_board_and_nothing_else(workspace):
    script = 'ls -l /proc/$$/fd; exec grep -E "^Sig(Blk|Ign)" /proc/self/status'
    assert workspace.run_shell(2, script).code == 0
    for rank in range(2):
        listed = workspace.log(rank, "stdout")
        numbers = {int(number): target for number, target in re.findall(r" (\d+) -> (.*)", listed)}
        assert set(numbers) == {0, 1, 2, 198}, listed
        assert numbers[1].endswith("/attempt_0/%d/stdout.log" % rank) and "memfd" in numbers[198]
        masks = re.findall(r"Sig...:\s*([0-9a-f]+)", listed)
        # Signals from 32 on are left as the caller of the tests set them.
        # SIGXFSZ is ignored, as in Python: a log file at its limit (ulimit -f) must not kill the rank.
        assert [int(mask, 16) & 0x7FFFFFFF for mask in masks] == [0, 1 << signal.SIGXFSZ - 1]


def test_closed_standard_streams_are_replaced_for_the_ranks(workspace):
    """No descriptor of the launcher may take their place."""
    command = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", FULLDECK, "run", "--devices", "cpu", "--nproc-per-node", "1",
               "--no-python", "/bin/sh", "-c", "ls -l /proc/$$/fd; exit 3"]
    assert workspace.start_program(command).wait().code == 3
    listed = workspace.log(0, "stdout")
    assert re.search(r" 0 -> /dev/null$", listed, re.MULTILINE), listed
    assert set(re.findall(r" (\d+) -> ", listed)) == {"0", "1", "2", "198"}


@pytest.mark.parametrize("code", [0, 5])
def test_a_caller_that_ignores_sigchld_does_no_harm(workspace, code):
    done = workspace.run_shell(2, "[ $RANK = 0 ] && exit %d; exit 0" % code, ignored=[signal.SIGCHLD])
    assert done.code == code, done


def test_blocked_signals_of_the_caller_are_not_passed_on(workspace):
    everything = set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP}
    script = workspace.write("blocked.py", "import os, signal, sys\n"
                                       "signal.pthread_sigmask(signal.SIG_BLOCK, %r)\n"
                                       "os.execv(sys.argv[1], sys.argv[1:])\n" % everything)
    running = workspace.start_program([sys.executable, "-S", script, FULLDECK, "run", "--devices", "cpu", "--nproc-per-node", "1",
                                   "--no-python", "/bin/sh", "-c", "grep SigBlk /proc/self/status; touch ready; exec sleep 60"])
    wait_until(lambda: os.path.exists(os.path.join(workspace.folder, "ready")), "the rank")
    running.signal(signal.SIGTERM)
    assert running.wait(20).code == 143
    assert int(workspace.log(0, "stdout").split()[1], 16) == 0


def test_an_empty_environment_is_enough(workspace):
    workspace.variables = {"FULLDECK_RUNTIME_DIR": workspace.folder + "/runtime", MARKER: workspace.marker}
    done = workspace.run("--nproc-per-node", 2, "--no-python", "/bin/echo", "x")
    assert done.code == 0 and sorted(done.out.splitlines()) == ["[0] x", "[1] x"], done


def test_many_ranks_are_no_trouble(workspace):
    done = workspace.run_shell(64, 'echo $RANK of $WORLD_SIZE', "--redirects", "3")
    assert done.code == 0, done
    assert [workspace.log(rank, "stdout") for rank in range(64)] == ["%d of 64\n" % rank for rank in range(64)]


def test_a_rank_reads_what_is_piped_into_the_launcher(workspace):
    data = workspace.write("input", "hello rank\n")
    with open(data) as file:
        done = workspace.run_shell(1, "cat", stdin=file)
    assert done.code == 0 and done.out == "hello rank\n"


# ---- flags

@pytest.mark.parametrize("flags", [["--nproc-per-node=2", "--max-restarts=1"], ["--nproc_per_node=2", "--max_restarts=1"],
                                   ["--nproc_per_node", "2", "--max-restarts", "1"]])
def test_dashes_and_underscores_mean_the_same(workspace, flags):
    assert workspace.run(*(flags + ["--no-python", "/bin/sh", "-c", SHOW])).code == 0
    variables = environment_of(workspace, 1)
    assert variables["WORLD_SIZE"] == "2" and variables["TORCHELASTIC_MAX_RESTARTS"] == "1"


def test_pet_variables_are_the_defaults_of_the_flags(workspace):
    pet = {"PET_NPROC_PER_NODE": "3", "PET_MAX_RESTARTS": "4", "PET_RDZV_ID": workspace.name, "PET_NNODES": "1"}
    assert workspace.run("--max-restarts", 2, "--no-python", "/bin/sh", "-c", SHOW, extra=pet).code == 0
    variables = environment_of(workspace, 2)
    assert variables["WORLD_SIZE"] == "3" and variables["TORCHELASTIC_RUN_ID"] == workspace.name
    assert variables["TORCHELASTIC_MAX_RESTARTS"] == "2"


def test_everything_behind_the_program_is_its_own(workspace):
    words = ["--nproc-per-node", "9", "-m", "--", "--devices=gcu", "a b", "", "--help"]
    assert workspace.run("--nproc-per-node", 2, "--no-python", "/bin/sh", "-c", SHOW, *words).code == 0
    assert arguments_of(workspace, 1) == words


# ---- forms of a program

PYTHON_SHOW = """
import os, sys
print("flags", sys.flags.dont_write_bytecode, sys.stdout.line_buffering or sys.stdout.write_through)
print("executable", sys.executable)
print("words", sys.argv[1:])
"""


def test_a_python_script_runs_under_python_unbuffered(workspace):
    workspace.write("train.py", PYTHON_SHOW)
    done = workspace.run("--nproc-per-node", 1, "train.py", "--epochs", 3)
    assert done.code == 0, done
    assert "flags 1 True" in done.out and "executable %s" % sys.executable in done.out
    assert "words ['--epochs', '3']" in done.out


def test_without_python_exec_the_python3_of_path_is_used(workspace):
    folder = os.path.join(workspace.folder, "bin")
    os.mkdir(folder)
    workspace.write("bin/python3", "#!/bin/sh\necho this python: \"$@\"\n", 0o755)
    workspace.write("train.py", "")
    del workspace.variables["PYTHON_EXEC"]
    workspace.variables["PATH"] = folder + ":" + workspace.variables["PATH"]
    assert workspace.run("--nproc-per-node", 1, "train.py").out == "this python: -u train.py\n"


def test_a_python_script_with_exec_bit_still_runs_under_the_chosen_python(workspace):
    workspace.write("train", "#!/usr/bin/env python3\nimport sys; print(sys.executable)\n", 0o755)
    assert workspace.run("--nproc-per-node", 1, "./train").out == sys.executable + "\n"


def test_a_module_runs_as_with_python_m(workspace):
    os.mkdir(os.path.join(workspace.folder, "package"))
    workspace.write("package/__init__.py", "")
    workspace.write("package/train.py", "import sys; print(__name__, sys.argv[1:])")
    done = workspace.run("--nproc-per-node", 1, "-m", "package.train", "x")
    assert done.code == 0 and done.out == "__main__ ['x']\n"


@pytest.mark.parametrize("flags", [[], ["--no-python"]])
def test_an_executable_that_is_not_python_runs_directly(workspace, flags):
    workspace.write("train.sh", "#!/bin/sh\necho shell $1\n", 0o755)
    assert workspace.run("--nproc-per-node", 1, *(flags + ["./train.sh", "x"])).out == "shell x\n"


def test_a_binary_runs_directly(workspace):
    shutil.copy("/bin/echo", os.path.join(workspace.folder, "trainer"))
    assert workspace.run("--nproc-per-node", 1, "trainer", "binary").out == "binary\n"


def test_no_python_finds_programs_on_path(workspace):
    assert workspace.run("--nproc-per-node", 1, "--no-python", "echo", "found").out == "found\n"


def test_launch_adds_the_local_rank_as_first_argument(workspace):
    workspace.write("show.py", "import os, sys; print(os.environ['RANK'], sys.argv[1:])")
    flags = ["launch", "--devices", "cpu", "--nproc-per-node", "2"]
    done = workspace.fulldeck(*(flags + ["show.py", "x"]))
    assert done.code == 0, done
    assert sorted(done.out.splitlines()) == ["[0] 0 ['--local-rank=0', 'x']", "[1] 1 ['--local-rank=1', 'x']"]
    done = workspace.fulldeck(*(flags + ["--use-env", "show.py", "x"]))
    assert sorted(done.out.splitlines()) == ["[0] 0 ['x']", "[1] 1 ['x']"]


# ---- called as torchrun

@pytest.fixture
def torchrun(workspace):
    link = os.path.join(workspace.folder, "torchrun")
    os.symlink(FULLDECK, link)

    def run(*arguments):
        return workspace.start_program([link] + [str(each) for each in arguments]).wait()
    return run


def test_as_torchrun_it_has_torchruns_defaults(workspace, torchrun):
    workspace.variables["FULLDECK_SIMULATE"] = "gcu:4"
    done = torchrun("--no-python", "/bin/sh", "-c", SHOW)
    assert done.code == 0, done
    assert environment_of(workspace, 0)["WORLD_SIZE"] == "1"
    # It leaves nothing in the working directory; logs are with other temporary files.
    assert not os.path.exists(workspace.runs)
    shutil.rmtree(os.path.join(workspace.folder, "temporary"))


def test_as_torchrun_more_ranks_than_cards_is_allowed_and_said_loudly(workspace, torchrun):
    workspace.variables["FULLDECK_SIMULATE"] = "gcu:2"
    done = torchrun("--standalone", "--nproc_per_node=4", "--log_dir", "fulldeck_runs", "--no-python", "/bin/sh", "-c", SHOW)
    assert done.code == 0, done
    assert environment_of(workspace, 3)["WORLD_SIZE"] == "4"
    assert len([line for line in done.err.splitlines() if "WARNING: 4 ranks on 2 cards" in line]) == 1


def test_torchruns_own_help_and_version_work(torchrun):
    assert torchrun("--help").code == 0
    assert torchrun("--version").out.startswith("fulldeck ")


# ---- before the start

def test_a_dry_run_shows_the_plan_and_starts_nothing(workspace):
    workspace.simulate("gcu:4")
    workspace.write("train.py", "open('started', 'w')")
    done = workspace.run("--dry-run", "train.py", "--epochs", 3)
    assert done.code == 0, done
    for rank in range(4):
        assert re.search(r"rank %d: gcu %d \(serial [^)]+\) simulated" % (rank, rank), done.err), done
    assert "train.py --epochs 3" in done.err
    assert started_none(workspace)


def refused(workspace, code, done, *words):
    assert done.code == code, done
    for word in words:
        assert word in done.err, done
    assert done.err.startswith("fulldeck: error: ") and len(done.err.splitlines()) == 1, done
    assert started_none(workspace)


def test_a_missing_script_is_refused_with_a_suggestion(workspace):
    workspace.write("train.py", "")
    refused(workspace, 88, workspace.run("--nproc-per-node", 2, "trian.py"), "there is no script trian.py", "did you mean train.py?")
    refused(workspace, 88, workspace.run("--nproc-per-node", 2, "/no/where/train.py"), "/no/where/train.py")
    refused(workspace, 88, workspace.run("--nproc-per-node", 2, "--no-python", "no-such-program"), "'no-such-program' on PATH")


def test_a_file_that_is_not_executable_is_refused_with_the_cure(workspace):
    workspace.write("run.sh", "#!/bin/sh\ntouch started\n")
    refused(workspace, 88, workspace.run("--no-python", "./run.sh"), "not executable", "chmod +x ./run.sh")


def test_a_folder_is_not_a_program(workspace):
    os.mkdir(os.path.join(workspace.folder, "folder"))
    refused(workspace, 88, workspace.run("--no-python", "./folder"), "./folder")


def test_a_missing_interpreter_is_refused(workspace):
    workspace.write("run.sh", "#!/no/such/shell\n", 0o755)
    refused(workspace, 88, workspace.run("--no-python", "./run.sh"), "/no/such/shell", "not there")
    workspace.write("dos.sh", "#!/bin/sh\r\ntouch started\r\n", 0o755)
    refused(workspace, 88, workspace.run("./dos.sh"), "\\r\\n")
    workspace.write("train.py", "open('started', 'w')")
    refused(workspace, 88, workspace.run("train.py", extra={"PYTHON_EXEC": "/no/such/python"}), "/no/such/python", "PYTHON_EXEC")


def test_a_file_that_cannot_be_executed_names_the_rank(workspace):
    """Only exec detects it: an ELF header without contents."""
    workspace.write("broken", "\x7fELF broken", 0o755)
    done = workspace.run("--nproc-per-node", 2, "--no-python", "./broken")
    assert done.code == 88 and "rank 0" in done.err and "broken" in done.err, done


def test_an_unknown_flag_is_refused_with_the_nearest_one(workspace):
    workspace.write("train.py", "open('started', 'w')")
    refused(workspace, 2, workspace.run("--nproc-per-mode", 2, "train.py"), "--nproc-per-mode", "--nproc-per-node")
    refused(workspace, 2, workspace.run("--max_restrats=2", "train.py"), "restrats", "--max-restarts")


@pytest.mark.parametrize("flags,word", [(["--nproc-per-node", "0"], "nproc"), (["--nproc-per-node", "-2"], "nproc"),
                                        (["--nproc-per-node", "many"], "nproc"), (["--max-restarts", "-1"], "restarts"),
                                        (["--master-port", "70000"], "master-port"), (["--nnodes", "0"], "nnodes"),
                                        (["--idle-card", "perhaps"], "idle-card"), (["--shutdown-timeout", "x"], "timeout"),
                                        (["--rdzv-backend", "etcd"], "etcd"), (["--logs-specs", "mine"], "logs-specs"),
                                        (["--redirects", "7"], "redirects"), ([], "program")])
def test_values_that_make_no_sense_are_refused(workspace, flags, word):
    workspace.write("train.py", "open('started', 'w')")
    done = workspace.run(*(flags + (["train.py"] if flags else [])))
    assert done.code == 2 and word.lower() in done.err.lower(), done
    assert started_none(workspace)


def test_a_log_folder_that_cannot_be_written_is_refused(workspace):
    workspace.write("file", "")
    workspace.write("train.py", "open('started', 'w')")
    refused(workspace, 88, workspace.run("--log-dir", "file/logs", "train.py"), "file", "--log-dir")


def test_a_read_only_log_folder_is_refused(workspace):
    # Even root cannot write to this one.
    workspace.write("train.py", "open('started', 'w')")
    refused(workspace, 88, workspace.run("--log-dir", "/proc/fulldeck_runs", "train.py"), "/proc/fulldeck_runs", "--log-dir")


def test_too_few_open_files_are_refused_with_the_limit_to_set(workspace):
    low = {resource.RLIMIT_NOFILE: (64, 64)}
    done = workspace.run_shell(8, "touch started", limits=low)
    refused(workspace, 88, done, "ulimit -Hn", "64")


def test_a_low_soft_limit_of_open_files_is_raised(workspace):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 1024:
        pytest.skip("the hard limit is %d" % hard)
    assert workspace.run_shell(16, "true", limits={resource.RLIMIT_NOFILE: (64, hard)}).code == 0


def test_a_malformed_simulation_is_refused(workspace):
    refused(workspace, 80, workspace.run_shell(1, "touch started", extra={"FULLDECK_SIMULATE": "gcu:x"}), "FULLDECK_SIMULATE")


def test_a_registry_that_cannot_be_written_is_a_warning(workspace):
    file = workspace.write("file", "")
    done = workspace.run_shell(1, "echo ran", extra={"FULLDECK_RUNTIME_DIR": file + "/registry"})
    assert done.code == 0 and done.out == "ran\n", done
    assert "warning: fulldeck ps and stop will not find this run" in done.err


def test_the_limit_of_processes_is_named_when_it_is_reached(workspace):
    try:
        with fault_grid.cgroup_v1("pids", "fulldeck-test-" + workspace.marker[:8]) as folder:
            fault_grid.put(folder + "/pids.max", 8)
            enter = 'echo $$ > %s/cgroup.procs && exec "$@"' % folder
            done = workspace.start_program(["/bin/sh", "-c", enter, "sh", FULLDECK, "run", "--devices", "cpu", "--nproc-per-node",
                                        "8", "--no-python", "sleep", "60"]).wait()
            assert done.code == 88 and re.search(r"rank \d: .*limit of processes", done.err), done
            workspace.assert_nothing_left()
    except fault_grid.NotHere as reason:
        pytest.skip(str(reason))


def test_a_working_directory_that_is_gone_is_refused(workspace):
    gone = os.path.join(workspace.folder, "gone")
    os.mkdir(gone)
    command = ["/bin/sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh", FULLDECK, "run", "--devices", "cpu",
               "--no-python", "/bin/true"]
    done = workspace.start_program(command).wait()
    assert done.code == 88 and "--log-dir" in done.err, done


# ---- ports

def test_a_port_that_is_taken_is_refused_with_its_owner(workspace):
    fault_grid.port_is_held(workspace)


def test_a_named_port_is_what_rank_0_gets(workspace):
    port = free_port()
    assert workspace.run_shell(2, SHOW, "--master-port", port).code == 0
    assert environment_of(workspace, 1)["MASTER_PORT"] == str(port)


def test_a_port_in_time_wait_is_free(workspace):
    """The store of an earlier run has just closed its connections."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port = free_port()
    server.bind(("127.0.0.1", port))
    server.listen(1)
    with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as client:
        server.accept()[0].close()
        client.recv(1)
    server.close()
    done = workspace.run_shell(2, SHOW, "--master-port", port)
    assert done.code == 0, done


def test_a_hundred_launches_at_once_do_not_disturb_each_other(workspace):
    fault_grid.many_at_once(workspace)


# ---- libraries that are installed with it

def test_a_run_needs_nothing_but_the_program_itself(workspace):
    """A copy without its agent reports that, and runs."""
    os.mkdir(os.path.join(workspace.folder, "bin"))
    alone = shutil.copy(FULLDECK, os.path.join(workspace.folder, "bin", "fulldeck"))
    done = workspace.start_program([alone, "run", "--devices", "cpu", "--nproc-per-node", "2", "--no-python", "echo", "ran"]).wait()
    assert done.code == 0 and done.out.count("ran") == 2, done
    assert "libfulldeck_agent.so" in done.err and "not installed" in done.err


# Runs its remaining arguments with a rank board of a different version in place of its own.
OTHER_BOARD = """
import fcntl, os, struct, sys
board = int(os.environ["FULLDECK_BOARD_FD"])
content = bytearray(os.pread(board, os.fstat(board).st_size, 0))
version, = struct.unpack_from("<I", content, 8)
struct.pack_into("<I", content, 8, version + int(sys.argv[1]))
other = os.memfd_create("other-board", os.MFD_ALLOW_SEALING)
os.write(other, content)
fcntl.fcntl(other, 1033, 2 | 4)  # F_ADD_SEALS: neither shrink nor grow
os.dup2(other, board, inheritable=True)
if sys.argv[2]:
    os.environ["LD_PRELOAD"] = os.environ["FULLDECK_AGENT"] = sys.argv[2]
print("versions", version, version + int(sys.argv[1]), flush=True)
os.execv(sys.argv[3], sys.argv[3:])
"""


@pytest.mark.parametrize("who", ["program", "agent"])
@pytest.mark.parametrize("step", [-1, 1])
def test_a_board_of_another_version_is_refused_with_both_versions(workspace, who, step):
    """Older and newer. A user's program continues without the board; an agent ends the rank."""
    workspace.write("other.py", OTHER_BOARD)
    program = [os.path.join(PROGRAMS, "board_writer"), "2", "1"] if who == "program" else ["/bin/echo", "step 2"]
    agent = os.path.join(BUILD, "lib", "libfulldeck_agent.so") if who == "agent" else ""
    done = workspace.run("--nproc-per-node", 1, "other.py", step, agent, *program)
    assert (done.code, "step 2" in done.out) == ((0, True) if who == "program" else (87, False)), done
    ours, theirs = re.search(r"versions (\d+) (\d+)", done.out).groups()
    reported = [line for line in done.err.splitlines() if "board" in line and "version" in line and "|" not in line]
    assert len(reported) == 1 and re.search(r"\b%s\b" % ours, reported[0]) and re.search(r"\b%s\b" % theirs, reported[0]), done


def test_no_agent_puts_nothing_into_the_ranks(workspace):
    assert workspace.run_shell(1, SHOW, "--no-agent").code == 0
    variables = environment_of(workspace, 0)
    assert "LD_PRELOAD" not in variables and "PYTHONPATH" not in variables and "FULLDECK_AGENT" not in variables


def test_the_users_preload_and_python_path_come_first(workspace):
    own = {"LD_PRELOAD": "libm.so.6", "PYTHONPATH": workspace.folder + "/mine"}
    workspace.write("train.py", "import os, sys; print(os.environ.get('PYTHONPATH')); print(sys.path[1])")
    done = workspace.run("--nproc-per-node", 1, "train.py", extra=own)
    assert done.code == 0, done
    # The hook has removed itself from the path.
    assert done.out.splitlines() == [workspace.folder + "/mine"] * 2


def test_the_help_of_every_mode_shows_an_example():
    for mode in ("run", "launch"):
        shown = subprocess.run([FULLDECK, mode, "--help"], stdout=subprocess.PIPE, universal_newlines=True)
        assert shown.returncode == 0 and "Example" in shown.stdout and "--nproc-per-node" in shown.stdout
