"""Time windows close as Spark's own do in append mode, on the same input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.beside_spark import assert_same_after_every_run, random_sales


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
def batches_without_data(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """As the test asks for."""
    name = "spark.sql.streaming.noDataMicroBatches.enabled"
    spark.conf.set(name, str(request.param).lower())
    yield
    spark.conf.unset(name)


@pytest.mark.parametrize(
    ("batches_without_data", "slide", "delay"),
    [(True, None, "30 seconds"), (True, "15 seconds", "0 seconds"), (False, None, "10 seconds")],
    ids=["tumbling", "sliding", "no batches without data"],
    indirect=["batches_without_data"],
)
@pytest.mark.usefixtures("few_partitions", "batches_without_data")
def test_after_every_run_the_results_are_those_of_sparks_own_windows(
    spark: SparkSession, tmp_path: Path, slide: str | None, delay: str
) -> None:
    assert_same_after_every_run(
        spark,
        tmp_path,
        lambda rng, batch: random_sales(rng, batch, most=300),
        lambda stream: _ours(stream, tmp_path, slide, delay),
        lambda stream: _theirs(stream, slide, delay),
    )
