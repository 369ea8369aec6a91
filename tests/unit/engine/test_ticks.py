"""Whether a batch is due after the newest one, found out from the output log alone."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from tests.support.followed import Followed
from tests.support.meddling import Meddled
from tests.support.orders import SECOND, TimedOrder, random_timed_orders, time_case, timed_orders
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import Bucket, OperatorLogs
from trailmark.engine.logs import describe_logs, has_ticks
from trailmark.engine.ticks import DueBatch
from trailmark.errors import DamagedSegment, SchemaChanged
from trailmark.log import read_meta
from trailmark.operators.keyed import Keyed
from trailmark.records import NO_BATCH
from trailmark.testing.disk import SimulatedDisk


def _at(seconds: int) -> TimedOrder:
    return "a", 1, seconds * SECOND


_NONE = timed_orders([])
_NEVER = 1_000_000


def _run(batches: list[list[TimedOrder]], *, buckets: int = 2) -> Followed:
    return Followed(time_case(batches, delay=0), Continuous(), buckets=buckets)


def test_nothing_is_due_before_there_are_logs_or_a_batch() -> None:
    run = _run([[]])
    due = DueBatch(run.disk.storage())
    due.look()
    run.query.logs()
    due.look()
    assert due.after == NO_BATCH


def test_one_batch_is_due_after_the_watermark_has_moved_and_then_none() -> None:
    run = _run([[]])
    due = DueBatch(run.disk.storage())
    seen = []
    for batch, seconds in enumerate((None, 3, None, None, 3, 2, None, 25, None, None)):
        rows = _NONE if seconds is None else timed_orders([_at(seconds)])
        run.query.run(batch, [_NONE, rows])
        due.look()
        seen.append(due.after == batch)
    moves = [False, True, False, False, False, False, False, True, False, False]
    assert seen == moves


def test_whoever_looks_for_the_first_time_sees_the_same_as_who_has_looked_all_the_time() -> None:
    run = _run(random_timed_orders(random.Random(4), batches=30, rows=2, items=4))
    due = DueBatch(run.disk.storage())
    seen = set()
    for _ in run.steps():
        batch = run.next_batch - 1
        due.look()
        new = DueBatch(run.disk.storage())
        new.look()
        assert (new.after == batch) == (due.after == batch)
        logs = run.query.logs()
        assert (due.after == batch) == (logs.watermark(batch + 1).at != logs.watermark(batch).at)
        seen.add(due.after == batch)
    assert seen == {True, False}


def test_nothing_is_due_until_every_bucket_has_published_the_batch() -> None:
    run = _run([[]])
    due = DueBatch(run.disk.storage())
    first, second = run.query.open()
    first.run(0, timed_orders([_at(3)]))
    due.look()
    assert due.after == NO_BATCH
    second.run(0, _NONE)
    due.look()
    assert due.after == 0


@pytest.mark.parametrize("how", ["merged", "trimmed"])
@pytest.mark.parametrize("at", range(4))
def test_merging_and_trimming_meanwhile_change_nothing(how: str, at: int) -> None:
    """Before the n-th look of the storage after a batch, the batches up to it are merged."""
    run = _run([[]], buckets=1)
    run.query.run(0, [timed_orders([_at(3)])])
    output = run.query.logs().output(0)
    counted = Meddled(run.disk, _NEVER, lambda: None)
    DueBatch(counted).look()

    def meddle() -> None:
        output.merge(9) if how == "merged" else output.trim(9)

    due = DueBatch(Meddled(run.disk, counted.looks + at, meddle))
    due.look()
    assert due.after == 0
    for batch in range(1, 4):
        run.query.run(batch, [timed_orders([_at(10 * batch)])])
    for _ in range(3):
        due.look()
    assert due.after == 3
    run.query.run(4, [timed_orders([_at(50)])])
    due.look()
    assert due.after == 4


def test_looking_again_neither_lists_nor_reads() -> None:
    run = _run([[]])
    run.query.run(0, [timed_orders([_at(3)]), _NONE])
    storage = Meddled(run.disk, _NEVER, lambda: None)
    due = DueBatch(storage)
    due.look()
    first = storage.looks
    for _ in range(100):
        due.look()
    assert storage.looks == first
    run.query.run(1, [_NONE, _NONE])
    due.look()
    assert storage.looks == first + 2, "one footer of each bucket"


def test_damage_is_raised_and_seen_again_once_it_is_mended() -> None:
    run = _run([[]], buckets=1)
    run.query.run(0, [timed_orders([_at(3)])])
    path = run.query.logs().output(0).reader.segment_path(0)
    whole = run.disk.content(path)
    run.disk.flip(path, len(whole) - 30, 0)
    due = DueBatch(run.disk.storage())
    for _ in range(2):
        with pytest.raises(DamagedSegment):
            due.look()
    run.disk.overwrite(path, whole)
    due.look()
    assert due.after == 0


def test_logs_say_whether_their_query_ticks_and_refuse_one_that_does_otherwise() -> None:
    run = _run([[]])
    storage, operator = run.disk.storage(), run.case.operator()
    assert not has_ticks(describe_logs(operator, 2))
    OperatorLogs(storage, operator, buckets=2, ticks=True)
    stored = read_meta(storage)
    assert stored is not None
    assert has_ticks(stored)
    with pytest.raises(SchemaChanged, match=r"operator\.ticks: True -> absent"):
        OperatorLogs(storage, operator, buckets=2)
    older = _run([[]])
    OperatorLogs(older.disk.storage(), operator, buckets=2)
    with pytest.raises(SchemaChanged, match=r"operator\.ticks: absent -> True"):
        OperatorLogs(older.disk.storage(), operator, buckets=2, ticks=True)


class Beat:
    """A timer that is due again ten microseconds after it was called."""

    state: ClassVar[Any] = {"n": pa.int64()}

    def process(self, keys: Any, rows: Any, state: Any) -> None:
        state.clock_timer = state.now + np.timedelta64(10, "us")

    def on_clock_timer(self, keys: Any, due: Any, state: Any) -> None:
        state.clock_timer = state.now + np.timedelta64(10, "us")


class Beating:
    """An operator with one key, and the clock that it goes by."""

    def __init__(self) -> None:
        schema = pa.schema([("key", pa.int64())])
        self.now_us = 1_000
        self.storage = SimulatedDisk().storage()
        self.operator = Keyed(schema, Beat, by="key", output=schema)
        self.rows = pa.RecordBatch.from_pydict({"key": [1]}, schema=schema)

    def clock(self) -> int:
        return self.now_us


def test_a_time_that_comes_after_the_end_of_a_run_is_left_to_the_next() -> None:
    """An operator whose timer sets itself again, in a run that ends with what is there."""
    case = Beating()
    logs = OperatorLogs(case.storage, case.operator, buckets=1, ticks=True, clock=case.clock)
    bucket = Bucket(case.operator, logs, 0, Continuous())
    bucket.run(0, case.rows)
    ending, endless = (DueBatch(case.storage, case.clock) for _ in range(2))
    ending.end_at(case.now_us)
    for batch in (1, 2):
        case.now_us += 10
        ending.look()
        endless.look()
        assert (ending.after, endless.after) == (NO_BATCH, batch - 1)
        bucket.run(batch, case.rows[:0])
    bucket.close()
