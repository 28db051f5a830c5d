"""The fault grid of two nodes: what is broken, on which side, and how both launchers must react. Used by the short test
(tests/launcher/test_network_hosts.py) and by the long one (tests/grids/host_grid.py)."""
import os
import re
import signal
import subprocess
import time

from cluster import hosts, launch

RANKS = 4  # on each node
# A peer is lost after 4 s of silence, unless configured otherwise.
SILENCE = 4.0
LINK = "the link between host {} and host {}".format(*hosts.NAMES)


class Pair:
    """Two launchers, one on each node, and 8 ranks that run in step (tests/scripts/lockstep.py). With `own_silence`
    they drop a peer after SILENCE, as they do for a user."""

    def __init__(self, two_hosts, folder, port=29500, flags=(), rank_flags=("--steps", "0"), by_node_rank=True, own_silence=False):
        self.hosts = two_hosts
        self.folder = str(folder)
        self.places = os.path.join(self.folder, "ranks")
        os.makedirs(self.places)
        self.variables = launch.environment(folder)
        if own_silence:
            del self.variables[launch.RENDEZVOUS_CONF]
        self.mark = self.variables[launch.MARKER]
        self.launchers = []
        for side in (0, 1):
            rendezvous = ["--nnodes", "2", "--rdzv-id", "grid"]
            if by_node_rank:
                rendezvous += ["--node-rank", side, "--master-addr", hosts.ADDRESSES[0], "--master-port", port]
            else:
                rendezvous += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "{}:{}".format(hosts.ADDRESSES[0], port)]
            self.start(side, rendezvous + ["--nproc-per-node", RANKS, "--devices", "cpu"] + list(flags) +
                       [launch.script("lockstep.py"), self.places] + list(rank_flags))

    def start(self, side, arguments):
        # Each node has its own folders.
        own = os.path.join(self.folder, hosts.NAMES[side])
        os.makedirs(own)
        variables = dict(self.variables, FULLDECK_RUNTIME_DIR=os.path.join(own, "runtime"),
                         FULLDECK_LEASE_DIR=os.path.join(own, "leases"))
        command = self.hosts.command(side, [launch.FULLDECK, "run"] + list(arguments))
        self.launchers.append(launch.Launcher(command, variables, own))

    def wait_until_joined(self):
        def met():
            for launcher in self.launchers:
                assert launcher.process.poll() is None, "a launcher ended early:\n" + self.output()
            return len(launch.places(self.places)) == 2 * RANKS
        try:
            launch.wait_until(met, "the rendezvous of all ranks")
        except AssertionError as error:
            raise AssertionError("{}\n{}".format(error, self.output()))
        return launch.places(self.places)

    def rank_pid(self, side, local_rank):
        return launch.places(self.places)[side * RANKS + local_rank]["pid"]

    def supervisor_pid(self, side):
        return launch.children_of(self.launchers[side].pid)[0]

    def output(self):
        return "\n".join("--- {} ---\n{}".format(name, launcher.output()) for name, launcher in zip(hosts.NAMES, self.launchers))

    def wait(self, seconds):
        return [launcher.wait(seconds) for launcher in self.launchers]

    def first_hosts(self):
        """The node that each report names as the root cause; None if there is no such report."""
        found = []
        for launcher in self.launchers:
            names = re.findall(r"^fulldeck: .*it began on host (\S+):", launcher.output(), re.MULTILINE)
            found.append(names[-1] if names else None)
        return found

    def end(self):
        """Cleans up in any case. Returns what was left."""
        for launcher in self.launchers:
            launcher.kill()
        return launch.kill_marked(self.mark)


class Cell:
    def __init__(self, name, break_it, side, first_host, seconds, silent_sides=(), words=""):
        self.name = name
        self.break_it = break_it          # called with the pair
        self.side = side
        self.first_host = first_host      # that both reports name
        self.seconds = seconds            # until both launchers have exited, on an idle machine
        self.silent_sides = silent_sides  # whose launcher cannot report any more
        self.words = words                # that both reports contain


def _kill_rank(side):
    return lambda pair: os.kill(pair.rank_pid(side, 2), signal.SIGKILL)


def _kill_front(side):
    return lambda pair: pair.launchers[side].process.kill()


def _kill_supervisor(side):
    return lambda pair: os.kill(pair.supervisor_pid(side), signal.SIGKILL)


def _kill_both(side):
    def both(pair):
        # If one sees the other die, it ends the rest, so neither may run in between.
        supervisor, front = pair.supervisor_pid(side), pair.launchers[side].process
        front.send_signal(signal.SIGSTOP)
        os.kill(supervisor, signal.SIGKILL)
        front.kill()
    return both


