"""Half a minute of `make chaos`: the seed is fixed, so that a failure is the code's."""
import os

import pytest

import chaos

pytestmark = pytest.mark.skipif(not os.path.exists(chaos.PROGRAM), reason="this build has no torch")

SEED = 16


def test_random_faults_are_named_leave_nothing_and_change_no_bit(capsys):
    series = chaos.Chaos(SEED, list(chaos.KINDS))
    # At most so many: on a loaded machine a fault takes longer, and the suite does not.
    good = series.run(seconds=30, most=8)
    said = capsys.readouterr().out
    assert good, said


def test_every_kind_is_drawn_and_a_seed_gives_the_same_series():
    size = sum(weight for _, weight in chaos.KINDS.values())
    series = [[chaos.Chaos(seed, list(chaos.KINDS)).kind_of(number) for number in range(2 * size)] for seed in (1, 1, 2)]
    assert series[0] == series[1] != series[2]
    assert set(series[0][:size]) == set(chaos.KINDS) and sorted(series[0][:size]) == sorted(series[0][size:])
