"""What a launcher must not do: leak its caller's descriptors, lose processes, end or block ranks through its own logs,
or expose more to the network than it needs. Attacks by others run as a second user, which needs root."""
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import resource

import pytest

from launching import FULLDECK, Workspace, children_of, read, state_of, wait_until

USER = 61001
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, or mounts a small disk")


@pytest.fixture
def users_workspace():
    """A workspace of an ordinary user, whose runs have no cgroup."""
    folder = tempfile.mkdtemp(prefix="fulldeck-user-")
    here = Workspace(folder)
    try:
        for base, folders, files in os.walk(folder):
            for name in [base] + [os.path.join(base, name) for name in folders + files]:
                os.chown(name, USER, USER)
        yield here
        here.assert_nothing_left()
    finally:
        here.clean_up()
        shutil.rmtree(folder, ignore_errors=True)


def supervisor_of(running):
    return wait_until(lambda: children_of(running.pid), "the supervisor")[0]


# ---- processes


@needs_root
def test_stop_finds_the_children_of_dead_ranks_without_a_cgroup(users_workspace):
    """Front and supervisor are killed at the same time; the ranks die with them, and their children no longer have a
    parent."""
    workspace = users_workspace
    running = workspace.start_shell(2, "sleep 1000 & setsid sleep 1000 & touch %s/$RANK; wait" % workspace.notes, "--rdzv-id", workspace.name, user=USER)
    wait_until(lambda: len(os.listdir(workspace.notes)) == 2 and len(workspace.processes()) >= 8, "two ranks with two children each")
    supervisor = supervisor_of(running)
    ranks = set(workspace.wait_for_registered_ranks(2).values())
    # If one sees the other die, it ends the rest, so neither may run in between.
    os.kill(running.pid, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    os.kill(running.pid, signal.SIGKILL)
    wait_until(lambda: not running.alive, "the end of the launcher")
    wait_until(lambda: not ranks & set(workspace.processes()), "the end of the ranks")
    assert len(workspace.processes()) == 4
    done = workspace.fulldeck("stop", workspace.name, user=USER)
    assert done.code == 0 and not workspace.processes(), done
    assert workspace.fulldeck("stop", workspace.name, user=USER).code != 0, "its entry is gone"


@needs_root
def test_stop_names_what_it_cannot_tell_from_others_and_claims_no_success(users_workspace):
    """A child with a cleared environment is found only by its rank's process group."""
    workspace = users_workspace
    running = workspace.start_shell(1, "env -i sleep 1000 & touch %s/$RANK; wait" % workspace.notes, "--rdzv-id", workspace.name, user=USER)
    rank = workspace.wait_for_registered_ranks(1)[0]
    child = wait_until(lambda: os.path.exists(os.path.join(workspace.notes, "0")) and children_of(rank), "the child of the rank")[0]
    wait_until(lambda: b"sleep" in open("/proc/%d/cmdline" % child, "rb").read() and not open("/proc/%d/environ" % child, "rb").read(), "its own program")
    supervisor = supervisor_of(running)
    os.kill(running.pid, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    os.kill(running.pid, signal.SIGKILL)
    running._waiter.join(30)
    wait_until(lambda: not state_of(rank), "the end of the rank")
    try:
        for _ in range(2):
            done = workspace.fulldeck("stop", workspace.name, user=USER)
            assert done.code != 0 and str(child) in done.out + done.err and state_of(child), done
    finally:
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: state_of(child) in ("", "Z"), "the end of the child")
    done = workspace.fulldeck("stop", workspace.name, user=USER)
    assert done.code == 0, done


def test_processes_end_though_nobody_reads_what_the_launcher_logs(workspace):
    """The supervisor is killed while the pipe behind the launcher's stderr is full."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    running = subprocess.Popen([FULLDECK, "run"] + workspace.devices + ["--nproc-per-node", "2", "--no-python", "/bin/sleep", "1000"], cwd=workspace.folder,
                               env=workspace.variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=writing)
    try:
        ranks = workspace.wait_for_ranks(2)
        try:
            while os.write(writing, b"x" * 4096):
                pass
        except BlockingIOError:
            pass
        supervisor, = children_of(running.pid)
        os.kill(supervisor, signal.SIGKILL)
        running.wait(60)
        assert all(state_of(rank) in ("", "Z") for rank in ranks.values())
    finally:
        running.kill()
        os.close(reading)
        os.close(writing)


def test_a_supervisor_that_is_stopped_still_ends_the_run(workspace):
    running = workspace.start_shell(1, "sleep 1000")
    workspace.wait_for_ranks(1)
    supervisor = supervisor_of(running)
    os.kill(supervisor, signal.SIGSTOP)
    wait_until(lambda: state_of(supervisor) == "T", "the supervisor to stand still")
    running.signal(signal.SIGTERM)
    assert running.wait().code == 143


# ---- descriptors


def test_ranks_have_none_of_the_callers_descriptors(workspace):
    secret = workspace.write("secret", "x")
    done = workspace.start_program(["/bin/sh", "-c", 'exec 7<%s 9<%s; exec "$@"' % (secret, secret), "sh", FULLDECK, "run"] + workspace.devices +
                               ["--nproc-per-node", "1", "--no-python", "/bin/ls", "-l", "/proc/self/fd"]).wait()
    assert done.code == 0 and "secret" not in done.out and " 198 -> " in done.out, done


def test_a_run_in_the_foreground_keeps_the_lock_that_it_was_started_with(workspace):
    """exec flock --no-fork LOCK fulldeck run ..., so that two jobs take turns."""
    lock = workspace.write("lock", "")
    running = workspace.start_program(["/bin/sh", "-c", 'exec 8>%s; flock 8; exec "$@"' % lock, "sh", FULLDECK, "run", "--rdzv-id", workspace.name]
                                  + workspace.devices + ["--nproc-per-node", "1", "--no-python", "/bin/sleep", "1000"])
    workspace.wait_for_registered_ranks(1)
    with open(lock) as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        running.signal(signal.SIGTERM)
        running.wait()
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_run_in_the_background_keeps_no_lock_of_its_callers(workspace):
    lock = workspace.write("lock", "")
    done = workspace.start_program(["/bin/sh", "-c", 'exec 8>%s; flock 8; "$@"' % lock, "sh", FULLDECK, "run", "--detach", "--rdzv-id", workspace.name]
                               + workspace.devices + ["--nproc-per-node", "1", "--no-python", "/bin/sleep", "1000"]).wait()
    assert done.code == 0, done
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert workspace.ranks()
    assert workspace.fulldeck("stop", workspace.name).code == 0


def test_too_few_descriptors_for_the_board_are_refused(workspace):
    done = workspace.run_shell(1, "echo ran", limits={resource.RLIMIT_NOFILE: (150, 150)})
    assert done.code == 88 and "ran" not in done.out, done


# ---- logs

PRINTS = """
import os, sys, time
while not os.path.exists({go!r}):
    time.sleep(0.01)
for line in range(200):
    print("x" * 8000, flush=True)
    print("y" * 8000, file=sys.stderr, flush=True)
open(os.path.join({notes!r}, os.environ["RANK"]), "w").close()
"""


def write_printing(workspace, wait=False):
    workspace.write("train.py", PRINTS.format(go=os.path.join(workspace.folder, "go" if wait else ""), notes=workspace.notes))


@needs_root
def test_a_full_disk_ends_no_rank(workspace):
    write_printing(workspace)
    os.makedirs(workspace.runs)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", workspace.runs], check=True)
    try:
        events = os.path.join(workspace.folder, "events")
        done = workspace.run("--nproc-per-node", 2, "train.py", extra={"FULLDECK_EVENTS": events})
        assert done.code == 0 and sorted(os.listdir(workspace.notes)) == ["0", "1"], done
        lost = [event for event in map(json.loads, read(events).splitlines()) if event["id"] == "log-lost"]
        assert {event["rank"] for event in lost} == {0, 1} and all(event["bytes"] > 0 for event in lost), lost
    finally:
        subprocess.run(["umount", workspace.runs], check=True)


@needs_root
def test_a_restart_on_a_full_disk_goes_on_without_logs(workspace):
    os.makedirs(workspace.runs)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=40", "none", workspace.runs], check=True)
    try:
        fill = "i=0; while : >%s/fill-$i; do i=$((i + 1)); done 2>/dev/null" % workspace.runs
        done = workspace.run_shell(1, 'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then %s; exit 3; fi; echo again; touch %s/again' % (fill, workspace.notes), "--max-restarts", 1,
                               extra={"FULLDECK_EVENTS": os.path.join(workspace.folder, "events")})
        assert done.code == 0 and os.path.exists(os.path.join(workspace.notes, "again")), done
        lost = [event for event in map(json.loads, read(os.path.join(workspace.folder, "events")).splitlines()) if event["id"] == "log-lost"]
        assert [(event["rank"], event["attempt"]) for event in lost] == [(0, 1)], lost
    finally:
        subprocess.run(["umount", workspace.runs], check=True)


def test_logs_at_the_limit_of_their_size_end_no_rank(workspace):
    write_printing(workspace)
    done = workspace.run("--nproc-per-node", 2, "train.py", limits={resource.RLIMIT_FSIZE: (65536, 65536)})
    assert done.code == 0 and sorted(os.listdir(workspace.notes)) == ["0", "1"], done
    assert {event["rank"] for event in workspace.events("log-lost")} == {0, 1}


def test_other_writes_to_a_full_disk_fail_as_ever(workspace):
    workspace.write("train.py", """
import os, sys
try:
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(b"x")
except OSError as error:
    sys.exit(error.errno)
""")
    assert workspace.run("--nproc-per-node", 1, "train.py").code == 28


def test_a_launcher_that_is_stopped_blocks_no_rank(workspace):
    write_printing(workspace, wait=True)
    running = workspace.start("--nproc-per-node", 2, "train.py")
    workspace.wait_for_ranks(2)
    stopped = [running.pid, supervisor_of(running)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(state_of(pid) == "T" for pid in stopped), "the launcher to stand still")
    workspace.write("go", "")
    wait_until(lambda: len(os.listdir(workspace.notes)) == 2, "the ranks to have printed everything")
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    assert running.wait().code == 0


# ---- network


@pytest.mark.parametrize("arguments", ["by-name", "by-position"])  # torch 2.3 and older pass them by position
def test_the_store_of_a_run_on_one_node_listens_on_loopback_alone(workspace, arguments):
    pytest.importorskip("torch")
    workspace.write("train.py", """
import importlib, os, sys, torch.distributed as dist
rendezvous = importlib.import_module("torch.distributed.rendezvous")
adapted = rendezvous.TCPStore
if sys.argv[1] == "by-position":
    rendezvous.TCPStore = lambda host_name, port, world_size, is_master, timeout, **more: adapted(
        host_name, port, world_size, is_master, timeout, **more)
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    port = "%04X" % int(os.environ["MASTER_PORT"])
    for table in ("tcp", "tcp6"):
        for line in open("/proc/net/" + table).read().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[1].endswith(":" + port):
                print("LISTENS", fields[1].split(":")[0], flush=True)
dist.barrier()
dist.destroy_process_group()
""")
    done = workspace.run("--nproc-per-node", 2, "train.py", arguments, seconds=300)
    assert done.code == 0, done
    assert [line.split()[-1] for line in done.out.splitlines() if "LISTENS" in line] == ["0100007F"], done


def test_the_token_is_not_passed_on_to_ranks(workspace):
    done = workspace.run_shell(1, "env", extra={"FULLDECK_TOKEN": "s3cr3t"})
    assert done.code == 0 and "RANK=0" in done.out and "s3cr3t" not in done.out, done


def test_the_python_next_to_fulldeck_is_not_taken_where_one_is_named(workspace):
    workspace.write("train.py", "import sys; print(sys.executable)")
    done = workspace.run("--nproc-per-node", 1, "train.py")
    assert sys.executable in done.out, done
