"""Streams that say up to which time they are complete, written by real queries."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from tests.support.spark_feed import Feed
from tests.support.spark_runs import wait_until
from tests.support.spark_streams import follow, manifests, numbers, query
from trailmark.log import LocalStorage, wall_clock_us
from trailmark.streams.heartbeats import Said, newest_heartbeats
from trailmark.streams.status import StreamStatusReader

_SECOND = 1_000_000
_LONG_AGO = datetime(2026, 1, 1, tzinfo=timezone.utc)


def _rows(first: int, end: int, at: datetime = _LONG_AGO) -> pa.Table:
    """One row for each second."""
    times = [at + timedelta(seconds=number) for number in range(first, end)]
    return pa.table({"id": pa.array(range(first, end), pa.int64()), "at": pa.array(times, _TIME)})


_TIME = pa.timestamp("us", "UTC")


def _write(df: DataFrame, path: Path, **options: Any) -> StreamingQuery:
    given = {"timeColumn": "at", "delay": "2 seconds", **options}
    writer = df.writeStream.format("trailmark").options(**given)
    return writer.option("checkpointLocation", f"{path}-checkpoint").start(str(path))


def _feed(spark: SparkSession, directory: Path) -> Feed:
    return Feed(spark, directory / "in", "id long, at timestamp")


def _reached(path: Path) -> int | None:
    """The boundary of the stream, in microseconds."""
    if not Path(path, "meta.json").exists():
        return None
    boundaries = StreamStatusReader(LocalStorage(path)).read().boundaries
    return None if boundaries is None else boundaries.stream


def _us(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


def test_a_silent_stream_is_complete_up_to_now_and_goes_on_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, feed = tmp_path / "stream", _feed(spark, tmp_path)
    feed.add(_rows(0, 10), _rows(10, 20))
    for first in (20, 30):
        running = _write(tm.with_heartbeat(feed.stream(), "200 ms"), path)
        try:
            _wait_for_clock(path, wall_clock_us())
            assert (_reached(path) or 0) <= wall_clock_us() - 2 * _SECOND, "less the delay"
            feed.add(_rows(first, first + 10))
            _wait_for_rows(path, first + 10)
        finally:
            running.stop()
    assert numbers(query(spark, path)) == list(range(40))
    assert query(spark, path).columns == ["id", "at"], "no row and no column of heartbeats"
    # What came after heartbeats is behind the clock by months.
    late = [each.boundaries.late_rows for each in manifests(path) if each.boundaries is not None]
    assert late[:2] == [0, 0]
    assert sum(late) == 20


def _wait_for_clock(path: Path, began_us: int) -> None:
    wait_until("the clock counts", lambda: (_reached(path) or 0) > began_us - _SECOND)


def _wait_for_rows(path: Path, count: int) -> None:
    wait_until(f"{count} rows", lambda: _total(path) == count)


def test_a_query_that_follows_is_not_disturbed_by_heartbeats(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, feed = tmp_path / "stream", _feed(spark, tmp_path)
    feed.add(_rows(0, 10))
    writing = _write(tm.with_heartbeat(feed.stream(), "100 ms"), path)
    try:
        _wait_for_rows(path, 10)
        following = (
            follow(spark, path)
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "other"))
            .start()
        )
        try:
            following.processAllAvailable()
            before = newest_heartbeats(LocalStorage(path))

            def has_moved() -> bool:
                return newest_heartbeats(LocalStorage(path)) != before

            wait_until("three heartbeats", lambda: has_moved() and _is_older(path, 3))
            offsets = [each.name for each in (tmp_path / "other" / "offsets").iterdir()]
            assert [name for name in offsets if name.isdecimal()] == ["0"], "one batch"
        finally:
            following.stop()
    finally:
        writing.stop()
    assert len(manifests(path)) == 1, "heartbeats are no batches"
    # The newest two of the one writer, and one that was about to go when the query was stopped.
    assert len(list(Path(path, "heartbeats").glob("*.json"))) <= 3


def _is_older(path: Path, batches: int) -> bool:
    return any(each.number > batches for each in newest_heartbeats(LocalStorage(path)).values())


def test_a_source_with_more_to_read_sends_no_heartbeat(spark: SparkSession, tmp_path: Path) -> None:
    """Rows are taken one file at a time: as long as there are any, the clock says nothing, or all
    that is left would be late."""
    path, feed = tmp_path / "stream", _feed(spark, tmp_path)
    feed.add(*(_rows(10 * n, 10 * n + 10) for n in range(15)))
    running = _write(tm.with_heartbeat(feed.stream(), "1 ms"), path)
    try:
        _wait_for_rows(path, 150)
    finally:
        running.stop()
    boundaries = [each.boundaries for each in manifests(path)]
    assert all(each is not None and each.late_rows == 0 for each in boundaries)


def _total(path: Path) -> int:
    found = manifests(path) if Path(path, "meta.json").exists() else []
    return found[-1].total_rows if found else 0


def test_without_heartbeats_the_boundary_goes_by_the_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, feed = tmp_path / "stream", _feed(spark, tmp_path)
    feed.add(_rows(0, 10), _rows(5, 8))
    running = _write(feed.stream(), path)
    try:
        running.processAllAvailable()
        time.sleep(0.3)
    finally:
        running.stop()
    assert _reached(path) == _us(_LONG_AGO) + 7 * _SECOND
    assert [each.boundaries.late_rows for each in manifests(path) if each.boundaries] == [0, 2]


def test_an_available_now_run_ends(spark: SparkSession, tmp_path: Path) -> None:
    path, feed = tmp_path / "stream", _feed(spark, tmp_path)
    feed.add(_rows(0, 10), _rows(10, 20))
    for _ in range(2):
        df = tm.with_heartbeat(feed.stream(), "1 ms")
        writer = df.writeStream.format("trailmark").option("timeColumn", "at")
        writer = writer.option("delay", "2 seconds").trigger(availableNow=True)
        running = writer.option("checkpointLocation", f"{path}-checkpoint").start(str(path))
        assert running.awaitTermination(60)
    assert numbers(query(spark, path)) == list(range(20))
    (heartbeat,) = newest_heartbeats(LocalStorage(path)).values()
    assert heartbeat.said is Said.NEW, "it was there, and never silent"


@pytest.mark.parametrize(
    ("has_heartbeat", "options", "why"),
    [
        (False, {"heartbeat": "500 ms"}, r"tm.with_heartbeat\(df, '500 ms'\)"),
        (True, {"delay": None}, "a delay that is not given|that is not given"),
        (False, {"timeColumn": None}, "the stream has no time column"),
        (False, {"delay": "soon"}, "not a duration"),
    ],
)
def test_promises_that_say_nothing_are_refused_at_the_start(
    spark: SparkSession, tmp_path: Path, has_heartbeat: bool, options: dict[str, Any], why: str
) -> None:
    feed = _feed(spark, tmp_path)
    feed.add(_rows(0, 3))
    df = tm.with_heartbeat(feed.stream()) if has_heartbeat else feed.stream()
    given = {"timeColumn": "at", "delay": "2 seconds", **options}
    writer = df.writeStream.format("trailmark")
    writer = writer.options(**{name: value for name, value in given.items() if value is not None})
    with pytest.raises(Exception, match=why):
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start(str(tmp_path / "stream")).awaitTermination()


def test_heartbeats_in_a_job_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(3).selectExpr("id", "current_timestamp() as `$heartbeat`")
    with pytest.raises(Exception, match="for a query that goes on"):
        rows.write.format("trailmark").mode("append").save(str(tmp_path / "stream"))


def test_a_job_promises_nothing(spark: SparkSession, tmp_path: Path) -> None:
    writer = spark.range(3).write.format("trailmark").mode("append").option("delay", "1 second")
    with pytest.raises(Exception, match="A job promises nothing"):
        writer.save(str(tmp_path / "stream"))


@pytest.mark.parametrize("every", ["0 seconds", "often", ""])
def test_a_wrong_time_between_heartbeats_is_refused(spark: SparkSession, every: str) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(tm.TrailmarkError):
        tm.with_heartbeat(stream, every)


def test_only_streams_have_heartbeats(spark: SparkSession) -> None:
    with pytest.raises(tm.TrailmarkError, match="does not stream"):
        tm.with_heartbeat(spark.range(3))
    twice = tm.with_heartbeat(spark.readStream.format("rate").load())
    with pytest.raises(tm.TrailmarkError, match="already"):
        tm.with_heartbeat(twice)
