"""A query that runs for a long time holds bounded disk."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_feed import Feed, Query
from trailmark.engine.commits import newest_mark
from trailmark.log import LocalStorage

#: Logs are as long as they get after some 125 batches. They are measured then, and once more after
#: so many that anything left of each would show.
_UNTIL_FULL, _MORE = 140, 60
_ROWS = 60


def _size(directory: Path) -> tuple[int, int]:
    files = [file for file in directory.rglob("*") if file.is_file()]
    return len(files), sum(file.stat().st_size for file in files)


def _wait_for_mark(path: Path, batch: int) -> None:
    """Spark tells its listeners in its own time."""
    deadline = time.monotonic() + 60
    while (marked := newest_mark(LocalStorage(str(path)))) != batch:
        assert time.monotonic() < deadline, f"batch {batch} is not marked, only {marked}"
        time.sleep(0.05)


def test_disk_does_not_grow_with_the_number_of_batches(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    feed = Feed(spark, tmp_path / "in", "item int, price int")
    path, cache, query = tmp_path / "log", tmp_path / "cache", Query(tmp_path)
    listener = tm.listen(spark)
    averages = tm.aggregate(
        feed.stream(),
        by="item",
        window=tm.count_window(10),
        values={"mean": tm.avg("price"), "n": tm.count()},
        path=path,
        cache_dir=cache,
        buckets=2,
        checkpoint=tm.Continuous(u=2_000),
    )
    sizes = []
    try:
        for batches in (_UNTIL_FULL, _MORE):
            for _ in range(batches):
                item, price = (rng.integers(0, 80, _ROWS, dtype=np.int32) for _ in range(2))
                feed.add(pa.table({"item": item, "price": price}))
            query.run(averages)
            sizes.append((_size(path), _size(cache)))
        _wait_for_mark(path, _UNTIL_FULL + _MORE - 1)
    finally:
        spark.streams.removeListener(listener)
    (files_before, bytes_before), cache_before = sizes[0]
    (files_after, bytes_after), cache_after = sizes[1]
    # Logs hold the last hundred batches and what was not yet trimmed, for two buckets and two
    # streams, a few dozen commit marks, and nothing else.
    assert files_after <= files_before + 80
    assert files_after < 2 * 2 * 125 + 2 * 64
    assert bytes_after < 1.3 * bytes_before
    assert cache_after[0] == cache_before[0]
    assert cache_after[1] < cache_before[1] + 1000, "tokens have a few digits more"
    in_results = sum(n * times for (_, _, n), times in query.rows(spark).items())
    assert in_results >= (_UNTIL_FULL + _MORE) * _ROWS - 80 * 9, "all but those of open windows"
