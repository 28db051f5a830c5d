"""Each kind of fault of `make chaos` once, about a minute on an idle machine: with a fixed seed, so that a failure is
reproducible."""
import os
import shutil
import subprocess

import pytest

from grids import chaos

pytestmark = pytest.mark.skipif(not os.path.exists(chaos.PROGRAM), reason="this build has no torch")

SEED = 16
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def works(*command):
    """Whether a command exists and succeeds."""
    if shutil.which(command[0], path=PATH) is None:
        return False
    return subprocess.run(command, env=dict(os.environ, PATH=PATH), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, timeout=60).returncode == 0


def kinds_that_cannot_be_made(folder):
    """Determined by trying what the kinds need, so that a kind that skips itself without a reason is detected."""
    lacking = set()
    if not os.path.exists(chaos.FAKETIME):
        lacking.add("clock-jump")
    if not works("unshare", "--mount", "mount", "-t", "tmpfs", "none", folder):
        lacking.update(("log-disk-full", "checkpoint-disk-full"))
    name = "chaos-{}".format(os.getpid())
    namespace = os.geteuid() == 0 and works("ip", "netns", "add", name)
    if not (namespace and works("ip", "netns", "exec", name, "ip", "link", "add", "a", "type", "veth", "peer", "name", "b") and
            works("ip", "netns", "exec", name, "unshare", "--uts", "nft", "list", "ruleset")):
        lacking.add("nodes")
    if namespace:
        works("ip", "netns", "delete", name)
    return lacking


def test_each_kind_of_fault_is_named_leaves_nothing_and_changes_no_bit(capsys, tmp_path):
    series = chaos.Chaos(SEED, list(chaos.KINDS), once=True)
    # However long it takes on a busy machine.
    good = series.run(seconds=float("inf"), most=len(chaos.KINDS))
    printed = capsys.readouterr().out
    assert good, printed
    assert set(series.skipped) <= kinds_that_cannot_be_made(str(tmp_path)), printed
    assert series.handled == {kind: 1 for kind in chaos.KINDS if kind not in series.skipped}, printed
    assert series.trainings > 0, printed


def test_every_kind_is_drawn_and_a_seed_gives_the_same_series():
    size = sum(weight for _, weight in chaos.KINDS.values())
    series = [[chaos.Chaos(seed, list(chaos.KINDS)).kind_of(number) for number in range(2 * size)] for seed in (1, 1, 2)]
    assert series[0] == series[1] != series[2]
    assert set(series[0][:size]) == set(chaos.KINDS) and sorted(series[0][:size]) == sorted(series[0][size:])
    once = chaos.Chaos(1, list(chaos.KINDS), once=True)
    assert sorted(once.kind_of(number) for number in range(len(chaos.KINDS))) == sorted(chaos.KINDS)
