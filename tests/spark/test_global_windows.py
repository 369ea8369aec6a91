"""Windows over all rows, whatever their keys: one bucket, and Spark's own results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.seeds import seeds
from tests.support.spark_feed import Feed, Query, expected_rows, meta_of, rows_of
from trailmark.operators.kinds import title_of

_SCHEMA = "price int, weight double, time timestamp"


def _sales(rng: np.random.Generator, batch: int) -> pa.Table:
    rows = int(rng.integers(0, 80))
    seconds = 60 * batch + rng.integers(0, 90, rows) - (rng.random(rows) < 0.1) * 200
    return pa.table(
        {
            "price": pa.array(rng.integers(-9, 9, rows, "int32"), mask=rng.random(rows) < 0.1),
            "weight": pa.array(rng.integers(0, 64, rows) / 8, mask=rng.random(rows) < 0.1),
            "time": pa.array((1_700_000_000 + seconds) * 1_000_000, pa.timestamp("us", "UTC")),
        }
    )


@pytest.mark.usefixtures("few_partitions")
def test_windows_over_all_rows_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A value may have the name of any column, that by which rows are sent among them."""
    (seed,) = seeds(1)[:1]
    print(f"TRAILMARK_SEED={seed}")
    rng = np.random.default_rng(seed)
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    columns = {"time": F.count("*"), "price": F.sum("price"), "weight": F.max("weight")}
    ours, theirs = Query(tmp_path, "ours"), Query(tmp_path, "theirs")
    for run in range(2):
        feed.add(*(_sales(rng, 3 * run + number) for number in range(3)))
        found = tm.aggregate(
            feed.stream(),
            by=[],
            window=tm.time_window("time", "20 seconds", delay="30 seconds"),
            values=columns,
            path=tmp_path / "log",
            cache_dir=tmp_path / "cache",
        )
        window = F.window("time", "20 seconds")
        grouped = feed.stream().withWatermark("time", "30 seconds").groupBy(window)
        expected = grouped.agg(*(each.alias(name) for name, each in columns.items()))
        assert [f.dataType for f in found.schema] == [f.dataType for f in expected.schema]
        ours.run(found)
        theirs.run(expected)
        assert ours.rows(spark) == theirs.rows(spark), f"after run {run}"
    assert ours.rows(spark).total() > 5, "there is something to compare"
    assert meta_of(tmp_path / "log").buckets == 1
    title = title_of(meta_of(tmp_path / "log").operator)
    assert title == "aggregate of all tuples, windows of 20 seconds of time"


def test_count_windows_over_all_rows_take_the_rows_of_all_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path / "in", "weight double")
    feed.add(*(pa.table({"weight": [n + step / 100 for step in range(9)]}) for n in range(3)))
    given: dict[str, Any] = {
        "by": [],
        "window": tm.count_window(5),
        "values": {
            "n": tm.count(),
            "weight": tm.avg("weight"),
            "all": tm.collect_list("weight"),
            "ends": tm.percentile("weight", [0, 1]),
        },
        "order_by": "weight",
    }
    path = tmp_path / "log"
    rows = feed.stream().repartition(3)
    Query(tmp_path).run(tm.aggregate(rows, path=path, cache_dir=tmp_path / "cache", **given))
    found = Query(tmp_path).rows(spark)
    del given["order_by"]
    assert found == expected_rows(path, **given)
    assert found.total() == 5
    reader = spark.read.format("trailmark")
    (window,) = reader.option("records", "state").load(str(path)).select("`all.values`").collect()
    assert len(window[0]) == 2, "of 27 tuples, 25 are in windows that have closed"
    still = spark.read.parquet(str(feed.directory))
    assert rows_of(tm.aggregate(still, path=path, order_by="weight", **given)) == found
