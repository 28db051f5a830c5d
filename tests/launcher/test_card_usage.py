"""Whether every card works for its rank: runs that only pretend to use their cards, and the verdict on each.
card_tricks.py has the tricks, and long/test_card_usage_long.py runs those that take longer."""
import pytest

from grids import card_tricks


@pytest.mark.parametrize("trick", [pytest.param(each, id=each.name) for each in card_tricks.TRICKS if each.quick])
def test_the_verdict_is_right(workspace, trick):
    assert not trick.wrong(workspace)
    if trick.name == "foreign":
        assert trick.seen.idle["gcu 1"]["used_by_pids"] == [trick.seen.foreign]
    if trick.name == "train-idle":
        # The first steps have no verdict yet; the idle card is never counted.
        assert max(trick.seen.cards_busy) == 1, trick.seen.cards_busy
    if trick.name == "swapped":
        idle = trick.seen.idle
        assert {card: event["works_on"] for card, event in idle.items()} == {"gcu 0": "gcu 1", "gcu 1": "gcu 0"}
        assert idle["gcu 0"]["used_by_ranks"] == [1] and idle["gcu 0"]["ranks"] == [0]


@pytest.mark.parametrize("policy", ["warn", "fail"])
def test_what_cannot_be_known_fails_only_where_it_is_required(workspace, policy):
    seen = card_tricks.in_c("gcu:2", 0, 0, policy)(workspace)
    assert seen.code == 0 and seen.usage == {"gcu 0": "unknown", "gcu 1": "unknown"}, seen.done
    assert {event["reason"] for event in seen.events if event["id"] == "card-usage-unknown"} == {"run-too-short"}
