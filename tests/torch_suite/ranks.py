"""A set of processes, one per rank, that is reused from job to job: importing torch and its test module costs a rank
some seconds, a job a few milliseconds. Does not use torch itself; the processes run rank.py.

A job has three steps on every rank: create the default group, run, destroy the group. No rank starts a step before all
of them have finished the one before. The rank cleans up what a job leaves behind (groups, variables). If a job failed,
hung or died, the set is ended, and the next job gets a new one."""
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
RANK_PROGRAM = os.path.join(HERE, "rank.py")
BUILD = os.environ.get("FULLDECK_BUILD_DIR", os.path.join(TOP, "build"))

# Eight ranks that import torch's test modules on two busy cores.
START_SECONDS = 240
# How long the other ranks of a job may continue after one has failed; then their stacks are requested.
GRACE_SECONDS = 10
LOG_BYTES = 6000


def package_folder():
    """The folder of the built Python package; torch finds the backend there by itself."""
    return os.path.join(BUILD, "lib", "python")


def environment(**more):
    """Variables for processes that use torch and the built package, without those of a surrounding run or cluster."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("FULLDECK_", "TORCH", "PET_", "GLOO_", "MASTER_", "SLURM_", "OMPI_", "DDP_"))
            and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "BACKEND", "LD_PRELOAD")}
    path = os.pathsep.join(filter(None, [package_folder(), os.environ.get("PYTHONPATH")]))
    kept.update(PYTHONPATH=path, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1", PYTORCH_PRINT_REPRO_ON_FAILURE="0")
    kept.update(more)
    return kept


class Answer:
    """The result of a job on one rank. kind: 'passed', 'skipped', 'failed', 'hung', 'died', or a text for a rank that
    did not respond."""

    def __init__(self, rank, kind, text="", value=None, log=""):
        self.rank, self.kind, self.text, self.value, self.log = rank, kind, text, value, log

    def __repr__(self):
        parts = ["--- rank {}: {}".format(self.rank, self.kind), self.text.rstrip()]
        if self.kind not in ("passed", "skipped") and self.log.strip():
            parts += ["output of rank {}:".format(self.rank), self.log.rstrip()]
        return "\n".join(part for part in parts if part)


class Outcome:
    """The result of a job on the set: the worst of the ranks' results. kind: 'passed', 'skipped' or 'failed'."""

    def __init__(self, answers, seconds):
        self.answers, self.seconds = answers, seconds
        kinds = {answer.kind for answer in answers}
        if kinds == {"passed"}:
            self.kind = "passed"
        elif kinds <= {"passed", "skipped"}:
            # As in torch's own runner: rank 0 decides whether the test was skipped.
            self.kind = answers[0].kind
        else:
            self.kind = "failed"

    @property
    def reason(self):
        """Why it was skipped, or the first failure in one line."""
        if self.kind == "skipped":
            return self.answers[0].text
        # A rank that failed is more informative than one that waited for it.
        for kind in ("died", "failed", "hung", "told nothing"):
            for answer in self.answers:
                if answer.kind == kind:
                    lines = answer.text.strip().splitlines() or [answer.kind]
                    return "rank {}: {}".format(answer.rank, lines[-1] if kind == "failed" else lines[0])
        return ""

    @property
    def values(self):
        """The return values of the job, by rank."""
        return [answer.value for answer in self.answers]

    def __repr__(self):
        return "{} after {:.1f} s\n{}".format(self.kind, self.seconds, "\n".join(map(repr, self.answers)))


class _Process:
    """One rank: its process, its socket for responses, and its output file."""

    def __init__(self, rank, size, backend, folder, variables, command_of):
        self.rank = rank
        self.log_path = os.path.join(folder, "rank{}.log".format(rank))
        self.log_start = 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        arguments = [sys.executable, RANK_PROGRAM, str(theirs.fileno()), str(rank), str(size), backend]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command_of(rank, arguments), env=variables, cwd=folder, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, pass_fds=[theirs.fileno()])
        theirs.close()
        self.socket = ours
        self._waiting = b""

    def tell(self, message):
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # the process died; the next read reports it

    def read(self):
        """The next message; None at the end of the connection, '' if the line is not complete yet."""
        if b"\n" not in self._waiting:
            try:
                more = self.socket.recv(1 << 16)
            except OSError:
                more = b""
            if not more:
                return None
            self._waiting += more
        if b"\n" not in self._waiting:
            return ""
        line, self._waiting = self._waiting.split(b"\n", 1)
        return json.loads(line.decode())

    def has_message(self):
        return b"\n" in self._waiting

    def log(self):
        """The end of its output since the job started."""
        with open(self.log_path, "rb") as log:
            log.seek(self.log_start)
            text = log.read().decode(errors="replace")
        return text if len(text) <= LOG_BYTES else "…" + text[-LOG_BYTES:]

    def how_it_ended(self):
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            return "closed its connection and runs on"
        return "ended by signal {}".format(signal.Signals(-code).name) if code < 0 else "ended with code {}".format(code)


