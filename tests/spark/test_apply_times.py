"""Timers and times to live of `tm.apply`: by event time, by the clock, and at the end of a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from tests.support.spark_apply import Count, Place, latest, orders, variant
from tests.support.spark_feed import rows_of
from trailmark.errors import OperatorError
from trailmark.spark.sessions import refusal_in

_PATIENCE_S = 60


class Quiet(Count):
    """Tells of items of which nothing came for five seconds, and how many orders they had."""

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> None:
        state["n"] += keys.counts()
        state.event_timer = latest(keys, rows) + np.timedelta64(5, "s")

    def on_event_timer(self, keys: Any, due: Any, state: Any) -> Any:
        state.remove()
        return keys.table(n=state["n"])


class Beat(Count):
    """Tells by the clock, over and over, how many orders there were."""

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> None:
        state["n"] += keys.counts()
        is_unset = np.isnat(state.clock_timer)
        state.clock_timer[is_unset] = state.now + np.timedelta64(300, "ms")

    def on_clock_timer(self, keys: Any, due: Any, state: Any) -> Any:
        state.clock_timer = state.now + np.timedelta64(300, "ms")
        return keys.table(n=state["n"])


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def test_a_run_ends_with_the_timers_that_its_own_rows_make_due(place: Place) -> None:
    place.feed.add(orders((1, 1), (2, 2), (1, 3)), orders((3, 7)))
    assert place.run(Quiet, time="at") == [0, 1, 2]
    assert place.rows() == {(2, 1): 1}, "item 1 would be due at 8"
    assert place.run(Quiet, time="at") == []
    place.feed.add(orders((1, 2), (4, 30)))
    place.run(Quiet, time="at", late="drop")
    assert place.rows() == {(2, 1): 1, (1, 2): 1, (3, 1): 1}, "the order at 2 was late"


def test_a_delay_holds_timers_and_lets_late_rows_in(place: Place) -> None:
    given = {"time": "at", "delay": "10 seconds"}
    place.feed.add(orders((1, 1), (2, 12)), orders((1, 3), (3, 15)), orders((1, 2), (4, 19)))
    place.run(Quiet, **given)
    assert place.rows() == {(1, 2): 1}, "the watermark is at 9: 3 was in time, 2 was not"


def test_late_rows_can_be_kept_in_the_log(place: Place) -> None:
    place.feed.add(orders((1, 50)), orders((2, 40)))
    place.feed.add(orders((3, 30), (3, 60)))
    place.run(Count, time="at", late="keep")
    late = tm.read_table(place.path, records="late")
    assert sorted(late["item"].to_pylist()) == [3], "the watermark comes with the batch after"
    assert place.rows() == {(1, 1): 1, (2, 1): 1, (3, 1): 1}


def test_a_key_that_has_outlived_its_event_time_begins_anew(place: Place) -> None:
    lives = variant(Count, event_time_to_live="10 seconds")
    place.feed.add(orders((1, 1), (2, 1)), orders((2, 9)), orders((3, 30)))
    place.run(lives, time="at")
    place.feed.add(orders((1, 31), (2, 32), (3, 33)))
    place.run(lives, time="at")
    first = {(1, 1): 2, (2, 1): 2, (2, 2): 1, (3, 1): 1, (3, 2): 1}
    assert place.rows() == first


def test_a_key_that_has_outlived_its_time_by_the_clock_is_gone_at_the_next_run(
    place: Place,
) -> None:
    lives = variant(Count, clock_time_to_live="100 ms")
    place.feed.add(orders((1, 1)))
    place.run(lives)
    time.sleep(0.2)  # it is what the operator is about
    assert place.run(lives) == [1], "a batch without rows ends its life"
    place.feed.add(orders((1, 2)))
    place.run(lives)
    assert place.rows() == {(1, 1): 2}


def test_timers_by_the_clock_fire_while_the_stream_is_idle(place: Place) -> None:
    place.feed.add(orders((1, 1), (2, 2), (1, 3)))
    writer = place.apply(Beat).writeStream.option("checkpointLocation", str(place.query.checkpoint))
    query = writer.trigger(processingTime="100 milliseconds").start(str(place.query.out))
    try:
        _wait_for(query, place, {(1, 2): 3, (2, 1): 3})
        place.feed.add(orders((2, 9)))
        _wait_for(query, place, {(2, 2): 2})
    finally:
        query.stop()
    assert set(place.rows()) == {(1, 2), (2, 1), (2, 2)}


def _wait_for(query: StreamingQuery, place: Place, wanted: dict[tuple[int, int], int]) -> None:
    """Waits until the sink has rows at least so often."""
    deadline = time.monotonic() + _PATIENCE_S
    while any(place.rows()[row] < count for row, count in wanted.items()):
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, f"waited in vain for {wanted}: {place.rows()}"
        time.sleep(0.1)


def test_a_run_over_what_is_there_ends_though_timers_set_themselves_again(place: Place) -> None:
    """Else it would go on for ever: a batch takes longer than the timer waits."""

    class Hasty(Beat):
        def on_clock_timer(self, keys: Any, due: Any, state: Any) -> Any:
            state.clock_timer = state.now + np.timedelta64(1, "ms")
            return keys.table(n=state["n"])

    place.feed.add(orders((1, 1)), orders((1, 2)))
    assert len(place.run(Hasty)) <= 3
    before = place.rows().total()
    time.sleep(0.4)  # by then both timers are due
    assert len(place.run(Hasty)) == 1, "what was due when the next run began"
    assert place.rows().total() > before


def test_a_dataframe_that_does_not_stream_calls_timers_only_if_it_is_flushed(
    place: Place,
) -> None:
    place.feed.add(orders((1, 1), (2, 2), (1, 3)))
    still = place.spark.read.schema(place.feed.schema).parquet(str(place.feed.directory))
    given: dict[str, Any] = {"by": "item", "schema": "item int, n long", "time": "at"}
    assert not rows_of(tm.apply(still, Quiet, **given))
    assert rows_of(tm.apply(still, Quiet, flush=True, **given)) == {(1, 2): 1, (2, 1): 1}
    assert not place.path.exists()


def test_a_flush_that_would_never_end_is_refused(place: Place) -> None:
    class Hourly(Quiet):
        def on_event_timer(self, keys: Any, due: Any, state: Any) -> None:
            state.event_timer = due + np.timedelta64(1, "h")

    still = place.spark.createDataFrame([(1,)], "item int").selectExpr("item", "now() at")
    flushed = tm.apply(still, Hourly, by="item", schema="item int, n long", time="at", flush=True)
    with pytest.raises(Exception, match="has no end") as refused:
        flushed.collect()
    assert OperatorError.__name__ in (refusal_in(str(refused.value)) or "")
