"""Which buckets let go of their place when executors have come or gone."""

from __future__ import annotations

import random

import pytest

from tests.support.seeds import seeds
from trailmark.spark.placement import surplus


def test_an_executor_that_came_gets_what_others_have_beyond_their_share() -> None:
    assert surplus({"a": [0, 1, 2, 3], "b": [4, 5, 6, 7]}, {"a": 2, "b": 2, "c": 2}) == [3, 7]
    assert surplus({"a": [0, 2], "b": [1]}, {"a": 1, "b": 1, "c": 1}) == [2]
    assert surplus({"a": [0, 1, 2, 3, 4]}, {"a": 1, "b": 4}) == [1, 2, 3, 4]


def test_what_runs_at_once_where_it_is_stays_there() -> None:
    assert surplus({"a": [0, 1, 2, 3]}, {"a": 4, "b": 4}) == []
    assert surplus({"a": [0, 1], "b": [2]}, {"a": 1, "b": 1}) == []


def test_buckets_of_an_executor_that_is_gone_are_nobodys() -> None:
    assert surplus({"gone": [0, 1, 2], "a": [3]}, {"a": 1, "b": 1}) == []
    assert surplus({"gone": [0]}, {}) == []


@pytest.mark.parametrize("seed", seeds(200))
def test_what_is_let_go_fits_where_there_is_room_and_then_all_stay(seed: int) -> None:
    rng = random.Random(seed)
    slots = {f"e{n}": rng.randint(1, 8) for n in range(rng.randint(1, 6))}
    held: dict[str, list[int]] = {executor: [] for executor in slots}
    for number in range(rng.randint(0, 60)):
        held[rng.choice(list(held))].append(number)
    moving = surplus(held, slots)
    kept = {e: [n for n in numbers if n not in moving] for e, numbers in held.items()}
    # As tasks are given out: first to those that have a core to spare, then to the least loaded.
    for number in moving:
        kept[min(kept, key=lambda e: (len(kept[e]) + 1) / slots[e])].append(number)
    assert surplus(kept, slots) == []