class RankSet:
    """`size` ranks with this backend. The processes start with the first job. `command_of(rank, arguments)` may add a
    prefix to a rank's command line (`ip netns exec …`); `variables` are added to every rank's environment."""

    def __init__(self, size, backend, variables=None, command_of=None):
        self.size, self.backend = size, backend
        self._variables = variables or {}
        self._command_of = command_of or (lambda rank, arguments: arguments)
        self._processes = []
        self._folder = None
        self._jobs = 0
        self.starts = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    @property
    def pids(self):
        return [process.process.pid for process in self._processes]

    def start(self):
        """Starts the processes if they are not running, and waits until each has imported what it needs."""
        if self._processes:
            return
        self.starts += 1
        self._folder = tempfile.mkdtemp(prefix="fulldeck-ranks-")
        variables = environment(WORLD_SIZE=str(self.size), **self._variables)
        self._processes = [_Process(rank, self.size, self.backend, self._folder, variables, self._command_of)
                           for rank in range(self.size)]
        answers = self._gather("started", time.monotonic() + START_SECONDS)
        if any(answer.kind != "started" for answer in answers):
            self.kill()
            raise RuntimeError("the ranks did not start:\n" + "\n".join(map(repr, answers)))

    def kill(self):
        """Ends the processes. Between jobs they hold nothing that needs an orderly shutdown."""
        for process in self._processes:
            process.socket.close()
            process.process.kill()
            process.process.wait()
        self._processes = []
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def run(self, job, seconds=120, during=None, keep_after_failure=False, survivors=None):
        """Runs a job (see rank.py) on all ranks and returns its Outcome. `during(self)` is called when all ranks have
        started. `survivors`: ranks whose results are awaited when others die; the set is ended after that in any case.
        """
        self.start()
        began = time.monotonic()
        deadline = began + seconds
        self._jobs += 1
        folder = os.path.join(self._folder, "job{}".format(self._jobs))
        for name in ("barrier", "test_dir", "init_dir"):
            os.makedirs(os.path.join(folder, name))
        for process in self._processes:
            process.log_start = os.path.getsize(process.log_path)
            process.tell(dict(job, folder=folder))
        answers = self._gather("ready", deadline)
        if all(answer.kind == "ready" for answer in answers):
            self._tell("go")
            if during is not None:
                during(self)
            answers = self._gather("done", deadline, survivors)
            whole = all(answer.kind in ("passed", "skipped") for answer in answers)
            if whole or (keep_after_failure and all(answer.kind in ("passed", "skipped", "failed") for answer in answers)):
                self._tell("finish")
                ends = self._gather("finished", time.monotonic() + 60)
                if any(answer.kind != "finished" for answer in ends):
                    answers = ends
        outcome = Outcome(answers, time.monotonic() - began)
        if any(answer.kind not in ("passed", "skipped") for answer in answers) and not (
                keep_after_failure and all(answer.kind in ("passed", "skipped", "failed") for answer in answers)):
            self.kill()
        elif self._folder:
            shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def _tell(self, what):
        for process in self._processes:
            process.tell({"do": what})

    def _gather(self, step, deadline, survivors=None):
        """One response per rank for this step. A rank that fails or dies leaves the others GRACE_SECONDS; the stacks of
        ranks without a response by then are requested."""
        answers = {}
        failed = False
        while len(answers) < self.size:
            waiting = [process for process in self._processes if process.rank not in answers]
            if survivors is not None and not any(process.rank in survivors for process in waiting):
                break
            ready = [process for process in waiting if process.has_message()]
            if not ready:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                sockets = {process.socket.fileno(): process for process in waiting}
                ready = [sockets[fd] for fd in select.select(list(sockets), [], [], left)[0]]
            for process in ready:
                message = process.read()
                if message == "":
                    continue
                if message is None:
                    answers[process.rank] = Answer(process.rank, "died", process.how_it_ended(), log=process.log())
                elif message["step"] == step:
                    answers[process.rank] = Answer(process.rank, message.get("kind", step), message.get("text", ""),
                                                   message.get("value"), process.log())
                else:
                    answers[process.rank] = Answer(process.rank, "failed", message.get("text", str(message)), log=process.log())
                if answers[process.rank].kind in ("failed", "died") and not failed:
                    failed = True
                    if survivors is None:
                        deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        silent = [process for process in self._processes if process.rank not in answers]
        stacks = self._stacks(silent)
        for process in silent:
            kind = "told nothing" if failed else "hung"
            answers[process.rank] = Answer(process.rank, kind, "no answer in the step '{}'; it is here:\n{}".format(
                step, stacks[process.rank]), log=process.log())
        return [answers[rank] for rank in range(self.size)]

    @staticmethod
    def _stacks(processes):
        """The stacks of these ranks, which faulthandler writes to their logs on SIGUSR1."""
        before = {process.rank: os.path.getsize(process.log_path) for process in processes}
        for process in processes:
            if process.process.poll() is None:
                process.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline and any(os.path.getsize(process.log_path) == before[process.rank]
                                                  for process in processes):
            time.sleep(0.05)
        time.sleep(0.1 if processes else 0)  # time for the rest of a partial dump
        found = {}
        for process in processes:
            with open(process.log_path, "rb") as log:
                log.seek(before[process.rank])
                found[process.rank] = log.read(LOG_BYTES).decode(errors="replace")
        return found


class RankSets:
    """Sets by size and backend, each started when it is first used. For the fixture of a test module."""

    def __init__(self):
        self._made = {}

    def __call__(self, size, backend="fulldeck"):
        return self._made.setdefault((size, backend), RankSet(size, backend))

    def close(self):
        for rank_set in self._made.values():
            rank_set.kill()
