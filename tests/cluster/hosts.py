"""Two nodes on one machine: network namespaces joined by a cable (veth), each having its own host name. The cable can
be unplugged, blocked in one direction, or made to lose packets."""
import itertools
import os
import shutil
import subprocess

from cluster import launch
import launching

NAMES = ("hosta", "hostb")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_numbers = itertools.count()


def why_not():
    """Why such nodes cannot be created here; empty if they can."""
    missing = [name for name in ("ip", "nft", "unshare") if shutil.which(name, path=_PATH) is None]
    if missing:
        return "{} not installed (scripts/setup does)".format(", ".join(missing))
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        TwoHosts().remove()
    except subprocess.CalledProcessError as error:
        return "network namespaces cannot be made here: {}".format(error.stderr.strip())
    return None


def _do(*command):
    subprocess.run(command, check=True, env=dict(os.environ, PATH=_PATH), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                   stderr=subprocess.PIPE, universal_newlines=True, timeout=launch.PATIENCE * launching.PATIENCE)


class TwoHosts:
    """Set up by the constructor; remove() always removes everything."""

    def __init__(self):
        number = next(_numbers)
        self._names = ["fulldeck-{}-{}{}".format(os.getpid(), number, side) for side in "ab"]
        self._added = []
        try:
            for name in self._names:
                _do("ip", "netns", "add", name)
                self._added.append(name)
            _do("ip", "link", "add", "cable", "netns", self._names[0], "type", "veth", "peer", "name", "cable", "netns",
                self._names[1])
            for side, address in enumerate(ADDRESSES):
                self._on(side, "ip", "address", "add", address + "/24", "dev", "cable")
                self._on(side, "ip", "link", "set", "lo", "up")
                self._on(side, "ip", "link", "set", "cable", "up")
            launch.wait_until(self._cable_is_up, "a cable between the hosts")
        except BaseException:
            self.remove()
            raise

    def _on(self, side, *command):
        _do("ip", "netns", "exec", self._names[side], *command)

    def _cable_is_up(self):
        return all(" UP " in self._ask(side, "ip", "-brief", "link", "show", "cable") for side in (0, 1))

    def _ask(self, side, *command):
        return subprocess.run(("ip", "netns", "exec", self._names[side]) + command, env=dict(os.environ, PATH=_PATH),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, universal_newlines=True,
                              timeout=launch.PATIENCE * launching.PATIENCE).stdout

    def command(self, side, command):
        """The command line that runs `command` on that node. It keeps the pid: no process stays in between."""
        return ["ip", "netns", "exec", self._names[side], "unshare", "--uts", "sh", "-ec", 'hostname "$1"; shift; exec "$@"', "sh",
                NAMES[side]] + [str(word) for word in command]

    def pull_cable(self, side):
        self._on(side, "ip", "link", "set", "cable", "down")

    def plug_cable(self, side):
        self._on(side, "ip", "link", "set", "cable", "up")

    def _rule(self, side, rule):
        self._on(side, "nft", "add table inet faults; add chain inet faults incoming {{ type filter hook input priority 0; }}; "
                 "add rule inet faults incoming iifname cable {} counter drop".format(rule))

    def make_deaf(self, side):
        """That node receives nothing any more, but can still send."""
        self._rule(side, "")

    def lose(self, percent):
        """Drops packets at random in both directions."""
        for side in (0, 1):
            self._rule(side, "numgen random mod 1000 < {}".format(int(percent * 10)))

    def repair(self):
        for side in (0, 1):
            self._on(side, "nft", "flush ruleset")
            self.plug_cable(side)

    def lost_packets(self):
        """The number of packets that the rules have dropped so far."""
        total = 0
        for side in (0, 1):
            words = self._ask(side, "nft", "list", "ruleset").split()
            total += sum(int(words[i + 1]) for i, word in enumerate(words) if word == "packets")
        return total

    def remove(self):
        for name in self._added:
            subprocess.run(["ip", "netns", "delete", name], env=dict(os.environ, PATH=_PATH), stderr=subprocess.DEVNULL)
        self._added = []
