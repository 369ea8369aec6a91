"""Two and three actors over one storage, in every order of few switches and in random orders."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

import pytest

from tests.support.engine_meetings import ENGINE_MEETINGS
from tests.support.interleaving import (
    Actor,
    Choice,
    Chooser,
    Following,
    Ranking,
    Stage,
    every_schedule,
)
from tests.support.meetings import MEETINGS, meet, run_random_meeting
from tests.support.seeds import seeds
from trailmark.log import LocalStorage
from trailmark.testing.disk import SimulatedDisk

_CASES = 500
_GROUP = 100

_ALL = seeds(_CASES)
_GROUPS = [_ALL[start : start + _GROUP] for start in range(0, len(_ALL), _GROUP)]

#: More switches than one, where so many schedules still take seconds.
_PREEMPTIONS = {"two_begin_a_stream": 2, "two_begin_a_log": 2, "a_zombie_where_a_trim_ends": 2}
#: So many are tried of the others, and of those that take longer; random orders go further.
_MOST_SCHEDULES = 150
_MOST_OF_ENGINE = 30


@pytest.mark.parametrize("name", sorted(MEETINGS))
def test_nothing_is_lost_repeated_or_refused_in_any_order_of_few_switches(name: str) -> None:
    tried = every_schedule(lambda chooser: meet(MEETINGS[name], chooser), _PREEMPTIONS.get(name, 1))
    most = _MOST_OF_ENGINE if name in ENGINE_MEETINGS else _MOST_SCHEDULES
    assert sum(1 for _ in islice(tried, most)) > 10


@pytest.mark.parametrize("group", _GROUPS, ids=lambda group: f"{group[0]}-{group[-1]}")
def test_nothing_is_lost_repeated_or_refused_in_random_orders(group: range) -> None:
    for seed in group:
        run_random_meeting(seed)


# The scheduler itself.


def _write_down(letter: str, written: list[str]) -> Actor:
    def act(storage: LocalStorage) -> None:
        for _ in range(2):
            storage.exists("x")
            written.append(letter)

    return act


def _orders(preemptions: int) -> list[str]:
    """The orders in which two actors that make two calls each come to them."""
    found: list[str] = []

    def run(choose: Chooser) -> Sequence[Choice]:
        written: list[str] = []
        stage = Stage(SimulatedDisk(), choose)
        stage.run({letter: _write_down(letter, written) for letter in "ab"})
        found.append("".join(written))
        return stage.choices

    assert len(list(every_schedule(run, preemptions))) == len(found)
    return found


def test_every_order_of_calls_is_tried() -> None:
    assert set(_orders(preemptions=4)) == {"aabb", "abab", "abba", "baab", "baba", "bbaa"}


def test_the_number_of_switches_is_bounded() -> None:
    assert sorted(_orders(preemptions=0)) == ["aabb", "bbaa"]


def test_whoever_is_ranked_last_sleeps_until_the_others_are_done() -> None:
    orders = set()
    for seed in range(50):
        written: list[str] = []
        stage = Stage(SimulatedDisk(), Ranking(random.Random(seed), changes=1, calls=6))
        stage.run({letter: _write_down(letter, written) for letter in "abc"})
        orders.add("".join(written))
    assert any(order[0] == order[-1] for order in orders)


def test_a_run_that_does_not_end_is_stopped() -> None:
    def wait_for_ever(storage: LocalStorage) -> None:
        while not storage.exists("x"):
            pass

    stage = Stage(SimulatedDisk(), Following())
    with pytest.raises(AssertionError, match="no end"):
        stage.run({"one": wait_for_ever, "other": wait_for_ever})