def cells():
    found = []
    for side, name in enumerate(hosts.NAMES):
        # SIGKILL to a rank, or to one of the launcher's two processes: the kernel reports it, so there is no timeout.
        found.append(Cell("rank killed on " + name, _kill_rank(side), side, name, 1.0, words="SIGKILL"))
        found.append(Cell("front killed on " + name, _kill_front(side), side, name, 2.0))
        found.append(Cell("supervisor killed on " + name, _kill_supervisor(side), side, name, 2.0, silent_sides=(side,)))
        found.append(Cell("front and supervisor killed on " + name, _kill_both(side), side, name, 2.0, silent_sides=(side,)))
    # When a link fails, both ends name the end that does not coordinate.
    for side, name in enumerate(hosts.NAMES):
        found.append(Cell("link down at " + name, lambda pair, s=side: pair.hosts.pull_cable(s), side, hosts.NAMES[1], SILENCE + 1,
                          words=LINK))
        found.append(Cell(name + " hears nothing", lambda pair, s=side: pair.hosts.make_deaf(s), side, hosts.NAMES[1], SILENCE + 1,
                          words=LINK))
    return found


def try_losses(two_hosts, folder, port, seconds, percent=5):
    """A link that loses some packets is only slow: no alarm, and the ranks continue."""
    pair = Pair(two_hosts, folder, port, own_silence=True)
    troubles = []
    began = time.monotonic()
    try:
        pair.wait_until_joined()
        two_hosts.lose(percent)
        until = time.monotonic() + seconds
        while time.monotonic() < until and all(launcher.process.poll() is None for launcher in pair.launchers):
            time.sleep(0.05)
        if two_hosts.lost_packets() == 0:
            troubles.append("no packet was lost: nothing was tried")
        two_hosts.repair()
        for launcher in pair.launchers:
            if launcher.process.poll() is not None:
                troubles.append("a launcher ended with code {}".format(launcher.process.returncode))
            alarms = re.findall("^fulldeck: (?:error|warning|WARNING|.*the link between|.*no word from).*$", launcher.output(),
                                re.MULTILINE)
            if alarms:
                troubles.append("alarms: {}".format(alarms))
        if not troubles:
            pair.launchers[0].process.terminate()
            pair.wait(30)
            launch.nothing_left(pair.mark, 7.0)
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        troubles.append(str(error))
    finally:
        pair.end()
        two_hosts.repair()
    if troubles:
        troubles.append(pair.output())
    return Outcome(time.monotonic() - began, troubles)


class Outcome:
    def __init__(self, seconds, troubles, until_met=None):
        self.seconds = seconds
        self.until_met = until_met  # seconds from the start until the rendezvous of all ranks
        self.troubles = troubles  # descriptions of violations; empty if all is as promised


def try_cell(cell, two_hosts, folder, port, slack=30.0, by_node_rank=True):
    """Starts a pair, breaks it, and checks what both sides did. `slack` extends the limits on a loaded machine;
    tests/grids/promises.py (R10) fails at the promised value."""
    pair = Pair(two_hosts, folder, port, by_node_rank=by_node_rank, own_silence=cell.words == LINK)
    troubles = []
    seconds = until_met = None
    try:
        pair.wait_until_joined()
        began = time.monotonic()
        until_met = began - pair.launchers[0].began
        cell.break_it(pair)
        codes = pair.wait(cell.seconds + slack + 30)
        seconds = time.monotonic() - began
        if seconds > cell.seconds + slack:
            troubles.append("took {:.1f} s, longer than {:.1f} s".format(seconds, cell.seconds + slack))
        if 0 in codes:
            troubles.append("a launcher ended with code 0: {}".format(codes))
        # If the front was killed, the supervisor still writes its report.
        try:
            launch.nothing_left(pair.mark, 2.0 + slack)
        except AssertionError as error:
            troubles.append(str(error))
        for side, first in enumerate(pair.first_hosts()):
            if side not in cell.silent_sides and first != cell.first_host:
                troubles.append("{} names {} as the first host, not {}".format(hosts.NAMES[side], first, cell.first_host))
            if side not in cell.silent_sides and cell.words not in pair.launchers[side].output():
                troubles.append("{} does not say {}".format(hosts.NAMES[side], cell.words))
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        troubles.append(str(error))
    finally:
        left = pair.end()
        two_hosts.repair()
    if troubles:
        troubles.append(pair.output())
    elif left:
        troubles.append("left behind: {}".format(left))
    return Outcome(seconds, troubles, until_met)
