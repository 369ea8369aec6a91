"""Chains of tuples in the kernel: every pair is found, in order, and few others are looked at."""

from __future__ import annotations

import math
import random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from trailmark.kernel.library import TUPLE, Arrivals, Join, address, kernel, reference
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable, TableLayout

_CHAINS = np.dtype([("left", "<u4"), ("right", "<u4")])


class Chains:
    """Both sides of a join with whole numbers as keys; a tuple is paired with at most so many of
    the newest of each side."""

    def __init__(
        self,
        before: int,
        after: int,
        room: int = 1 << 12,
        most: tuple[int, int] = (1 << 40, 1 << 40),
    ) -> None:
        self.keys = StateTable(
            TableLayout(KeyLayout([pa.field("key", pa.int64())]), _CHAINS), Memory()
        )
        self.tuples = [np.zeros(room, dtype=TUPLE) for _ in range(2)]
        self.counts = [0, 0]
        self.length = (before, after)
        self.most = most

    def slots(self, keys: list[int]) -> npt.NDArray[np.int64]:
        rows = pa.record_batch({"key": pa.array(keys, pa.int64())})
        encoded = self.keys.encode_keys(rows)
        found, need = np.empty(len(keys), dtype=np.int64), np.zeros(1, dtype=np.int32)
        done = 0
        while done < len(keys):
            done = kernel.tm_join_keys(
                self.keys.structure,
                reference(encoded.structure),
                None,
                1,
                done,
                address(found),
                address(need),
            )
            if need[0]:
                self.keys.make_room(int(need[0]))
        return found

    def arrive(
        self, sides: list[int], times: list[int], keys: list[int]
    ) -> tuple[list[tuple[int, int]], int]:
        """Pairs of an arrival and the number of its partner, and how many tuples were looked at."""
        number = np.empty(len(sides), dtype=np.int64)
        for place, each in enumerate(sides):
            number[place] = self.counts[each]
            self.counts[each] += 1
        side, time = np.array(sides, dtype=np.uint8), np.array(times, dtype=np.int64)
        key = self.slots(keys)
        join = Join(
            address(self.tuples[0]),
            address(self.tuples[1]),
            *self.length,
            1 << 40,
            1,
            0,
            *self.most,
        )
        arrays = (side, time, time, key, number)
        arrivals = Arrivals(*(address(each) for each in arrays), len(sides))
        newest, counts = np.empty(len(sides), np.uint32), np.empty(len(sides), np.int64)
        steps = np.zeros(1, dtype=np.int64)
        total = kernel.tm_join_count(
            self.keys.structure,
            reference(join),
            reference(arrivals),
            address(newest),
            address(counts),
            address(steps),
        )
        arrival, partner = np.empty(total, np.int64), np.empty(total, np.int64)
        kernel.tm_join_pairs(
            reference(join),
            reference(arrivals),
            address(newest),
            address(counts),
            0,
            len(sides),
            address(arrival),
            address(partner),
        )
        return list(zip(arrival.tolist(), partner.tolist(), strict=True)), int(steps[0])

    def surplus(self, side: int, most: int) -> list[int]:
        """The tuples of a side behind so many newer ones of their key."""
        count = self.counts[side]
        numbers, found = np.arange(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        total = kernel.tm_join_surplus(
            self.keys.structure,
            address(self.tuples[side]),
            side,
            most,
            address(numbers),
            count,
            address(found),
        )
        return sorted(found[:total].tolist())

    def nearest(self, count: int) -> tuple[list[int], int]:
        """The nearest right tuple of each of the first left ones, and how many were looked at."""
        join = Join(
            address(self.tuples[0]), address(self.tuples[1]), *self.length, 0, 0, 0, *self.most
        )
        numbers, found = np.arange(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        steps = kernel.tm_join_nearest(
            self.keys.structure, reference(join), address(numbers), count, address(found)
        )
        return found.tolist(), int(steps)


@pytest.mark.parametrize("seed", range(20))
def test_all_pairs_are_found_with_the_oldest_partner_first(seed: int) -> None:
    rng = random.Random(seed)
    before, after = rng.choice((0, 3, 50)), rng.choice((0, 3, 50))
    chains, count = Chains(before, after), 300
    sides = [rng.randrange(2) for _ in range(count)]
    times = [place // 3 + rng.choice((0, 0, -20, 1000)) for place in range(count)]
    keys = [rng.randrange(5) for _ in range(count)]
    half = count // 2
    found = chains.arrive(sides[:half], times[:half], keys[:half])[0]
    found += [(a + half, p) for a, p in chains.arrive(sides[half:], times[half:], keys[half:])[0]]
    expected = []
    waiting: list[list[tuple[int, int]]] = [[], []]
    for place, (side, time, key) in enumerate(zip(sides, times, keys, strict=True)):
        least = time - (after if side else before)
        greatest = time + (before if side else after)
        for number, (other, at) in enumerate(waiting[1 - side]):
            if other == key and least <= at <= greatest:
                expected.append((place, number))
        waiting[side].append((key, time))
    assert found == expected


def _looked_at(times: list[int], asked: list[int], before: int, after: int) -> tuple[int, int]:
    """How many pairs right tuples at some times make with left ones of one key, and how many tuples
    were looked at."""
    chains = Chains(before, after, room=len(times) + 1)
    chains.arrive([0] * len(times), times, [7] * len(times))
    pairs, steps = chains.arrive([1] * len(asked), asked, [7] * len(asked))
    return len(pairs), steps


_MANY = 1_000_000


@pytest.mark.parametrize(
    "times",
    [
        list(range(_MANY)),
        [10 * _MANY, *range(_MANY - 1)],
        list(range(_MANY, 0, -1)),
        [place + (10 * _MANY if place % 100_000 == 50 else 0) for place in range(_MANY)],
    ],
    ids=["in order", "one far ahead", "backward", "some far ahead"],
)
def test_of_a_million_tuples_of_one_key_only_those_near_a_match_are_looked_at(
    times: list[int],
) -> None:
    asked = [_MANY // 2, _MANY - 100, 1000]
    pairs, steps = _looked_at(times, asked, before=0, after=20)
    assert 30 <= pairs <= 70
    # A logarithm for each time that is asked for, one for each of the few that are out of place.
    assert steps <= pairs + len(asked) * 12 * 2 * math.log2(_MANY)


@pytest.mark.parametrize("seed", range(10))
def test_the_nearest_is_the_latest_that_matches_and_of_equal_times_the_newest(seed: int) -> None:
    rng = random.Random(seed)
    chains, count = Chains(before=rng.choice((0, 5, 1000)), after=0), 200
    times = [rng.randrange(60) for _ in range(2 * count)]
    keys = [rng.randrange(3) for _ in range(2 * count)]
    chains.arrive([1] * count + [0] * count, times, keys)
    found, _ = chains.nearest(count)
    for left, nearest in enumerate(found):
        time, key = times[count + left], keys[count + left]
        expected = [
            (times[right], right)
            for right in range(count)
            if keys[right] == key and time - chains.length[0] <= times[right] <= time
        ]
        assert nearest == (max(expected)[1] if expected else -1)


@pytest.mark.parametrize("far", [False, True])
def test_the_nearest_of_a_million_is_found_by_looking_at_few(far: bool) -> None:
    chains = Chains(before=_MANY, after=0, room=_MANY)
    times = list(range(_MANY))
    if far:
        times[1000] = 10 * _MANY
    chains.arrive([1] * _MANY, times, [7] * _MANY)
    asked = [_MANY // 2, _MANY - 100, 2000]
    chains.arrive([0] * 3, asked, [7] * 3)
    found, steps = chains.nearest(3)
    assert found == asked
    assert steps <= 3 * 6 * math.log2(_MANY)


def test_keys_are_given_back_when_the_last_tuple_of_both_sides_is_gone() -> None:
    chains = Chains(0, 0)
    chains.arrive([0, 1, 0], [1, 1, 1], [1, 2, 3])
    left, right = (chains.tuples[side]["key"][: chains.counts[side]].copy() for side in (0, 1))
    table = chains.keys.structure
    kernel.tm_join_unlink(table, 0, address(left), len(left))
    kernel.tm_join_release(table, address(left), len(left))
    assert chains.keys.header.indexed == 1
    kernel.tm_join_unlink(table, 1, address(right), len(right))
    kernel.tm_join_release(table, address(right), len(right))
    assert chains.keys.header.indexed == 0
    assert len(set(chains.slots([4, 5, 6]).tolist())) == 3
    assert chains.keys.header.slot_top == 3


@pytest.mark.parametrize("most", [0, 1, 2, 3, 7, 8, 100])
def test_the_surplus_is_what_has_so_many_newer_ones_of_its_key(most: int) -> None:
    rng = random.Random(most)
    chains, keys = Chains(0, 0), [rng.randrange(1, 6) for _ in range(400)]
    chains.arrive([0] * len(keys), [0] * len(keys), keys)
    expected = [place for place, key in enumerate(keys) if keys[place:].count(key) > most]
    assert chains.surplus(0, most) == expected
    gone = expected[: len(expected) // 2]
    for key in set(keys):  # what has left is always the oldest of a key
        mine = [place for place in expected if keys[place] == key]
        gone = [place for place in gone if keys[place] != key] + mine[: len(mine) // 2]
    chains.tuples[0]["is_gone"][gone] = 1
    assert chains.surplus(0, most) == sorted(set(expected) - set(gone))


def test_a_tuple_meets_only_the_newest_of_its_key() -> None:
    chains = Chains(1 << 40, 1 << 40, most=(2, 3))
    sides = [0, 0, 0, 1, 1, 1, 1, 0]
    pairs, _ = chains.arrive(sides, [0] * len(sides), [7] * len(sides))
    assert pairs == [
        *((arrival, partner) for arrival in (3, 4, 5, 6) for partner in (1, 2)),
        *((7, partner) for partner in (1, 2, 3)),
    ]
