"""Windows of sales beside those of Spark: a job of each over the same files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.support.seeds import seeds
from tests.support.spark_feed import Feed, Query

SALES = "shop int, price int, weight double, name string, time timestamp"


def random_sales(
    rng: np.random.Generator, batch: int, *, most: int, whole_seconds: bool = False
) -> pa.Table:
    """Sales of about a minute per batch, a tenth of them late, some very late, some timeless."""
    rows = int(rng.integers(0, most))
    seconds = 60 * batch + rng.integers(0, 90, rows) - (rng.random(rows) < 0.1) * 75
    seconds -= (rng.random(rows) < 0.05) * 400
    micros = (1_700_000_000 + seconds) * 1_000_000
    if not whole_seconds:
        micros += rng.integers(0, 1_000_000, rows)
    return pa.table(
        {
            "shop": pa.array(rng.integers(0, 7, rows, dtype=np.int32), mask=rng.random(rows) < 0.1),
            "price": pa.array(rng.integers(-9, 99, rows, dtype=np.int32)),
            "weight": pa.array(rng.integers(0, 64, rows) / 8, mask=rng.random(rows) < 0.1),
            "name": pa.array(rng.choice(list("abcxyz"), rows), mask=rng.random(rows) < 0.2),
            "time": pa.array(micros, pa.timestamp("us", "UTC"), mask=rng.random(rows) < 0.03),
        }
    )


def assert_same_after_every_run(
    spark: SparkSession,
    root: Path,
    sales: Callable[[np.random.Generator, int], pa.Table],
    ours: Callable[[DataFrame], DataFrame],
    theirs: Callable[[DataFrame], DataFrame],
) -> None:
    """A job that runs three times, each time over what has come since, has the columns, the batches
    and after every run the results of Spark's."""
    (seed,) = seeds(1)[:1]
    print(f"TRAILMARK_SEED={seed}")
    rng = np.random.default_rng(seed)
    feed = Feed(spark, root / "in", SALES)
    our_query, their_query = Query(root, "ours"), Query(root, "theirs")
    for run in range(3):
        feed.add(*(sales(rng, 3 * run + number) for number in range(3)))
        found, expected = ours(feed.stream()), theirs(feed.stream())
        assert [(f.name, f.dataType) for f in found.schema] == [
            (f.name, f.dataType) for f in expected.schema
        ]
        batches = our_query.run(found)
        assert [each["batchId"] for each in batches] == [
            each["batchId"] for each in their_query.run(expected)
        ]
        assert our_query.rows(spark) == their_query.rows(spark), f"after run {run}"
    assert our_query.rows(spark).total() > 30, "there is something to compare"
