"""`tm.listen` marks what is committed and tells what recoveries did."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_feed import Feed, Query
from trailmark.cli import main
from trailmark.engine.commits import check_not_rolled_back, newest_mark
from trailmark.log import LocalStorage
from trailmark.spark.listener import TrailmarkListener

_SCHEMA = "item int, price int"


def _orders(batch: int) -> pa.Table:
    items = [(batch + 3 * n) % 40 for n in range(120)]
    return pa.table({"item": pa.array(items, pa.int32()), "price": pa.array(items, pa.int32())})


def _wait(until: Callable[[], bool]) -> None:
    """Spark tells its listeners in its own time."""
    deadline = time.monotonic() + 30
    while not until():
        assert time.monotonic() < deadline, "the listener was not told"
        time.sleep(0.05)


def test_batches_are_marked_and_recoveries_are_told(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    feed.add(*map(_orders, range(5)))
    path, cache = tmp_path / "log", tmp_path / "cache"
    given: dict[str, Any] = {"by": "item", "window": tm.count_window(10), "buckets": 2}
    told: list[tuple[str, int]] = []
    listener = tm.listen(spark, lambda path, progress: told.append((path, progress.batch)))
    try:
        with caplog.at_level(logging.INFO, "trailmark"):
            query = Query(tmp_path)
            averages = tm.aggregate(
                feed.stream(),
                values={"mean": tm.avg("price")},
                path=path,
                cache_dir=cache,
                checkpoint=tm.Continuous(q=60),
                **given,
            )
            query.run(averages)
            _wait(lambda: len(listener.progress) == 5)
            assert newest_mark(LocalStorage(str(path))) == 4
            assert not listener.recoveries
            shutil.rmtree(cache)
            feed.add(_orders(5))
            query.run(averages)
            _wait(lambda: len(listener.progress) == 6)
    finally:
        spark.streams.removeListener(listener)
    assert told == [(str(path), batch) for batch in range(6)]
    assert newest_mark(LocalStorage(str(path))) == 5
    before, last = [progress for _, progress in list(listener.progress)[-2:]]
    assert sorted(r.bucket for _, r in listener.recoveries) == [0, 1]
    for where, recovery in listener.recoveries:
        assert (where, recovery.batch) == (str(path), 5)
        assert recovery.why == "no whole table in the cache"
        assert recovery.predicted_us > 0
        assert recovery.took_us > 0
    assert sum(r.footprints for _, r in listener.recoveries) == before.open_windows
    assert sum(r.replay_tuples for _, r in listener.recoveries) == before.replay
    assert (last.batch, last.tuples, last.open_windows) == (5, 120, 40)
    assert "bucket 1 recovered before batch 5 in" in caplog.text
    assert "batch 5, 120 tuples" in caplog.text


def test_listening_twice_marks_once_and_stops_nobody(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a notebook, whose cells are run again; also while a query runs."""
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    feed.add(*map(_orders, range(2)))
    path = tmp_path / "log"
    told: list[tuple[str, int]] = []

    def listen(name: str) -> TrailmarkListener:
        return tm.listen(spark, lambda _, progress: told.append((name, progress.batch)))

    sums = tm.aggregate(
        feed.stream(),
        by="item",
        window=tm.count_window(10),
        values={"sum": tm.sum("price")},
        path=path,
        buckets=2,
        cache_dir=tmp_path / "cache",
    )
    listeners = [listen("first"), listen("second")]
    writer = sums.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "out"))
    try:
        with caplog.at_level(logging.INFO, "trailmark"):
            query.processAllAvailable()
            _wait(lambda: len(told) == 4)
            listeners.append(listen("third"))
            feed.add(_orders(2))
            query.processAllAvailable()
            _wait(lambda: len(told) == 7)
        storage = LocalStorage(str(path))
        mark = bytes(storage.read(f"commits/{2:020d}"))
        assert mark == f"committed by run {query.runId}\n".encode()
    finally:
        query.stop()
        for listener in listeners:
            spark.streams.removeListener(listener)
    assert Counter(told) == Counter(
        [(name, batch) for name in ("first", "second") for batch in range(3)] + [("third", 2)]
    )
    assert caplog.text.count("batch 2, 120 tuples") == 1
    check_not_rolled_back(storage)
    assert len(storage.list("commits")) == 3


def test_a_function_that_is_defined_again_takes_the_place_of_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    feed.add(_orders(0))
    sums = tm.aggregate(
        feed.stream(),
        by="item",
        window=tm.count_window(10),
        values={"sum": tm.sum("price")},
        path=tmp_path / "log",
        buckets=2,
        cache_dir=tmp_path / "cache",
    )
    told: list[str] = []
    cell = "def show(path, progress): told.append({!r})"
    listeners = []
    for version in ("first", "second"):
        names: dict[str, Any] = {"told": told, "__name__": "__main__"}
        exec(cell.format(version), names)
        listeners.append(tm.listen(spark, names["show"]))
        listeners.append(tm.listen(spark, lambda *_, version=version: told.append(f"{version} λ")))
    try:
        Query(tmp_path, "only").run(sums)
        _wait(lambda: len(told) >= 3)
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)
    assert sorted(told) == ["first λ", "second", "second λ"]


def test_what_stops_a_query_is_told_on_one_line_wherever_people_look(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    feed.add(_orders(0))
    counts = tm.aggregate(
        feed.stream(),
        by="item",
        window=tm.count_window(10),
        values={"n": tm.count()},
        path=tmp_path / "log",
        buckets=2,
        cache_dir=tmp_path / "cache",
    )
    Query(tmp_path, "first").run(counts)
    listeners = [tm.listen(spark), tm.listen(spark)]
    try:
        with pytest.raises(StreamingQueryException) as refused:
            Query(tmp_path, "second").run(counts)
        _wait(lambda: all(listener.refusals for listener in listeners))
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)
    lines = str(refused.value).splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith("trailmark.errors."))
    assert place <= 3, "below what Spark and Python say themselves"
    assert lines[place].startswith("trailmark.errors.OtherQuery: The logs belong to another query")
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    ((query, text),) = listeners[0].refusals
    assert told == [f"query {query} was stopped: {text}"]
    assert text.startswith("OtherQuery: The logs belong to another query")
    assert "Give each query a path of its own." in text
    assert main(["status", str(tmp_path / "log")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("!")]
    assert line.startswith(f"! query {query} was stopped at batch 0 in bucket ")
    assert line.endswith(text)
