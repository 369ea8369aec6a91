"""`tm.join` gives what Spark's own join of two streams gives, through restarts and lost caches."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.seeds import seeds
from tests.support.spark_feed import Feed, Query, rows_of

_SECOND = 1_000_000
_START = 1_700_000_000 * _SECOND
_LEFT = "key int, seen timestamp, ad string"
_RIGHT = "key int, clicked timestamp, price double"
_BATCHES = 6
_ROWS = 30


def _table(rng: random.Random, batch: int, time: str, value: tuple[str, pa.DataType]) -> pa.Table:
    """Some keys and times are null, some rows come late, and some very early; watermarks of Spark's
    are whole milliseconds, and times are not."""
    shifts = (0, 0, 0, -15, 30)
    times: list[int | None] = []
    for _ in range(_ROWS):
        at = _START + (10 * batch + rng.randrange(10) + rng.choice(shifts)) * _SECOND
        at += rng.choice((0, 300, 700))
        times.append(at if rng.random() < 0.95 else None)
    keys = [rng.randrange(6) if rng.random() < 0.9 else None for _ in range(_ROWS)]
    name, kind = value
    values = pa.array(range(batch * _ROWS, (batch + 1) * _ROWS), pa.int64()).cast(kind)
    return pa.table(
        {
            "key": pa.array(keys, pa.int32()),
            time: pa.array(times, pa.timestamp("us", "UTC")),
            name: values,
        }
    )


class Sides:
    """Two streams, and what is asked of them."""

    def __init__(self, spark: SparkSession, root: Path, seed: int) -> None:
        self.root = root
        self.rng = random.Random(seed)
        self.left = Feed(spark, root / "left", _LEFT)
        self.right = Feed(spark, root / "right", _RIGHT)

    def add(self, batches: range) -> None:
        for batch in batches:
            self.left.add(_table(self.rng, batch, "seen", ("ad", pa.string())))
            self.right.add(_table(self.rng, batch, "clicked", ("price", pa.float64())))

    def joined(self, how: str, **given: Any) -> DataFrame:
        arguments: dict[str, Any] = {
            "on": "key",
            "within": tm.interval(
                "seen", "clicked", before="3 seconds", after="8 seconds", delay=("5 s", "2 s")
            ),
            "how": how,
            "path": self.root / "log",
            "buckets": 2,
            "cache_dir": self.root / "cache",
        }
        return tm.join(self.left.stream(), self.right.stream(), **(arguments | given))

    def joined_by_spark(self, how: str) -> DataFrame:
        left = self.left.stream().withWatermark("seen", "5 seconds")
        right = self.right.stream().withWatermark("clicked", "2 seconds")
        other = right.withColumnRenamed("key", "other")
        # In full outer joins Spark pairs nulls; here they are different on either side.
        condition = F.expr(
            "coalesce(key, -1) = coalesce(other, -2) AND clicked >= seen - INTERVAL 3 SECONDS "
            "AND clicked <= seen + INTERVAL 8 SECONDS"
        )
        joined = left.join(other, condition, how)
        return joined.select(
            F.coalesce("key", "other").alias("key"), "seen", "ad", "clicked", "price"
        )


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("how", ["inner", "left_outer", "right", "fullouter"])
def test_rows_and_types_are_those_of_sparks_own_join(
    spark: SparkSession, tmp_path: Path, few_partitions: None, how: str, seed: int
) -> None:
    sides = Sides(spark, tmp_path, seed)
    query, theirs = Query(tmp_path / "ours"), Query(tmp_path / "theirs")
    for batches in (range(3), range(3, _BATCHES)):
        sides.add(batches)
        query.run(sides.joined(how))
        theirs.run(sides.joined_by_spark(how))
        shutil.rmtree(tmp_path / "cache")  # as on another host
    found = query.rows(spark)
    assert found == theirs.rows(spark)
    assert len(found) > 50
    assert sides.joined(how).dtypes == sides.joined_by_spark(how).dtypes


@pytest.mark.parametrize("how", ["left", "right"])
def test_who_found_nobody_comes_out_in_the_batch_in_which_spark_says_so(
    spark: SparkSession, tmp_path: Path, few_partitions: None, how: str
) -> None:
    """Rows at every third of a millisecond around the last that may leave."""
    sides = Sides(spark, tmp_path, 0)
    span = 8 if how == "left" else 3
    end = _START + 100 * _SECOND + 400
    around = [end - (5 + span) * _SECOND + 333 * n for n in range(-9, 10)]
    others = [end] * 2
    for feed, name, times, delay in (
        (sides.left, "seen", around if how == "left" else others, 0),
        (sides.right, "clicked", around if how == "right" else others, -3 * _SECOND),
    ):
        value = "ad" if name == "seen" else "price"
        kind = pa.string() if name == "seen" else pa.float64()
        # The watermark is the least of both: they have other delays.
        given = [*times, end + delay]
        keys = [n if name == "seen" else 1000 + n for n in range(len(given))]
        feed.add(
            pa.table(
                {
                    "key": pa.array(keys, pa.int32()),
                    name: pa.array(given, pa.timestamp("us", "UTC")),
                    value: pa.array(range(len(given)), pa.int64()).cast(kind),
                }
            )
        )
    query, theirs = Query(tmp_path / "ours"), Query(tmp_path / "theirs")
    query.run(sides.joined(how))
    theirs.run(sides.joined_by_spark(how))
    found = query.rows(spark)
    assert found == theirs.rows(spark)
    assert 3 <= found.total() < len(around), "some have left, and some have not"


def test_dataframes_that_do_not_stream_are_joined_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    left, right = (
        spark.createDataFrame(rows, f"key int, at long, {name} string").withColumn(
            "at", F.timestamp_seconds("at")
        )
        for name, rows in (
            ("a", [(1, 10, "x"), (2, 20, "y"), (None, 30, "z")]),
            ("b", [(1, 12, "p"), (1, 99, "q"), (3, 20, "r")]),
        )
    )
    within = tm.interval("at", "at", before="5 seconds", after="5 seconds")
    full = tm.join(left, right, on="key", within=within, how="full", path=tmp_path / "log")
    assert full.columns == ["key", "at_left", "a", "at_right", "b"]
    paired = {(row[0], row[2], row[4]) for row in rows_of(full)}
    assert paired == {
        (1, "x", "p"),
        (2, "y", None),
        (None, "z", None),
        (1, None, "q"),
        (3, None, "r"),
    }
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_nearest_before_is_the_latest_that_is_not_after(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    sides = Sides(spark, tmp_path, seed=3)
    sides.add(range(4))
    within = tm.interval("seen", "clicked", delay="1 hour", nearest="before")  # nothing is late
    still = [
        spark.read.schema(feed.schema).parquet(str(feed.directory))
        for feed in (sides.left, sides.right)
    ]
    left, right = (list(rows_of(df)) for df in still)
    end = pa.array([_START + 100_000 * _SECOND], pa.timestamp("us", "UTC"))
    for feed, time in ((sides.left, "seen"), (sides.right, "clicked")):
        feed.add(pa.table({"key": pa.nulls(1, pa.int32()), time: end}))
    query = Query(tmp_path / "ours")
    query.run(sides.joined(how, within=within))
    expected = {
        (key, seen, ad): max(
            (
                clicked
                for other, clicked, _ in right
                if clicked is not None
                and key is not None
                and (other, True) == (key, clicked <= seen)
            ),
            default=None,
        )
        for key, seen, ad in left
        if seen is not None
    }
    if how == "inner":
        expected = {row: at for row, at in expected.items() if at is not None}
    found = {row[:3]: row[3] for row in query.rows(spark)}
    assert found == expected
    at_rest = tm.join(*still, on="key", within=within, how=how, path=tmp_path / "none")
    assert {row[:3]: row[3] for row in rows_of(at_rest)} == expected


def test_a_condition_is_a_function_or_for_inner_joins_an_expression(
    spark: SparkSession, tmp_path: Path
) -> None:
    left = spark.createDataFrame([(1, 0, 5), (1, 0, 7)], "key int, at long, bid int")
    right = spark.createDataFrame([(1, 0, 6)], "key int, at long, ask int")
    timed = [df.withColumn("at", F.timestamp_seconds("at")) for df in (left, right)]
    given: dict[str, Any] = {"on": "key", "within": tm.interval("at", "at"), "path": tmp_path}

    def is_met(left: pa.RecordBatch, right: pa.RecordBatch) -> Any:
        return pc.greater_equal(left["bid"], right["ask"])

    for condition in ("bid >= ask", F.col("bid") >= F.col("ask"), is_met):
        met = tm.join(*timed, condition=condition, **given)
        assert [(row.bid, row.ask) for row in met.collect()] == [(7, 6)]
    outer = tm.join(*timed, condition=is_met, how="left", **given)
    assert {(row.bid, row.ask) for row in outer.collect()} == {(7, 6), (5, None)}
    with pytest.raises(tm.TrailmarkError, match="before Spark could evaluate") as refused:
        tm.join(*timed, condition="bid >= ask", how="left", **given)
    assert refused.value.where == "condition"


def test_what_cannot_be_joined_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    sides = Sides(spark, tmp_path, 0)
    table = spark.createDataFrame([(1, 2.0)], "key int, price double")
    left, right = sides.left.stream(), sides.right.stream()
    within = tm.interval("seen", "clicked")
    cases: list[tuple[str, str, tuple[Any, Any], dict[str, Any]]] = [
        ("does not", "right", (left, table), {}),
        ("must be a DataFrame", "left", ("left", right), {}),
        ("int32 on the left", "on", (left, right.withColumn("key", F.lit("1"))), {}),
        ("no column", "on (left)", (left, right), {"on": "price"}),
        ("must name at least one", "on", (left, right), {"on": []}),
        ("must be an interval", "within", (left, right), {"within": "1 hour"}),
        ("Neither within nor windows", "within, windows", (left, right), {"within": None}),
        (
            "must be timestamps",
            "within (right)",
            (left, right),
            {"within": tm.interval("seen", "price")},
        ),
        ("must be inner", "how", (left, right), {"how": "anti"}),
        ("must be a function", "condition", (left, right), {"condition": 3}),
    ]
    for what, where, frames, given in cases:
        arguments = {"on": "key", "within": within, "path": tmp_path / "log", **given}
        with pytest.raises(tm.TrailmarkError, match=what) as refused:
            tm.join(*frames, **arguments)
        assert refused.value.where == where, what
    assert not (tmp_path / "log").exists()
