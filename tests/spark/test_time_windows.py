"""Time windows close as Spark's own do in append mode, on the same input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.seeds import seeds
from tests.support.spark_feed import Feed, Query

_SCHEMA = "shop int, price int, weight double, time timestamp"


def _sales(rng: np.random.Generator, batch: int) -> pa.Table:
    """Sales of about a minute per batch, a tenth of them late, some very late, some timeless."""
    rows = int(rng.integers(0, 300))
    seconds = 60 * batch + rng.integers(0, 90, rows) - (rng.random(rows) < 0.1) * 75
    seconds -= (rng.random(rows) < 0.05) * 400
    micros = (1_700_000_000 + seconds) * 1_000_000 + rng.integers(0, 1_000_000, rows)
    times = pa.array(micros, pa.timestamp("us", "UTC"), mask=rng.random(rows) < 0.03)
    return pa.table(
        {
            "shop": pa.array(rng.integers(0, 7, rows, dtype=np.int32), mask=rng.random(rows) < 0.1),
            "price": pa.array(rng.integers(-9, 99, rows, dtype=np.int32)),
            "weight": pa.array(rng.integers(0, 64, rows) / 8, mask=rng.random(rows) < 0.1),
            "time": times,
        }
    )


def _ours(stream: DataFrame, root: Path, slide: str | None, **given: Any) -> DataFrame:
    return tm.aggregate(
        stream,
        by="shop",
        window=tm.time_window("time", "40 seconds", slide, delay="30 seconds"),
        values={
            "n": tm.count(),
            "known": tm.count("weight"),
            "total": tm.sum("price"),
            "mean": tm.avg("weight"),
            "least": tm.min("price"),
            "most": tm.max("weight"),
        },
        path=root / "log",
        cache_dir=root / "cache",
        **given,
    )


def _theirs(stream: DataFrame, slide: str | None) -> DataFrame:
    window = F.window("time", "40 seconds", slide)
    grouped = stream.withWatermark("time", "30 seconds").groupBy("shop", window)
    return grouped.agg(
        F.count("*").alias("n"),
        F.count("weight").alias("known"),
        F.sum("price").alias("total"),
        F.avg("weight").alias("mean"),
        F.min("price").alias("least"),
        F.max("weight").alias("most"),
    )


@pytest.mark.parametrize("slide", [None, "15 seconds"])
def test_results_are_those_of_sparks_own_windows(
    spark: SparkSession, tmp_path: Path, slide: str | None
) -> None:
    (seed,) = seeds(1)[:1]
    rng = np.random.default_rng(seed)
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    feed.add(*(_sales(rng, batch) for batch in range(8)))
    # Spark runs a batch without data when a watermark has moved; Trailmark closes the same windows
    # with the next batch that has any.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        ours, theirs = Query(tmp_path, "ours"), Query(tmp_path, "theirs")
        ours.run(_ours(feed.stream(), tmp_path, slide))
        theirs.run(_theirs(feed.stream(), slide))
    finally:
        spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
        spark.conf.unset("spark.sql.shuffle.partitions")
    found, expected = ours.rows(spark), theirs.rows(spark)
    assert found == expected
    assert found.total() > 30, "there is something to compare"
