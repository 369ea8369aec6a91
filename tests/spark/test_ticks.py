"""Batches without data close time windows, once, in every kind of query that can be."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.spark_feed import Feed, Query, expected_rows, logged_rows, logged_segments
from tests.support.spark_versions import needs_spark
from trailmark.cli import main
from trailmark.records import Stream
from trailmark.spark import operate

_SCHEMA = "item int, price int, time timestamp"
_VALUES = {"total": tm.sum("price"), "n": tm.count()}
_WINDOW = tm.time_window("time", "10 seconds", delay="2 seconds")
_START_S = 1_700_000_000


def _orders(*seconds: int) -> pa.Table:
    """Four items have an order at each of these times."""
    times = [(_START_S + second) * 1_000_000 for second in seconds for _ in range(4)]
    return pa.table(
        {
            "item": pa.array(list(range(4)) * len(seconds), pa.int32()),
            "price": pa.array([second % 7 for second in seconds for _ in range(4)], pa.int32()),
            "time": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def _windows(*starts: int) -> Counter[tuple[int, int]]:
    """Items and starts of windows, in seconds."""
    return Counter((item, _START_S + start) for start in starts for item in range(4))


class Place:
    """Orders, a query with time windows over them, and its sink."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.feed = Feed(spark, root / "in", _SCHEMA)
        self.query = Query(root)
        self.path = root / "log"

    def aggregate(self, df: DataFrame | None = None, name: str = "log", **given: Any) -> DataFrame:
        arguments: dict[str, Any] = {"by": "item", "window": _WINDOW, "values": _VALUES} | given
        return tm.aggregate(
            self.feed.stream() if df is None else df,
            path=self.root / name,
            cache_dir=self.root / "cache",
            buckets=2,
            **arguments,
        )

    def run(self) -> list[int]:
        """The batches that were run."""
        before = self.newest_batch()
        self.query.run(self.aggregate())
        return list(range(before + 1, self.newest_batch() + 1))

    def newest_batch(self) -> int:
        """The newest batch that Spark has committed."""
        names = [path.name for path in (self.query.checkpoint / "commits").glob("[0-9]*")]
        return max(map(int, names), default=-1)

    def closed(self) -> Counter[tuple[int, int]]:
        found = self.query.rows(self.spark)
        return Counter({(row[0], _start_of(row)): n for row, n in found.items()})


def _start_of(row: tuple[Any, ...]) -> int:
    return int(row[1].partition("-")[0]) // 1_000_000


#: Before, Spark takes all that is there as one batch where a source is written in Python.
_TAKES_BATCHES = needs_spark("4.2", "an availableNow run of several batches beside ticks")


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


@_TAKES_BATCHES
def test_a_run_ends_with_the_windows_that_its_own_data_close_and_no_further_batch(
    place: Place,
) -> None:
    place.feed.add(_orders(1), _orders(11), _orders(22))
    assert place.run() == [0, 1, 2, 3]
    assert place.closed() == _windows(0, 10)
    assert place.run() == [], "nothing has come since"
    place.feed.add(_orders(23))
    assert place.run() == [4, 5]
    place.feed.add(_orders(21))
    assert place.run() == [6], "the watermark has not moved"
    assert place.closed() == _windows(0, 10)


def test_a_query_that_pauses_closes_its_windows_and_then_waits(place: Place) -> None:
    place.feed.add(_orders(1))
    writer = place.aggregate().writeStream.option("checkpointLocation", str(place.query.checkpoint))
    query = writer.trigger(processingTime="0 seconds").start(str(place.query.out))
    try:
        _wait_for_batch(place, 1)
        assert place.closed() == Counter()
        place.feed.add(_orders(13))
        _wait_for_batch(place, 3)
        assert place.closed() == _windows(0)
        time.sleep(2.5)  # more than one look at the logs
        assert place.newest_batch() == 3
    finally:
        query.stop()


def _wait_for_batch(place: Place, batch: int) -> None:
    deadline = time.monotonic() + 60
    while place.newest_batch() < batch:
        assert time.monotonic() < deadline, f"no batch {batch}, only {place.newest_batch()}"
        time.sleep(0.02)


