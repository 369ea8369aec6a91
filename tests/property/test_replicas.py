"""Replicas of an operator give the same results, number by number, however their input is cut, and
who follows them gets each of these once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.support.answered_follower import run_answered_follower
from tests.support.follower import run_follower
from tests.support.replicas import run_replicas
from tests.support.seeds import seeds

_CASES = 100
_FOLLOWED = 200
_ANSWERED = 48
_PARTS = 4
_T = TypeVar("_T")


@pytest.mark.parametrize("part", range(_PARTS))
def test_replicas_give_the_same_results_in_the_same_order_through_crashes(part: int) -> None:
    crashes = _each(run_replicas, _CASES, part)
    assert sum(crashes) > 0 or _CASES < 10


@pytest.mark.parametrize("part", range(_PARTS))
def test_who_follows_replicas_gets_every_result_once(part: int) -> None:
    followers = _each(run_follower, _FOLLOWED, part)
    if len(followers) >= 40:  # about a quarter of them goes on with another one
        assert sum(each.switches > 1 for each in followers) > len(followers) / 10
        assert sum(each.repeated > 0 for each in followers) > len(followers) / 10


@pytest.mark.parametrize("part", range(_PARTS))
def test_what_stands_for_who_follows_replicas_is_what_stood_of_one_of_them(part: int) -> None:
    """Tentative results included, whatever fails, stands still, is corrected or made anew."""
    followers = _each(run_answered_follower, _ANSWERED, part)
    if len(followers) >= 12:  # half of them have something taken back
        assert sum(each.undone > 0 for each in followers) > len(followers) / 10
    if len(followers) >= 40:
        assert sum(each.repeated > 0 for each in followers) > len(followers) / 10
        assert sum(each.left_out for each in followers) > 0
    if len(followers) >= 400:  # one in fifty
        assert sum(each.behind for each in followers) > 0


def _each(run: Callable[[int], _T], cases: int, part: int) -> list[_T]:
    found = []
    for seed in seeds(cases)[part::_PARTS]:
        try:
            found.append(run(seed))
        except BaseException:
            print(f"TRAILMARK_SEED={seed} TRAILMARK_CASES=1 repeats it.")
            raise
    return found
