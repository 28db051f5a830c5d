"""How the tests with an engine start launchers in the background and find all of their processes, in addition to what
all tests of the launcher share (tests/launching.py)."""
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import uuid

import launching
from launching import FOREIGN, FULLDECK, HERE, MARKER, children_of, read, state_of
from launching import wait_until as _wait_until

SCRIPTS = os.path.join(HERE, "scripts")

# Far more than anything here takes on an idle machine; a loaded one is slow.
PATIENCE = 60

RENDEZVOUS_CONF = "PET_RDZV_CONF"

def environment(folder, **more):
    """The variables for a launcher whose registry, leases and simulated cards are in `folder`, with a mark that all its
    descendants inherit. Python is the one that runs the tests. A peer is lost after 30 s of silence instead of
    fulldeck's default of 4 s, which an overloaded machine can exceed; a test of these 4 s removes RENDEZVOUS_CONF."""
    variables = {name: value for name, value in os.environ.items()
                 if not FOREIGN.match(name) and not name.startswith(("SLURM", "SBATCH", "HYDRA_", "PRTE_"))
                 and "VISIBLE_DEVICES" not in name}
    for name in ("runtime", "leases", "cards"):
        path = os.path.join(str(folder), "state", name)
        os.makedirs(path, mode=0o700, exist_ok=True)
        variables[{"runtime": "FULLDECK_RUNTIME_DIR", "leases": "FULLDECK_LEASE_DIR",
                   "cards": "FULLDECK_SIMULATE_DIR"}[name]] = path
    variables.update({MARKER: uuid.uuid4().hex, "PYTHON_EXEC": sys.executable, "NO_COLOR": "1",
                      RENDEZVOUS_CONF: "keep_alive_interval=10"})
    variables.update(more)
    return variables


def marked(mark):
    """Pids of the running processes with the mark in their environment."""
    wanted = "{}={}".format(MARKER, mark).encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/{}/environ".format(name), "rb") as file:
                    if wanted in file.read().split(b"\0") and state_of(name) not in ("", "Z", "X"):
                        found.append(int(name))
            except OSError:
                pass
    return found


def as_text(pids):
    return ["{}: {}".format(pid, read("/proc/{}/cmdline".format(pid)).replace("\0", " ")) for pid in pids]


def kill_marked(mark, patience=10.0):
    """Ends what a test left behind. Returns what there was."""
    left = marked(mark)
    words = as_text(left)
    deadline = time.monotonic() + patience
    while left and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
        left = marked(mark)
    return words


def wait_until(condition, what, seconds=PATIENCE):
    return _wait_until(condition, what, seconds)


def nothing_left(mark, seconds=5.0):
    wait_until(lambda: not marked(mark), "the end of {}".format(as_text(marked(mark))), seconds)


def places(folder):
    """The places that the ranks of tests/scripts/place.py and similar scripts have written there: a list, by rank."""
    found = []
    for name in os.listdir(str(folder)):
        if name.endswith(".json"):
            try:
                with open(os.path.join(str(folder), name)) as file:
                    found.append(json.load(file))
            except ValueError:
                pass  # partially written
    return sorted(found, key=lambda place: place["rank"])


class Launcher:
    """A launcher in the background; its output goes to a file, so that nothing has to read a pipe."""

    def __init__(self, command, variables, cwd, name="launcher"):
        self.mark = variables[MARKER]
        self.output_path = os.path.join(str(cwd), name + ".output")
        self.began = time.monotonic()
        with open(self.output_path, "w") as output:
            self.process = subprocess.Popen([str(word) for word in command], env=variables, cwd=str(cwd),
                                            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        self.pid = self.process.pid

    def output(self):
        return read(self.output_path)

    def lines(self, *words):
        """Lines that contain all of `words`."""
        return [line for line in self.output().splitlines() if all(word in line for word in words)]

    def wait(self, seconds=PATIENCE):
        seconds *= launching.PATIENCE
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError("still running after {} s: {}\n{}".format(seconds, self.process.args, self.output()))

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def run(arguments, variables, cwd, seconds=PATIENCE, program=None):
    """Runs to the end. The result has returncode and stdout, which includes stderr."""
    return subprocess.run([program or FULLDECK] + [str(word) for word in arguments], env=variables, cwd=str(cwd),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, errors="replace", timeout=seconds * launching.PATIENCE)


def has_module(name):
    """Whether the module is installed for the Python that runs the tests and the ranks."""
    return importlib.util.find_spec(name) is not None


def script(name):
    return os.path.join(SCRIPTS, name)