@_TAKES_BATCHES
def test_windows_over_windows_close_one_batch_after_another(place: Place) -> None:
    place.feed.add(_orders(1), _orders(11), _orders(25), _orders(36), _orders(47))
    first = place.aggregate(name="first")
    ends = first.select("item", F.col("total").alias("price"), F.col("window.end").alias("time"))
    over = tm.time_window("time", "20 seconds")
    progress = place.query.run(place.aggregate(ends, "second", window=over))
    assert [each["batchId"] for each in progress] == [0, 1, 2, 3, 4, 5, 6]
    assert [each["numInputRows"] for each in progress] == [4, 4, 4, 4, 4, 0, 0]
    assert logged_rows(place.root / "second").total() == 4 * 4, "ends at 10, 20, 30, 40"
    assert place.closed() == _windows(0, 20)
    assert place.query.rows(place.spark) == expected_rows(
        place.root / "second", by=["item"], window=over, values=_VALUES
    )


@_TAKES_BATCHES
def test_one_result_may_be_used_twice_in_a_query(place: Place) -> None:
    place.feed.add(_orders(1), _orders(13))
    result = place.aggregate()
    place.query.run(result.where("item < 2").union(result))
    once = _windows(0)
    twice = Counter({(item, start): 2 if item < 2 else 1 for item, start in once})
    assert place.closed() == twice


@_TAKES_BATCHES
def test_a_batch_without_data_that_was_planned_but_not_done_is_done_after_a_restart(
    place: Place,
) -> None:
    """As after a kill between Spark's note of the batch and its first task."""
    place.feed.add(_orders(1), _orders(13))
    assert place.run() == [0, 1, 2]
    assert main(["truncate", str(place.path), "--to-batch", "1", "--yes"]) == 0
    for name in ("commits/2", "commits/.2.crc"):
        (place.query.checkpoint / name).unlink()
    for name in ("2", ".2.crc"):
        (place.query.out / "_spark_metadata" / name).unlink(missing_ok=True)
    assert place.closed() == Counter()
    assert place.run() == [2]
    assert place.closed() == _windows(0)


@_TAKES_BATCHES
def test_a_batch_without_data_whose_commit_was_lost_is_answered_from_the_log(place: Place) -> None:
    place.feed.add(_orders(1), _orders(13))
    place.run()
    for name in ("commits/2", "commits/.2.crc"):
        (place.query.checkpoint / name).unlink()
    for name in ("2", ".2.crc"):
        (place.query.out / "_spark_metadata" / name).unlink(missing_ok=True)
    before = [[each.checksum for each in log] for log in logged_segments(place.path, Stream.OUTPUT)]
    assert place.run() == [2]
    assert place.closed() == _windows(0)
    after = [[each.checksum for each in log] for log in logged_segments(place.path, Stream.OUTPUT)]
    assert after == before


def test_a_query_that_began_without_ticks_goes_on_without(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes no checkpoint with another number of sources."""
    place.feed.add(_orders(1), _orders(13))
    with monkeypatch.context() as before:
        before.setattr(operate, "_wants_ticks", lambda operator: False)
        assert place.run() == [0, 1]
    assert "ticks" not in (place.path / "meta.json").read_text()
    assert place.closed() == Counter()
    place.feed.add(_orders(26))
    assert place.run() == [2]
    assert place.closed() == _windows(0)


@_TAKES_BATCHES
def test_the_listener_follows_batches_without_data(place: Place) -> None:
    listener = tm.listen(place.spark)
    try:
        place.feed.add(_orders(1), _orders(13))
        place.run()
        jvm: Any = place.spark.sparkContext._jsc
        jvm.sc().listenerBus().waitUntilEmpty()
    finally:
        place.spark.streams.removeListener(listener)
    told = [(each.batch, each.tuples, each.results) for _, each in listener.progress]
    assert told == [(0, 4, 0), (1, 4, 0), (2, 0, 4)]
    assert main(["status", str(place.path)]) == 0
    assert main(["verify", str(place.path)]) == 0
