"""The table of open windows grows as needed, gives back what closed, keeps windows by age."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.compare import table_states
from tests.support.plain import batch_of
from tests.support.tables import cramped, footprint_ages
from trailmark.errors import DamagedSegment
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import BatchInput
from trailmark.records import FOOTPRINT, NO_BATCH, START
from trailmark.state.memory import PAGE, Memory
from trailmark.state.table import StateTable
from trailmark.windows import functions as f
from trailmark.windows.spec import CountWindow, TimeWindow, Window

_TEXT = pa.schema([("k", pa.string()), ("v", pa.string())])
_NUMBER = pa.schema([("k", pa.int64()), ("v", pa.int64())])
_TIMED = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])


class Bucket:
    """An operator with its table, fed with rows."""

    def __init__(self, schema: pa.Schema, window: Window, **values: Any) -> None:
        self.schema = schema
        self.operator = Aggregate(schema, by="k", window=window, values=values)
        self.table = StateTable(self.operator.layout, Memory())
        self.batch = -1
        self._mark: int | None = None

    def feed(
        self, rows: Sequence[Sequence[Any]], watermark: int | None = None
    ) -> list[dict[str, Any]]:
        self.batch += 1
        late_before, self._mark = self._mark, watermark
        given = BatchInput(self.batch, batch_of(self.schema, rows), late_before, watermark)
        found: list[dict[str, Any]] = self.operator.process(self.table, given).results.to_pylist()
        return found

    def footprints(self) -> list[int]:
        return footprint_ages(self.table)

    def keys(self) -> list[Any]:
        slots = self.table.slots()
        keys: list[Any] = self.table.read_keys(slots, self.table.read(slots))[0].to_pylist()
        return keys


def test_a_table_holds_many_more_windows_than_it_began_with() -> None:
    bucket = Bucket(_NUMBER, CountWindow(3, 3), total=f.sum("v"))
    keys = random.Random(1).sample(range(-(10**12), 10**12), 50_000)
    assert bucket.feed([(key, key % 7) for key in keys]) == []
    assert bucket.feed([(key, 1) for key in keys]) == []
    assert bucket.table.open_windows == 50_000
    closed = bucket.feed([(key, 1) for key in keys])
    assert {row["k"]: row["total"] for row in closed} == {key: key % 7 + 2 for key in keys}
    assert bucket.table.open_windows == 0


def test_growing_in_the_smallest_steps_loses_nothing() -> None:
    with cramped():
        bucket = Bucket(_TEXT, CountWindow(2, 2), last=f.last("v"))
        keys = [f"key {n} " + "x" * (n * 7 % 300) for n in range(400)]
        bucket.feed([(key, key[::-1]) for key in keys])
        states = table_states(bucket.operator, bucket.table)
    assert {key: row["last.value"] for ((key,), _), row in states.items()} == {
        key: key[::-1] for key in keys
    }


def test_one_tuple_in_very_many_windows_finds_room_for_all() -> None:
    with cramped():
        bucket = Bucket(_TIMED, TimeWindow("t", 300, 1, 0), n=f.count())
        bucket.feed([(1, 1000)])
        assert bucket.table.open_windows == 300
        closed = bucket.feed([(1, 1000)], watermark=1150)
    assert sorted(row[START] for row in closed) == list(range(701, 851))
    assert {row["n"] for row in closed} == {2}
    assert bucket.table.open_windows == 150


def test_memory_stays_bounded_while_keys_of_all_lengths_come_and_go() -> None:
    rng = random.Random(3)
    bucket = Bucket(_TEXT, CountWindow(2, 2), low=f.min("v"), last=f.last("v"))
    sizes = []
    for turn in range(120):
        keys = [f"{turn}-{n}-" + "k" * rng.randint(0, 900) for n in range(60)]
        bucket.feed([(key, "v" * rng.randint(0, 900)) for key in keys])
        assert bucket.table.open_windows == 60
        assert len(bucket.feed([(key, "v" * rng.randint(0, 900)) for key in keys])) == 60
        assert bucket.table.open_windows == 0
        sizes.append(bucket.table.memory.size)
    assert sizes[-1] <= sizes[20] * 1.5, "a hundred turns pass nine megabytes through the heap"
    assert bucket.table.header.slot_top == 60


def test_a_string_state_that_changes_forever_takes_no_more_room() -> None:
    bucket = Bucket(_TEXT, CountWindow(1 << 30, 1 << 30), last=f.last("v"), high=f.max("v"))
    rng = random.Random(4)
    tops = []
    for _ in range(300):
        bucket.feed([(f"k{n}", "x" * rng.randint(0, 700)) for n in range(20)])
        tops.append(int(bucket.table.header.heap_top))
    assert tops[-1] <= tops[150] * 1.1


def test_a_closed_time_window_gives_its_slot_to_the_next() -> None:
    bucket = Bucket(_TIMED, TimeWindow("t", 10, 10, 0), n=f.count())
    for turn in range(200):
        rows = [(key, turn * 10 + 5) for key in range(30)]
        assert len(bucket.feed(rows, watermark=turn * 10)) == (30 if turn else 0)
        assert bucket.table.open_windows == 30
    assert bucket.table.header.slot_top <= 60
    assert bucket.table.header.starts_used == 1


def test_a_tumbling_key_without_an_open_window_is_forgotten() -> None:
    bucket = Bucket(_NUMBER, CountWindow(1, 1), n=f.count())
    for turn in range(50):
        bucket.feed([(turn * 100 + n, 0) for n in range(100)])
        assert bucket.table.open_windows == 0
        assert bucket.table.header.indexed == 0
    assert bucket.table.header.slot_top == 100


@pytest.mark.parametrize("count", [300_000, 393_300])
def test_a_window_costs_at_most_100_bytes_beyond_its_key_and_state(count: int) -> None:
    """Also just after the index has doubled, when it is emptiest."""
    schema = pa.schema([("k", pa.int32()), ("v", pa.int32())])
    operator = Aggregate(schema, by="k", window=CountWindow(10, 10), values={"m": f.avg("v")})
    table = StateTable(operator.layout, Memory())
    numbers = np.arange(count, dtype=np.int32)
    for batch, part in enumerate(np.array_split(numbers, 30)):
        operator.process(table, BatchInput(batch, pa.record_batch([part, part], schema=schema)))
    assert table.open_windows == count
    key_and_state = 4 + operator.layout.state.itemsize
    assert table.memory.size / count - key_and_state <= 100


# Order by footprint


def test_windows_without_a_footprint_are_the_oldest() -> None:
    bucket = Bucket(_NUMBER, CountWindow(9, 9), n=f.count())
    assert bucket.table.oldest_footprint() is None
    bucket.feed([(1, 0), (2, 0)])
    assert bucket.table.oldest_footprint() == NO_BATCH
    taken = bucket.table.take_oldest(0, 0, 10)
    assert len(taken) == 2
    bucket.feed([(3, 0)])
    assert bucket.footprints() == [NO_BATCH, 0, 0]
    assert bucket.keys()[0] == 3


def test_take_oldest_takes_no_more_than_asked_and_nothing_too_young() -> None:
    bucket = Bucket(_NUMBER, CountWindow(9, 9), n=f.count())
    bucket.feed([(n, 0) for n in range(10)])
    bucket.table.take_oldest(0, 0, 10)
    bucket.feed([])
    assert len(bucket.table.take_oldest(1, 1, 3)) == 3
    assert bucket.footprints() == [0] * 7 + [1] * 3
    assert len(bucket.table.take_oldest(0, 1, 100)) == 0
    assert len(bucket.table.take_oldest(1, 1, 0)) == 0
    assert len(bucket.table.take_oldest(1, 1, 100)) == 7
    assert len(bucket.table.take_oldest(1, 1, 100)) == 0
    assert bucket.table.oldest_footprint() == 1


def test_each_window_is_taken_at_most_once_however_young_is_allowed() -> None:
    bucket = Bucket(_NUMBER, CountWindow(9, 9), n=f.count())
    bucket.feed([(n, 0) for n in range(10)])
    taken = bucket.table.take_oldest(1 << 40, 0, 1 << 40)
    assert len(set(taken.tolist())) == 10


def test_the_order_by_footprint_survives_windows_closing_anywhere_in_it() -> None:
    rng = random.Random(5)
    bucket = Bucket(_NUMBER, CountWindow(3, 3), n=f.count())
    for _ in range(200):
        bucket.feed([(rng.randint(0, 40), 0) for _ in range(rng.randint(0, 12))])
        bucket.table.take_oldest(0, bucket.batch, bucket.table.open_windows)
        bucket.table.take_oldest(bucket.batch, bucket.batch, rng.randint(0, 4))
        ages = bucket.footprints()
        assert ages == sorted(ages)
        assert len(ages) == bucket.table.open_windows
        assert len(set(bucket.keys())) == len(ages)


def test_a_window_opened_with_its_footprint_is_among_the_newest() -> None:
    bucket = Bucket(_NUMBER, CountWindow(9, 9), n=f.count())
    for batch, key in enumerate((7, 8)):
        rows = batch_of(_NUMBER, [(key, 0)])
        outcome = bucket.operator.process(bucket.table, BatchInput(batch, rows, footprint=batch))
        assert len(outcome.opened) == 1
    assert bucket.footprints() == [0, 1]
    assert bucket.keys() == [7, 8]


def test_forgetting_footprints_makes_every_window_due() -> None:
    bucket = Bucket(_NUMBER, CountWindow(9, 9), n=f.count())
    bucket.feed([(n, 0) for n in range(5)])
    bucket.table.take_oldest(0, 0, 5)
    bucket.table.forget_footprints()
    assert bucket.table.oldest_footprint() == NO_BATCH
    assert len(bucket.table.take_oldest(0, 1, 10)) == 5


# Putting windows back


def _footprints(bucket: Bucket) -> pa.RecordBatch:
    rows = bucket.operator.footprints(bucket.table, bucket.table.slots(), 0)
    return rows.append_column(FOOTPRINT, pa.array([0] * rows.num_rows, pa.int64()))


@pytest.mark.parametrize("slide", [4, 6, 2, 1])
def test_a_count_window_that_is_there_twice_is_refused(slide: int) -> None:
    bucket = Bucket(_NUMBER, CountWindow(4, slide), n=f.count())
    bucket.feed([(1, 0), (1, 0), (1, 0), (2, 0)])
    footprints = _footprints(bucket)
    other = StateTable(bucket.operator.layout, Memory())
    bucket.operator.load(other, footprints, "log")
    for place in range(footprints.num_rows):
        with pytest.raises(DamagedSegment, match="is there twice"):
            bucket.operator.load(other, footprints.slice(place, 1), "log")


def test_a_time_window_that_is_there_twice_is_refused() -> None:
    bucket = Bucket(_TIMED, TimeWindow("t", 10, 5, 0), n=f.count())
    bucket.feed([(1, 12)])
    footprints = _footprints(bucket)
    other = StateTable(bucket.operator.layout, Memory())
    bucket.operator.load(other, footprints, "log")
    with pytest.raises(DamagedSegment, match="is there twice"):
        bucket.operator.load(other, footprints.slice(1), "log")


def test_chained_windows_may_be_put_back_in_any_order_of_their_starts() -> None:
    bucket = Bucket(_NUMBER, CountWindow(6, 1), n=f.count(), total=f.sum("v"))
    bucket.feed([(1, n) for n in range(5)])
    expected = bucket.feed([(1, n) for n in range(5, 9)])
    for seed in range(10):
        again = Bucket(_NUMBER, CountWindow(6, 1), n=f.count(), total=f.sum("v"))
        again.feed([(1, n) for n in range(5)])
        footprints = _footprints(again)
        order = list(range(footprints.num_rows))
        random.Random(seed).shuffle(order)
        again.table = StateTable(again.operator.layout, Memory())
        again.operator.load(again.table, footprints.take(pa.array(order)), "log")
        assert again.feed([(1, n) for n in range(5, 9)]) == expected


def test_reserving_windows_makes_room_at_once() -> None:
    bucket = Bucket(_NUMBER, CountWindow(9, 9), n=f.count())
    bucket.feed([(n, 0) for n in range(100)])
    bucket.table.reserve_windows(20_000)
    assert bucket.table.header.slot_capacity >= 20_100
    assert (bucket.table.header.index_mask + 1) * 3 >= 20_100 * 4
    size = bucket.table.memory.size
    bucket.feed([(n, 0) for n in range(20_000)])
    assert bucket.table.memory.size == size
    assert bucket.table.open_windows == 20_000


# Sets of identities


@pytest.mark.parametrize(
    "window", [CountWindow(3, 3), CountWindow(3, 1), CountWindow(3, 5), TimeWindow("t", 9, 3, 0)]
)
def test_a_set_of_identities_knows_what_it_has_seen(window: Window) -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("us"))])
    operator = Aggregate(schema, by="k", window=window, values={"n": f.count()})
    seen = operator.identities.new_set()
    keys = [f"key {n % 700}" for n in range(1500)] + [None, None]
    starts = [n // 700 for n in range(1500)] + [0, 1]
    rows = pa.record_batch(
        {"k": pa.array(keys), START: pa.array(starts, pa.int8())},
    )
    identities = list(zip(keys, starts, strict=True)) if window.has_start else keys
    first: set[Any] = set()
    expected = [not (i in first or first.add(i)) for i in identities]  # type: ignore[func-returns-value]
    assert operator.identities.add(rows, seen).tolist() == expected
    assert not operator.identities.add(rows.slice(3), seen).any()


def test_a_set_of_identities_that_grows_in_the_smallest_steps_forgets_nothing() -> None:
    operator = Aggregate(_TEXT, by="k", window=CountWindow(3, 3), values={"n": f.count()})
    rows = pa.record_batch({"k": pa.array([f"{n}" * (n % 90) for n in range(500)])})
    distinct = len(set(rows.column(0).to_pylist()))
    with cramped():
        seen = operator.identities.new_set()
        assert int(operator.identities.add(rows, seen).sum()) == distinct
        assert not operator.identities.add(rows, seen).any()


def test_regions_begin_small() -> None:
    bucket = Bucket(_NUMBER, CountWindow(3, 3), n=f.count())
    assert bucket.table.memory.size <= 40 * PAGE
