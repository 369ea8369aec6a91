"""Time windows close as Spark's own do in append mode, on the same input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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


def _ours(stream: DataFrame, root: Path, slide: str | None, delay: str) -> DataFrame:
    return tm.aggregate(
        stream,
        by="shop",
        window=tm.time_window("time", "40 seconds", slide, delay=delay),
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
    )


def _theirs(stream: DataFrame, slide: str | None, delay: str) -> DataFrame:
    window = F.window("time", "40 seconds", slide)
    grouped = stream.withWatermark("time", delay).groupBy("shop", window)
    return grouped.agg(
        F.count("*").alias("n"),
        F.count("weight").alias("known"),
        F.sum("price").alias("total"),
        F.avg("weight").alias("mean"),
        F.min("price").alias("least"),
        F.max("weight").alias("most"),
    )


@pytest.fixture
def settings(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Few partitions, and batches without data as the test asks for."""
    given = {
        "spark.sql.streaming.noDataMicroBatches.enabled": str(request.param).lower(),
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in given.items():
        spark.conf.set(name, value)
    yield
    for name in given:
        spark.conf.unset(name)


@pytest.mark.parametrize(
    ("settings", "slide", "delay"),
    [(True, None, "30 seconds"), (True, "15 seconds", "0 seconds"), (False, None, "10 seconds")],
    ids=["tumbling", "sliding", "no batches without data"],
    indirect=["settings"],
)
@pytest.mark.usefixtures("settings")
def test_after_every_run_the_results_are_those_of_sparks_own_windows(
    spark: SparkSession, tmp_path: Path, slide: str | None, delay: str
) -> None:
    """A job that runs three times, each time over what has come since."""
    (seed,) = seeds(1)[:1]
    print(f"TRAILMARK_SEED={seed}")
    rng = np.random.default_rng(seed)
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    ours, theirs = Query(tmp_path, "ours"), Query(tmp_path, "theirs")
    for run in range(3):
        feed.add(*(_sales(rng, 3 * run + number) for number in range(3)))
        found = ours.run(_ours(feed.stream(), tmp_path, slide, delay))
        expected = theirs.run(_theirs(feed.stream(), slide, delay))
        assert ours.rows(spark) == theirs.rows(spark), f"after run {run}"
        assert [each["batchId"] for each in found] == [each["batchId"] for each in expected]
    assert ours.rows(spark).total() > 30, "there is something to compare"
