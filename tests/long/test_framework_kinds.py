"""MMEngine's Runner and Accelerate on every kind of simulated card that they support by name, compared with the losses
on gcu cards, which they do not support by name."""
import pytest

from python import test_frameworks
from python.test_frameworks import cards  # noqa: F401  (a fixture)

KINDS = ("npu", "mlu", "musa", "sdaa", "hpu")
seen = {}


@test_frameworks.needs_mmengine
@test_frameworks.needs_accelerate
@pytest.mark.parametrize("kind", ("gcu",) + KINDS)
def test_the_frameworks_train_alike_on_every_kind_of_card(cards, kind):  # noqa: F811
    seen[kind] = test_frameworks.check_kind(cards, kind)
    for found, expected in zip(seen[kind], seen.get("gcu", seen[kind])):
        for part in ("losses", "weights", "first", "second"):
            assert found.get(part) == expected.get(part), (kind, part)


@test_frameworks.needs_mmengine
@test_frameworks.needs_accelerate
@pytest.mark.parametrize("kind", ("npu", "mlu", "musa", "sdaa"))
def test_the_frameworks_own_way_stays_where_the_vendors_software_is_installed(cards, kind):  # noqa: F811
    test_frameworks.check_own_way(cards, kind)
