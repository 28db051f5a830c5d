"""`fulldeck ps`, `stop`, `logs` and `top` on runs with stand-in processes and registry entries that the test writes."""
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time

import pytest

from launching import BUILD

FULLDECK = os.path.join(BUILD, "bin", "fulldeck")
USE_CARD = os.path.join(BUILD, "tests", "use_simulated_card")
# Far more than anything here takes; a loaded machine is slow.
PATIENCE = 180

IGNORES_TERM = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
# Exits on SIGTERM and also kills a given process, like a front that forwards it.
PASSES_ON = """
import os, signal, sys, time
def stop(*_):
    os.kill(int(sys.argv[1]), signal.SIGKILL)
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
print('ready', flush=True)
time.sleep(600)
"""


def identity(pid):
    with open("/proc/%d/stat" % pid) as stat:
        return {"pid": pid, "start_ticks": int(stat.read().rpartition(")")[2].split()[19])}


def pid_space():
    with open("/proc/sys/kernel/random/boot_id") as boot:
        return boot.read().strip() + "/" + os.readlink("/proc/self/ns/pid")


class Runs:
    """A user's registry with stand-ins for launchers and ranks."""

    def __init__(self, folder):
        self.work = folder / "work"
        self.work.mkdir()
        self.registry = folder / "runtime" / "runs"
        self.registry.parent.mkdir(mode=0o700)
        self.registry.mkdir(mode=0o700)
        state = folder / "state"
        state.mkdir(mode=0o700)
        self.environment = {k: v for k, v in os.environ.items()
                            if "VISIBLE_DEVICES" not in k and not k.startswith("FULLDECK_")}
        self.environment.update(FULLDECK_RUNTIME_DIR=str(self.registry.parent), FULLDECK_SIMULATE_DIR=str(state))
        self.processes = []

    def start(self, *command, **options):
        process = subprocess.Popen([str(word) for word in command], start_new_session=True, **options)
        self.processes.append(process)
        return process

    def sleeper(self):
        return self.start("sleep", "600")

    def python(self, script, *arguments):
        process = self.start(sys.executable, "-c", script, *arguments, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        return process

    def add(self, run_id, front=None, supervisor=None, ranks=(), **fields):
        """Registers a run. Without a supervisor it is the entry of a killed launcher."""
        gone = {"pid": 0, "start_ticks": 0}
        directory = self.work / "fulldeck_runs" / run_id
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        (directory / "logs" / "train.log").touch()
        record = {
            "version": 1, "run_id": run_id, "user": "tester", "host": socket.gethostname(), "directory": str(directory),
            "working_directory": str(self.work), "command": ["python3", "train.py"],
            "front": identity(front.pid) if front else gone,
            "supervisor": identity(supervisor.pid) if supervisor else gone,
            "board_fd": -1, "started_unix_seconds": int(time.time()) - 3700, "grace_milliseconds": 20000, "attempt": 0,
            "max_restarts": 0, "first_rank": 0, "world_size": max(1, len(ranks)), "group_rank": 0, "group_world_size": 1,
            "ranks": [{"local_rank": i, "process": identity(rank.pid)} for i, rank in enumerate(ranks)],
            "cards": [None for _ in ranks], "cgroups": [], "pid_space": pid_space(),
        }
        record.update(fields)
        path = self.registry / (run_id + ".json")
        path.write_text(json.dumps(record))
        return directory

    def entries(self):
        return sorted(path.name for path in self.registry.iterdir())

    def popen(self, *arguments, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([FULLDECK] + [str(word) for word in arguments], env=self.environment,
                                   cwd=str(self.work), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.processes.append(process)
        return process

    def run(self, *arguments):
        process = self.popen(*arguments, universal_newlines=True)
        process.out, process.err = process.communicate(timeout=PATIENCE)
        return process

    def json(self, *arguments):
        done = self.run(*arguments)
        assert done.returncode == 0, done.err
        return json.loads(done.out)["runs"]

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def runs(tmp_path):
    made = Runs(tmp_path)
    yield made
    made.end()


def eventually(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def ended_by(process):
    return -process.wait(timeout=PATIENCE)


# ---- ps ----

def test_ps_without_runs_says_so(runs):
    done = runs.run("ps")
    assert (done.returncode, done.out, done.err) == (0, "No run of yours is on this machine.\n", "")
    assert runs.json("ps", "--json") == []


def test_ps_shows_running_runs_and_what_was_left_behind(runs):
    launcher, rank = runs.sleeper(), runs.sleeper()
    directory = runs.add("alpha", launcher, launcher, [rank, rank], attempt=1, max_restarts=3,
                         cards=[{"name": "gcu 0", "serial": "A"}, {"name": "gcu 1", "serial": "B"}])
    runs.add("beta", None, None, [rank])
    done = runs.run("ps")
    assert done.returncode == 0 and done.err == "" and "\x1b" not in done.out
    lines = done.out.splitlines()
    assert lines[0].split() == ["RUN", "STATE", "RANKS", "CARDS", "SINCE", "DIRECTORY"]
    alpha = next(line for line in lines if line.startswith("alpha"))
    assert "running, restart 1 of 3" in alpha and "gcu 0-1" in alpha and "1 h 1 min" in alpha and str(directory) in alpha
    beta = next(line for line in lines if line.startswith("beta"))
    assert "left behind, 1 process alive" in beta and "processors" in beta
    assert "fulldeck stop beta" in done.out

    objects = {run["run_id"]: run for run in runs.json("ps", "--json")}
    assert objects["alpha"]["alive"] and not objects["beta"]["alive"]
    assert objects["alpha"]["ranks"][1]["pid"] == rank.pid and objects["alpha"]["ranks"][1]["card"]["serial"] == "B"
    assert objects["alpha"]["command"] == ["python3", "train.py"] and objects["alpha"]["step"] is None
    assert runs.entries() == ["alpha.json", "beta.json"], "looking removes nothing"


def test_ps_warns_of_files_that_are_no_entries(runs):
    (runs.registry / "bad.json").write_text('{"version": 1, "run_id": "\x1b[2J"}')
    (runs.registry / "newer.json").write_text('{"version": 99}')
    launcher = runs.sleeper()
    runs.add("good", launcher, launcher)
    done = runs.run("ps")
    assert done.returncode == 0 and "good" in done.out
    assert "bad.json cannot be understood" in done.err and "newer.json cannot be understood: it has version 99" in done.err


def test_ps_tells_the_ranks_of_one_host_of_several(runs):
    launcher = runs.sleeper()
    runs.add("job", launcher, launcher, [launcher] * 4, first_rank=4, world_size=8, group_rank=1, group_world_size=2)
    assert "4-7 of 8" in runs.run("ps").out


def test_ps_watch_sees_a_run_come_and_go(runs):
    watch = runs.popen("ps", "--watch=0.1")
    assert watch.stdout.readline() == b"No run of yours is on this machine.\n"
    launcher = runs.sleeper()
    runs.add("alpha", launcher, launcher)
    while not watch.stdout.readline().startswith(b"alpha"):
        pass
    (runs.registry / "alpha.json").unlink()
    while watch.stdout.readline() != b"No run of yours is on this machine.\n":
        pass
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=PATIENCE)
    assert watch.returncode == 0


# ---- stop ----

def test_stop_asks_the_front_and_says_what_happened(runs):
    supervisor = runs.python(IGNORES_TERM)
    front = runs.python(PASSES_ON, supervisor.pid)
    runs.add("alpha", front, supervisor)
    done = runs.run("stop")
    assert done.returncode == 0, done.err
    assert "fulldeck: run alpha: asked process %d to stop; waiting for at most 25 s" % front.pid in done.err
    assert "fulldeck: run alpha: stopped in" in done.err
    assert front.wait(timeout=PATIENCE) == 0 and ended_by(supervisor) == signal.SIGKILL
    assert runs.entries() == []


def test_stop_kills_what_does_not_end_in_time_and_its_ranks(runs):
    launcher, rank = runs.python(IGNORES_TERM), runs.python(IGNORES_TERM)
    bystander = runs.sleeper()
    runs.add("alpha", launcher, launcher, [rank])
    done = runs.run("stop", "al", "--timeout", "0.3")
    assert done.returncode == 0
    assert "run alpha: did not end within 0.3 s and was killed; 1 process killed" in done.err
    assert ended_by(launcher) == signal.SIGKILL and ended_by(rank) == signal.SIGKILL
    assert bystander.poll() is None and runs.entries() == []


def test_stop_cleans_up_after_a_dead_launcher(runs):
    rank = runs.python(IGNORES_TERM)
    runs.add("alpha", None, None, [rank])
    done = runs.run("stop")
    assert done.returncode == 1 and "no run is running. Runs of yours: alpha (left behind)." in done.err
    done = runs.run("stop", "alpha")
    assert done.returncode == 0 and "left behind by a launcher that is gone" in done.err
    assert ended_by(rank) == signal.SIGKILL and runs.entries() == []


def test_stop_never_hits_a_process_that_got_a_recorded_pid(runs):
    bystander = runs.sleeper()
    other = dict(identity(bystander.pid), start_ticks=7)
    runs.add("alpha")
    entry = json.loads((runs.registry / "alpha.json").read_text())
    entry.update(front=other, supervisor=other, ranks=[{"local_rank": 0, "process": other}])
    (runs.registry / "alpha.json").write_text(json.dumps(entry))
    assert runs.run("stop", "alpha").returncode == 0
    assert bystander.poll() is None and runs.entries() == []


def test_stop_wants_a_name_where_several_runs_are(runs):
    launchers = [runs.sleeper() for _ in range(3)]
    for name, launcher in zip(("alpha-1", "alpha-2", "beta"), launchers):
        runs.add(name, launcher, launcher)
    done = runs.run("stop")
    assert done.returncode == 1 and "several runs are running; name one. Runs of yours: alpha-1, alpha-2, beta." in done.err
    done = runs.run("stop", "alpha")
    assert done.returncode == 1 and "is not the beginning of one run alone" in done.err
    done = runs.run("stop", "beta", "gamma")
    assert done.returncode == 1 and "there is no run 'gamma'" in done.err
    assert all(launcher.poll() is None for launcher in launchers), "nothing was stopped"
    done = runs.run("stop", runs.work / "fulldeck_runs" / "beta", "alpha-1")
    assert done.returncode == 0 and ended_by(launchers[2]) == signal.SIGTERM and ended_by(launchers[0]) == signal.SIGTERM
    assert launchers[1].poll() is None
    assert runs.run("stop", "--all").returncode == 0
    assert ended_by(launchers[1]) == signal.SIGTERM and runs.entries() == []
    done = runs.run("stop", "--all")
    assert done.returncode == 0 and "no run of yours" in done.err


@pytest.mark.parametrize("arguments,message", [
    (["stop", "--all", "alpha"], "give --all or the names of runs, not both"),
    (["stop", "--holders", "gcu:0", "alpha"], "--holders stops the processes on a card"),
    (["stop", "--holders", "gcu:9"], "there is no card 'gcu:9'. Cards: gcu 0, gcu 1."),
    (["stop", "--holders", ""], "--holders"),
    (["stop", "--timeout", "-1"], "--timeout"),
    (["stop", "--timeuot", "1"], "did you mean --timeout?"),
    (["logs", "--stdout"], "need --rank"),
    (["logs", "--rank", "0", "--stdout", "--stderr"], "not both"),
    (["logs", "--rank", "-1"], "--rank"),
    (["logs", "-n", "many"], "--lines"),
    (["top", "--interval", "0"], "--interval"),
    (["ps", "extra"], "unexpected argument 'extra'"),
    (["sotp"], "did you mean 'fulldeck stop'?"),
])
def test_mistakes_on_the_command_line_are_explained(runs, arguments, message):
    runs.environment["FULLDECK_SIMULATE"] = "gcu:2"
    done = runs.run(*arguments)
    assert done.returncode == 2, done.err
    assert done.err.startswith("fulldeck: error: ") and message in done.err and done.out == ""


# ---- stop --holders ----

@pytest.fixture
def holder(runs):
    runs.environment["FULLDECK_SIMULATE"] = "gcu:4"
    process = runs.start(USE_CARD, "3", "1048576", env=runs.environment, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"busy\n"
    return process


def test_stop_holders_shows_them_and_needs_yes_without_a_terminal(runs, holder):
    done = runs.run("stop", "--holders", "gcu:3")
    assert done.returncode == 2 and "Give --yes" in done.err
    assert "gcu 3 is held by:" in done.out and str(holder.pid) in done.out and "use_simulated_card 3" in done.out
    assert holder.poll() is None
    done = runs.run("stop", "--holders", "3", "--yes")
    assert done.returncode == 0 and "process %d has ended" % holder.pid in done.err
    assert ended_by(holder) == signal.SIGTERM
    assert runs.run("stop", "--holders", "gcu 3", "--yes").out == "Nobody holds gcu 3.\n"


def answer_on_terminal(runs, arguments, answer):
    """The command's output on a pseudo-terminal on which the question is answered, and its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(FULLDECK, [FULLDECK] + arguments, runs.environment)
    output = b""
    answered = False
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            output += os.read(terminal, 65536)
        except OSError:
            break
        if b"[y/N]" in output and not answered:
            os.write(terminal, answer)
            answered = True
    status = os.waitpid(child, 0)[1]
    os.close(terminal)
    return output.decode("utf-8", "replace"), os.WEXITSTATUS(status)


def test_stop_holders_asks_on_a_terminal(runs, holder):
    for answer in (b"\n", b"n\n", b"maybe\n", b"\x04"):
        output, code = answer_on_terminal(runs, ["stop", "--holders", "gcu:3"], answer)
        assert "stop this process? [y/N]" in output and "nothing was stopped" in output and code == 1
        assert holder.poll() is None
    output, code = answer_on_terminal(runs, ["stop", "--holders", "gcu:3"], b"y\n")
    assert "has ended" in output and code == 0
    assert ended_by(holder) == signal.SIGTERM


def test_stop_holders_names_the_run_of_a_rank(runs, holder):
    launcher = runs.sleeper()
    runs.add("alpha", launcher, launcher, [holder])
    done = runs.run("stop", "--holders", "gcu:3")
    assert "a rank of run alpha is among them; fulldeck stop alpha ends that run as a whole" in done.err
    assert "alpha" in done.out


def test_stop_holders_leaves_its_own_ancestors_alone(runs):
    runs.environment["FULLDECK_SIMULATE"] = "gcu:4"
    # Holds the card and then calls fulldeck on it.
    script = """
import ctypes, subprocess, sys
library = ctypes.CDLL(sys.argv[1])
card = ctypes.c_void_p()
assert library.fulldeck_simulated_card_open(2, ctypes.byref(card)) == 0
sys.exit(subprocess.call([sys.argv[2], "stop", "--holders", "gcu:2", "--yes"]))
"""
    library = os.path.join(BUILD, "lib", "libfulldeck_simulated_card.so")
    done = subprocess.run([sys.executable, "-c", script, library, FULLDECK], env=runs.environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=PATIENCE)
    assert done.returncode == 1 and "is left alone: fulldeck itself was started from it" in done.stderr


# ---- logs ----

def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(str(path), "a") as log:
        log.write(text)


def test_logs_shows_the_newest_run_and_its_last_lines(runs):
    done = runs.run("logs")
    assert done.returncode == 1 and "no run is running, and there is none below" in done.err
    old, new = runs.work / "fulldeck_runs" / "old", runs.work / "fulldeck_runs" / "new"
    write(old / "logs" / "train.log", "old\n")
    write(new / "logs" / "train.log", "".join("[%d] line %d\n" % (i % 2, i) for i in range(500)))
    os.utime(str(old / "logs" / "train.log"), (1000, 1000))
    os.utime(str(old), (1000, 1000))
    done = runs.run("logs")
    assert done.returncode == 0 and done.err == "" and len(done.out.splitlines()) == 500
    assert runs.run("logs", "-n", "2").out == "[0] line 498\n[1] line 499\n"
    assert runs.run("logs", "old").out == "old\n"
    assert runs.run("logs", old).out == "old\n"
    assert runs.run("logs", "new", "-n", "0").out == ""


def test_logs_of_a_rank_are_those_of_the_latest_attempt(runs):
    launcher = runs.sleeper()
    directory = runs.add("alpha", launcher, launcher, [launcher] * 2, first_rank=2, world_size=4, group_rank=1,
                         group_world_size=2)
    for attempt in (0, 1):
        for rank in (0, 1):
            for stream in ("stdout", "stderr"):
                write(directory / ("attempt_%d" % attempt) / str(rank) / (stream + ".log"),
                      "%s of %d in %d\n" % (stream, rank, attempt))
    assert runs.run("logs", "--rank", "3", "--stdout").out == "stdout of 1 in 1\n"
    assert runs.run("logs", "--rank", "2", "--stderr").out == "stderr of 0 in 1\n"
    both = runs.run("logs", "--rank", "3").out
    assert "==> %s/attempt_1/1/stdout.log <==\nstdout of 1 in 1\n" % directory in both
    assert "==> %s/attempt_1/1/stderr.log <==\nstderr of 1 in 1\n" % directory in both
    done = runs.run("logs", "--rank", "0")
    assert done.returncode == 1 and "rank 0 of run alpha is not on this host: ranks 2 to 3 are" in done.err


def test_logs_follows_until_the_run_has_ended(runs):
    launcher = runs.sleeper()
    directory = runs.add("alpha", launcher, launcher)
    log = directory / "logs" / "train.log"
    write(log, "".join("line %d\n" % i for i in range(300)))
    follow = runs.popen("logs", "-f")
    for i in range(200, 300):
        assert follow.stdout.readline() == b"line %d\n" % i
    write(log, "unfin")
    assert os.read(follow.stdout.fileno(), 100) == b"unfin"
    write(log, "ished\n")
    assert follow.stdout.readline() == b"ished\n"
    os.truncate(str(log), 0)
    write(log, "after the cut\n")
    assert follow.stdout.readline() == b"after the cut\n"
    assert follow.poll() is None
    write(log, "last words")
    launcher.kill()
    launcher.wait()
    out, err = follow.communicate(timeout=PATIENCE)
    assert follow.returncode == 0 and out == b"last words" and err == b"fulldeck: run alpha has ended\n"


def test_logs_follows_a_rank_into_the_next_attempt(runs):
    launcher = runs.sleeper()
    directory = runs.add("alpha", launcher, launcher, [launcher])
    follow = runs.popen("logs", "-f", "--rank", "0", "--stdout")
    write(directory / "attempt_0" / "0" / "stdout.log", "first\n")
    assert follow.stdout.readline() == b"first\n"
    write(directory / "attempt_1" / "0" / "stdout.log", "second\n")
    assert follow.stdout.readline() == b"second\n"
    launcher.kill()
    launcher.wait()
    _, err = follow.communicate(timeout=PATIENCE)
    assert follow.returncode == 0 and b"run alpha: attempt 2 begins" in err


def test_logs_follow_of_an_ended_run_ends_at_once_and_ctrl_c_ends_any(runs):
    write(runs.work / "fulldeck_runs" / "old" / "logs" / "train.log", "old\n")
    done = runs.run("logs", "-f")
    assert (done.returncode, done.out, done.err) == (0, "old\n", "fulldeck: run old has ended\n")
    launcher = runs.sleeper()
    runs.add("alpha", launcher, launcher)
    write(runs.work / "fulldeck_runs" / "alpha" / "logs" / "train.log", "hello\n")
    follow = runs.popen("logs", "-f", "alpha")
    assert follow.stdout.readline() == b"hello\n"
    follow.send_signal(signal.SIGINT)
    follow.communicate(timeout=PATIENCE)
    assert follow.returncode == 0


def test_logs_of_nothing_is_an_error(runs):
    for arguments, message in ((["nothing"], "there is no run 'nothing'"), ([str(runs.work)], "is no run directory")):
        done = runs.run("logs", *arguments)
        assert done.returncode == 1 and message in done.err, done.err
    (runs.work / "fulldeck_runs" / "empty" / "logs").mkdir(parents=True)
    done = runs.run("logs", "empty")
    assert done.returncode == 1 and "train.log (yet)" in done.err


def test_logs_keeps_up_with_a_flood(runs):
    launcher = runs.sleeper()
    directory = runs.add("alpha", launcher, launcher)
    follow = runs.popen("logs", "-f", "-n", "0")
    # Followed from its start, whatever was written while the program started.
    marker = "".join("%07d\n" % i for i in range(500000))
    eventually(lambda: inotify_watches(follow.pid) > 0)
    with open(str(directory / "logs" / "train.log"), "a") as log:
        log.write(marker)
    received = b""
    while len(received) < len(marker):
        received += os.read(follow.stdout.fileno(), 1 << 20)
    assert received == marker.encode()
    follow.send_signal(signal.SIGTERM)
    follow.communicate(timeout=PATIENCE)


def inotify_watches(pid):
    count = 0
    for name in os.listdir("/proc/%d/fdinfo" % pid):
        try:
            with open("/proc/%d/fdinfo/%s" % (pid, name)) as info:
                count += info.read().count("inotify wd:")
        except FileNotFoundError:
            pass
    return count


# ---- top ----

def test_top_without_runs_says_so(runs):
    for arguments in (["top"], ["top", "--once"], ["top", "alpha", "--once"]):
        done = runs.run(*arguments)
        assert done.returncode == 1 and "run" in done.err and done.out == ""


def test_top_shows_ranks_and_their_cards_together(runs, holder):
    launcher = runs.sleeper()
    cards = [{"name": "gcu %d" % i, "serial": "SIM-gcu-%04d" % i} for i in (2, 3)]
    runs.add("alpha", launcher, launcher, [launcher, holder], cards=cards)
    ranks = runs.json("top", "--once", "--interval", "0.3", "--json")[0]["ranks"]
    assert ranks[0]["card"]["utilisation_percent"] == 0 and ranks[1]["card"]["memory_used_bytes"] == 1048576
    assert ranks[1]["pid"] == holder.pid and ranks[1]["resident_bytes"] > 0 and ranks[1]["processor_percent"] is not None
    assert ranks[1]["step"] is None and ranks[1]["state"] == "running"
    done = runs.run("top", "--once", "--interval", "0.2")
    assert done.returncode == 0 and "run alpha: running, attempt 1 of 1, since 1 h 1 min, 2 ranks" in done.out
    row = next(line for line in done.out.splitlines() if "gcu 3" in line)
    assert str(holder.pid) in row and "1 MiB / 48 GiB" in row and "running" in row


def test_top_does_not_take_another_servers_card_for_the_ranks(runs, holder):
    launcher = runs.sleeper()
    runs.add("alpha", launcher, launcher, [launcher], cards=[{"name": "gcu 3", "serial": "A-REAL-ONE"}])
    ranks = runs.json("top", "--once", "--interval", "0.1", "--json")[0]["ranks"]
    assert ranks[0]["card"]["name"] == "gcu 3" and ranks[0]["card"]["memory_used_bytes"] is None


def test_top_shows_all_runs_again_and_again_until_they_have_ended(runs):
    launchers = [runs.sleeper(), runs.sleeper()]
    for name, launcher in zip(("alpha", "beta"), launchers):
        runs.add(name, launcher, launcher, [launcher])
    top = runs.popen("top", "--interval", "0.1")
    seen = []
    while seen.count("alpha") < 3 or seen.count("beta") < 3:
        line = top.stdout.readline().decode()
        assert line, "it ended by itself"
        if line.startswith("run "):
            seen.append(line.split()[1].rstrip(":"))
    for launcher in launchers:
        launcher.kill()
        launcher.wait()
    _, err = top.communicate(timeout=PATIENCE)
    assert top.returncode == 0 and err == b"fulldeck: all runs have ended\n"


def test_top_of_a_named_run_shows_it_alone(runs):
    launchers = [runs.sleeper(), runs.sleeper()]
    for name, launcher in zip(("alpha", "beta"), launchers):
        runs.add(name, launcher, launcher, [launcher])
    assert [run["run_id"] for run in runs.json("top", "be", "--once", "--interval=0.1", "--json")] == ["beta"]
    assert {run["run_id"] for run in runs.json("top", "--once", "--interval=0.1", "--json")} == {"alpha", "beta"}


def test_top_names_ranks_that_are_gone_or_stopped(runs):
    launcher, stopped, gone = runs.sleeper(), runs.sleeper(), runs.sleeper()
    runs.add("alpha", launcher, launcher, [launcher, stopped, gone])
    stopped.send_signal(signal.SIGSTOP)
    gone.kill()
    gone.wait()

    def states():
        return [rank["state"] for rank in runs.json("top", "--once", "--interval=0.1", "--json")[0]["ranks"]]

    eventually(lambda: states() == ["running", "stopped", "gone"])
    assert "1 of 3 ranks ended, 1 of 3 ranks stopped" in runs.run("ps").out
