"""Shared by the tests of the launcher: a private workspace for each test, in which `fulldeck` runs with a clean
environment, and the check that a run left no process and no file. Needs no pytest; the fixture `workspace` is in
conftest.py."""
import contextlib
import fcntl
import glob
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
BUILD = os.environ.get("FULLDECK_BUILD_DIR", os.path.join(TOP, "build"))
FULLDECK = os.path.join(BUILD, "bin", "fulldeck")
PROGRAMS = os.path.join(BUILD, "tests")
FAULT_RANK = os.path.join(PROGRAMS, "fault_rank")
MARKER = "FULLDECK_TEST_MARKER"

# Ranks that crash on purpose must not fill the disk.
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

# A shell that starts the tests in the background ignores these, and ignored signals are inherited.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

# Variables that a surrounding cluster, launcher or shell may have set, and that tests must not see.
FOREIGN = re.compile(r"FULLDECK_|PET_|SLURM_|OMPI_|PMI_|PMIX_|MPI_|TORCHELASTIC_|TORCH_|ACCELERATE_|ECCL_|KUBERNETES_|"
                     r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|OMP_NUM_THREADS|LD_PRELOAD|"
                     r"NO_COLOR|JOB_COMPLETION_INDEX|PYTHONPATH|PYTHON_EXEC|TMPDIR|XDG_RUNTIME_DIR)$")


# Waits are bounded only so that a hang fails instead of blocking: this factor times the seconds on an idle machine.
# tests/grids/promises.py measures fulldeck's speed on an idle machine and fails at the promised value.
PATIENCE = float(os.environ.get("FULLDECK_TEST_PATIENCE", "3"))


