"""Sessions are those of Spark's own ``session_window()`` in append mode, on the same input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.seeds import seeds
from tests.support.spark_feed import Feed, Query, meta_of, rows_of
from trailmark.errors import TrailmarkError
from trailmark.operators.kinds import title_of

_SCHEMA = "shop int, price int, weight double, name string, time timestamp"
_GAP, _DELAY = "6 seconds", "30 seconds"


def _sales(rng: np.random.Generator, batch: int) -> pa.Table:
    """Sales of about a minute per batch on whole seconds, so that some are a gap apart; some are
    late, very late, or without a time."""
    rows = int(rng.integers(0, 120))
    seconds = 60 * batch + rng.integers(0, 90, rows) - (rng.random(rows) < 0.1) * 75
    seconds -= (rng.random(rows) < 0.05) * 400
    micros = (1_700_000_000 + seconds) * 1_000_000
    return pa.table(
        {
            "shop": pa.array(rng.integers(0, 7, rows, dtype=np.int32), mask=rng.random(rows) < 0.1),
            "price": pa.array(rng.integers(-9, 99, rows, dtype=np.int32)),
            "weight": pa.array(rng.integers(0, 64, rows) / 8, mask=rng.random(rows) < 0.1),
            "name": pa.array(rng.choice(list("abcxyz"), rows), mask=rng.random(rows) < 0.2),
            "time": pa.array(micros, pa.timestamp("us", "UTC"), mask=rng.random(rows) < 0.03),
        }
    )


def _columns() -> dict[str, Column]:
    return {
        "n": F.count("*"),
        "known": F.count("weight"),
        "total": F.sum("price"),
        "mean": F.avg("weight"),
        "least": F.min("name"),
        "most": F.max("price"),
    }


def _ours(rows: DataFrame, root: Path, **given: Any) -> DataFrame:
    return tm.aggregate(
        rows,
        by="shop",
        window=tm.session_window("time", _GAP, delay=_DELAY),
        values=_columns(),
        path=root / "log",
        cache_dir=root / "cache",
        **given,
    )


def _theirs(rows: DataFrame) -> DataFrame:
    columns = [column.alias(name) for name, column in _columns().items()]
    return rows.groupBy("shop", F.session_window("time", _GAP)).agg(*columns)


@pytest.fixture
def few_partitions(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.unset("spark.sql.shuffle.partitions")


@pytest.mark.usefixtures("few_partitions")
def test_after_every_run_the_results_are_those_of_sparks_own_sessions(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A job that runs three times, each time over what has come since."""
    (seed,) = seeds(1)[:1]
    print(f"TRAILMARK_SEED={seed}")
    rng = np.random.default_rng(seed)
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    ours, theirs = Query(tmp_path, "ours"), Query(tmp_path, "theirs")
    for run in range(3):
        feed.add(*(_sales(rng, 3 * run + number) for number in range(3)))
        found = _ours(feed.stream(), tmp_path, buckets=2)
        expected = _theirs(feed.stream().withWatermark("time", _DELAY))
        assert [(f.name, f.dataType) for f in found.schema] == [
            (f.name, f.dataType) for f in expected.schema
        ]
        batches = ours.run(found)
        assert [each["batchId"] for each in batches] == [
            each["batchId"] for each in theirs.run(expected)
        ]
        assert ours.rows(spark) == theirs.rows(spark), f"after run {run}"
    assert ours.rows(spark).total() > 30, "there is something to compare"
    log = tmp_path / "log"
    assert (
        title_of(meta_of(log).operator)
        == "aggregate by shop, sessions of time with gaps of 6 seconds"
    )
    open_now = spark.read.format("trailmark").option("records", "state").load(str(log))
    assert open_now.count() > 0
    assert rows_of(spark.read.format("trailmark").load(str(log))).total() > 0


def test_a_dataframe_that_does_not_stream_ends_its_sessions_with_a_flush(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    rows = spark.createDataFrame(pa.concat_tables([_sales(rng, number) for number in range(3)]))
    assert _ours(rows, tmp_path).count() == 0
    assert rows_of(_ours(rows, tmp_path, flush=True)) == rows_of(_theirs(rows))


def test_what_cannot_be_a_session_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([], _SCHEMA)
    given: dict[str, Any] = {"by": "shop", "values": {"n": tm.count()}, "path": tmp_path}
    window = tm.session_window("time", "1 minute")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"window": tm.session_window("name", "1 minute")}, "Sessions need a timestamp column"),
        ({"window": tm.session_window("when", "1 minute")}, "no column 'when'"),
        ({"window": window, "values": {"session_window": tm.count()}}, "bounds of"),
        ({"window": window, "values": {"window_end": tm.count()}}, "bounds of"),
        ({"window": F.session_window("time", "1 minute")}, "a session_window, got"),
    ]
    for change, text in wrong:
        with pytest.raises(TrailmarkError, match=text):
            tm.aggregate(rows, **(given | change))
