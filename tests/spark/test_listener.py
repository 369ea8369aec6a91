"""`tm.listen` marks what is committed and tells what recoveries did."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_feed import Feed, Query
from trailmark.engine.commits import newest_mark
from trailmark.log import LocalStorage

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