def wait_until(condition, what, seconds=30):
    """Polls until `condition` returns something true, and returns that."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "waited %g s for: %s" % (seconds, what)
        time.sleep(0.005)


def read(path):
    try:
        with open(str(path), errors="replace") as file:
            return file.read()
    except (OSError, IOError):
        return ""


# Above are the ports that fulldeck derives from a job's id (20000 to 28999) and the default of programs (29500).
_PORTS = range(10000, 20000)
_port_locks = []  # held until this process exits


def _lock_port(port):
    """The lock on a port, or None if another test process holds it. The kernel releases it when this process exits."""
    folder = os.path.join(tempfile.gettempdir(), "ports-of-tests-%d" % os.getuid())
    os.makedirs(folder, mode=0o700, exist_ok=True)
    lock = open(os.path.join(folder, str(port)), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock


def _can_be_bound(port):
    try:
        with contextlib.closing(socket.socket()) as probe:
            probe.bind(("", port))
    except OSError:
        return False
    return True


def free_port():
    """A free TCP port that no other test gets until this process exits. It is below the range that the kernel uses for
    connections and for bind to port 0, so that no process takes it by chance before the intended program opens it."""
    first_of_the_kernels = int(read("/proc/sys/net/ipv4/ip_local_port_range").split()[0])
    below = [port for port in _PORTS if port < first_of_the_kernels]
    for port in random.sample(below or _PORTS, len(below or _PORTS)):
        lock = _lock_port(port)
        if lock is None:
            continue
        if _can_be_bound(port):
            _port_locks.append(lock)
            return port
        lock.close()
    raise AssertionError("no port is free")


def variables_of(pid):
    """The environment with which a process was started; empty if it has exited, is a zombie, or is not readable."""
    text = read("/proc/%s/environ" % pid)
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def state_of(pid):
    """'R', 'S', 'T', 'D', 'Z' …, and '' if there is no such process."""
    text = read("/proc/%s/stat" % pid)
    return text[text.rfind(")") + 2:][:1]


def children_of(pid):
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        text = read(path)
        fields = text[text.rfind(")") + 2:].split()
        if len(fields) > 1 and fields[1] == str(pid) and fields[0] != "Z":
            found.append(int(path.split("/")[2]))
    return found


def cgroup_folders():
    found = []
    for base, folders, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(base, name) for name in folders if name.startswith("fulldeck-")]
    return found


class Done:
    """A program that has exited: code, out, err, and its duration."""

    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    @property
    def ours(self):
        """All messages of fulldeck itself, as one text."""
        return "\n".join(line for line in self.err.splitlines() if line.startswith("fulldeck:"))

    @property
    def root_cause(self):
        """The line that names the root cause; empty if there is none."""
        lines = [line for line in self.err.splitlines() if "root cause: " in line]
        return lines[-1] if lines else ""

    def __repr__(self):
        return "exit code %d after %.2f s\n--- stdout\n%s\n--- stderr\n%s" % (self.code, self.seconds, self.out[-6000:],
                                                                           self.err[-6000:])


class Running:
    """A running program. Every line of its output is kept with the time at which it was read, so that a test can
    measure how long after a fault a message appeared."""

    def __init__(self, arguments, variables, folder, ignored=(), stdin=None, limits=None, user=None):
        def prepare():
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
            for which, value in (limits or {}).items():
                resource.setrlimit(which, value)

        self.began = time.monotonic()
        self.ended = None
        self.process = subprocess.Popen(arguments, env=variables, cwd=str(folder), stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, stdin=stdin or subprocess.DEVNULL,
                                        preexec_fn=prepare if ignored or limits else None,
                                        **({} if user is None else dict(user=user, group=user, extra_groups=[])))
        self.pid = self.process.pid
        self.lines = {"out": [], "err": []}
        self._readers = [threading.Thread(target=self._read, args=(stream, self.lines[name]), daemon=True)
                         for name, stream in (("out", self.process.stdout), ("err", self.process.stderr))]
        # Popen.wait with a timeout polls; a thread in waitpid has millisecond precision.
        self._waiter = threading.Thread(target=self._wait, daemon=True)
        for thread in self._readers + [self._waiter]:
            thread.start()

    def _read(self, stream, lines):
        for line in iter(stream.readline, b""):
            lines.append((time.monotonic(), line.decode(errors="replace")))
        stream.close()

    def _wait(self):
        self.process.wait()
        self.ended = time.monotonic()

    @property
    def out(self):
        return "".join(line for _, line in list(self.lines["out"]))

    @property
    def err(self):
        return "".join(line for _, line in list(self.lines["err"]))

    @property
    def alive(self):
        return self.ended is None

    def signal(self, number):
        os.kill(self.pid, number)

    def wait_for(self, text, seconds=30):
        """Waits until `text` is on stderr; returns the time at which it was read."""
        def when():
            return next((moment for moment, line in list(self.lines["err"]) if text in line), None)
        wait_until(lambda: when() or not self.alive, "'%s' on stderr\n%s" % (text, self.err), seconds)
        self.alive or [reader.join(10) for reader in self._readers]
        assert when(), "it ended with %s and never said '%s'\n%s" % (self.process.returncode, text, self.err)
        return when()

    def wait(self, seconds=60):
        seconds *= PATIENCE
        self._waiter.join(seconds)
        assert not self.alive, "still running after %g s\n%s\n%s" % (seconds, self.out[-4000:], self.err[-4000:])
        for reader in self._readers:
            reader.join(10 * PATIENCE)
            assert not reader.is_alive(), "a process that outlived the launcher still holds its output\n%s" % self.err
        return Done(self.process.returncode, self.out, self.err, self.ended - self.began)


class Workspace:
    """A private folder, environment and marker."""

    def __init__(self, folder):
        self.folder = str(folder)
        self.runs = os.path.join(self.folder, "fulldeck_runs")
        self.notes = os.path.join(self.folder, "notes")
        self.marker = uuid.uuid4().hex
        self.name = "run-" + self.marker[:8]  # for --rdzv-id; leftovers of a run with that name belong to this test
        self.devices = ["--devices", "cpu"]
        self.started = []
        self.variables = {name: value for name, value in os.environ.items()
                          if not FOREIGN.match(name) and "VISIBLE_DEVICES" not in name}
        self.variables.update({MARKER: self.marker, "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"})
        for name in ("runtime", "leases", "simulated", "temporary", "notes"):
            os.makedirs(os.path.join(self.folder, name), mode=0o700)
        for variable, name in (("FULLDECK_RUNTIME_DIR", "runtime"), ("FULLDECK_LEASE_DIR", "leases"),
                               ("FULLDECK_SIMULATE_DIR", "simulated"), ("TMPDIR", "temporary")):
            self.variables[variable] = os.path.join(self.folder, name)
        self._elsewhere = self._named_for_us()

    # ---- files

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def note(self, name):
        return read(os.path.join(self.notes, name))

    def run_folder(self):
        """Of the only run so far."""
        folders = sorted(glob.glob(os.path.join(self.runs, "*")))
        assert len(folders) == 1, folders
        return folders[0]

    def events(self, *ids):
        """The events that the only run so far recorded in events.jsonl, in order; with `ids` only events with these
        ids. The last line of a running run may be incomplete."""
        lines = read(os.path.join(self.run_folder(), "events.jsonl")).splitlines(True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in found if not ids or event["id"] in ids]

    def log(self, local_rank, stream="stderr", attempt=0):
        return read(os.path.join(self.run_folder(), "attempt_%d" % attempt, str(local_rank), stream + ".log"))

    def merged_log(self):
        return read(os.path.join(self.run_folder(), "logs", "train.log"))

    def event(self, name):
        """The only event with that id."""
        found = self.events(name)
        assert len(found) == 1, self.events()
        return found[0]

    # ---- programs

    def simulate(self, cards):
        """From now on, runs see these simulated cards instead of the CPU."""
        self.variables["FULLDECK_SIMULATE"] = cards
        self.devices = []

    def start_program(self, arguments, **options):
        variables = dict(self.variables, **options.pop("extra", {}))
        running = Running(arguments, variables, self.folder, **options)
        self.started.append(running)
        return running

    def start(self, *arguments, **options):
        """`fulldeck run` with these arguments."""
        return self.start_program([FULLDECK, "run"] + self.devices + [str(each) for each in arguments], **options)

    def run(self, *arguments, **options):
        seconds = options.pop("seconds", 60)
        return self.start(*arguments, **options).wait(seconds)

    def fulldeck(self, *arguments, **options):
        seconds = options.pop("seconds", 60)
        return self.start_program([FULLDECK] + [str(each) for each in arguments], **options).wait(seconds)

    def start_fault(self, nproc, *options, **settings):
        """A run of fault_rank; `flags` go to the launcher, `options` to the program."""
        flags = settings.pop("flags", [])
        return self.start("--nproc-per-node", nproc, *(list(flags) + [FAULT_RANK, "notes=" + self.notes] + list(options)),
                          **settings)

    def run_shell(self, nproc, script, *flags, **options):
        return self.run("--nproc-per-node", nproc, *(list(flags) + ["--no-python", "/bin/sh", "-c", script]), **options)

    def start_shell(self, nproc, script, *flags, **options):
        return self.start("--nproc-per-node", nproc, *(list(flags) + ["--no-python", "/bin/sh", "-c", script]), **options)

    # ---- processes

    def processes(self):
        """All processes started from here, including daemons."""
        mark = ("%s=%s" % (MARKER, self.marker)).encode()
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found.append(int(path.split("/")[2]))
            except (OSError, IOError):
                pass
        return found

    def ranks(self):
        """Pids by rank, of the running ranks."""
        found = {}
        for pid in self.processes():
            variables = variables_of(pid)
            if variables.get("FULLDECK_RANK_PID") == str(pid):
                found[int(variables["RANK"])] = pid
        return found

    def wait_for_ranks(self, count):
        return wait_until(lambda: len(self.ranks()) == count and self.ranks(), "%d ranks" % count)

    def registered_ranks(self):
        """Pids of the ranks that `fulldeck ps`, `stop` and `stacks` can find: the launcher registers them once all
        ranks have started."""
        entries = [read(path) for path in glob.glob(os.path.join(self.folder, "runtime", "runs", "*.json"))]
        return {rank["process"]["pid"] for entry in entries if entry for rank in json.loads(entry)["ranks"]}

    def wait_for_registered_ranks(self, count):
        """Called before a test queries `fulldeck` about a run: a rank may work before its run is registered."""
        self.wait_for_ranks(count)
        wait_until(lambda: set(self.ranks().values()) <= self.registered_ranks(), "the run's entry in the registry")
        return self.ranks()

    def fault(self):
        """When fault_rank had its fault (seconds of time.monotonic), and in which process."""
        nanoseconds, pid = wait_until(lambda: self.note("fault"), "the fault").split()
        return int(nanoseconds) / 1e9, int(pid)

    # ---- leftovers

    def _named_for_us(self):
        return {path for folder in ("/dev/shm", "/tmp", "/var/tmp", "/run") for path in glob.glob(folder + "/*")
                if "fulldeck" in os.path.basename(path)}

    def _run_names(self):
        return [os.path.basename(folder) for folder in glob.glob(os.path.join(self.runs, "*"))]

    def _cgroups(self):
        return [folder for folder in cgroup_folders() if any(name in os.path.basename(folder) for name in self._run_names())]

    def leftovers(self):
        """Descriptions of what finished runs left behind."""
        left = ["process %d (%s): %s" % (pid, state_of(pid), read("/proc/%d/cmdline" % pid).replace("\0", " "))
                for pid in self.processes()]
        left += ["cgroup " + folder for folder in self._cgroups()]
        for name in ("runtime", "leases", "temporary"):
            for base, _, files in os.walk(os.path.join(self.folder, name)):
                left += ["file " + os.path.join(base, file) for file in files]
        left += ["lease " + path for path in glob.glob(os.path.join(self.folder, "simulated", "**", "*.lock"),
                                                       recursive=True)]
        for path in self._named_for_us() - self._elsewhere:
            # Others may run tests on this machine at the same time; leftovers of this test name one of its runs or
            # processes.
            if any(name in path for name in self._run_names()) or any(str(running.pid) in path for running in self.started):
                left.append("file " + path)
        return left

    def assert_nothing_left(self, seconds=0):
        """Immediately after a launcher has exited by itself; at most `seconds` later after it was killed."""
        deadline = time.monotonic() + seconds * PATIENCE
        left = self.leftovers()
        while left and time.monotonic() < deadline:
            time.sleep(0.01)
            left = self.leftovers()
        assert not left, "left behind: " + "; ".join(left)

    def clean_up(self):
        """Ends processes of a failed test, and removes its cgroups. Only those with this workspace's marker, or a run's
        name."""
        deadline = time.monotonic() + 10
        while self.processes() and time.monotonic() < deadline:
            for pid in self.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            time.sleep(0.01)
        for folder in self._cgroups():
            try:
                os.rmdir(folder)
            except OSError:
                pass


def remove(folder):
    shutil.rmtree(str(folder), ignore_errors=True)


@contextlib.contextmanager
def fresh_workspace(prefix):
    """A Workspace in a private folder, for programs that are not pytest tests."""
    folder = tempfile.mkdtemp(prefix=prefix)
    workspace = Workspace(folder)
    try:
        yield workspace
    finally:
        workspace.clean_up()
        remove(folder)
