"""Aggregate columns of Spark's, such as ``F.sum("v")``, give here what they give in Spark."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.seeds import seeds
from tests.support.spark_feed import rows_of
from trailmark.errors import ValueOverflow
from trailmark.spark.columns import own_functions

_START = 1_700_000_000_000_000
_WINDOW = tm.time_window("at", "10 seconds")


def _rows(seed: int) -> pa.Table:
    """Values of many types with nulls and NaN; every value comes at a time of its own."""
    rng = random.Random(seed)

    def some(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    count = rng.randint(60, 120)
    times = rng.sample(range(60_000), count)
    floats = (0.5, -1.25, 3.0, 1e9, float("nan"))
    return pa.table(
        {
            "key": pa.array([some(rng.randint(0, 4)) for _ in range(count)], pa.int32()),
            "at": pa.array([_START + 1_000 * time for time in times], pa.timestamp("us", "UTC")),
            "small": pa.array([some(rng.randint(-9, 9)) for _ in range(count)], pa.int16()),
            "big": pa.array([some(rng.randint(-(10**12), 10**12)) for _ in range(count)]),
            "part": pa.array([some(rng.choice(floats)) for _ in range(count)], pa.float64()),
            "cost": pa.array(
                [some(Decimal(rng.randint(-999, 999)).scaleb(-2)) for _ in range(count)],
                pa.decimal128(9, 2),
            ),
            "name": pa.array([some(rng.choice("abcxyz")) for _ in range(count)], pa.string()),
            "Odd.Name": pa.array([some(rng.randint(0, 3)) for _ in range(count)], pa.int64()),
        }
    )


def _columns(df: DataFrame) -> dict[str, Column]:
    return {
        "rows": F.count("*"),
        "ones": F.count(F.lit(1)),
        "known": F.count("name"),
        "total": F.sum("small"),
        "whole": F.sum(df["big"]),
        "parts": F.sum("part"),
        "costs": F.sum("cost").alias("costs"),
        "tried": F.try_sum(F.col("cost")),
        "mean": F.mean("small"),
        "average": F.avg("cost"),
        "tried_mean": F.try_avg("BIG"),
        "least": F.min("name"),
        "most": F.max("part"),
        "lowest": F.min("cost"),
        "quoted": F.max("`odd.name`"),
    }


def _both(df: DataFrame, columns: dict[str, Column]) -> tuple[DataFrame, DataFrame]:
    """What is computed here and what Spark's own operator makes of the same columns."""
    ours = tm.aggregate(df, by="key", window=_WINDOW, values=columns, path="/unused", flush=True)
    grouped = df.groupBy("key", F.window("at", "10 seconds"))
    return ours, grouped.agg(*(column.alias(name) for name, column in columns.items()))


def _types(df: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in df.schema]


def test_columns_of_spark_give_its_results_in_its_types(spark: SparkSession) -> None:
    (seed,) = seeds(1)[:1]
    print(f"TRAILMARK_SEED={seed}")
    df = spark.createDataFrame(_rows(seed))
    ours, theirs = _both(df, _columns(df))
    assert _types(ours) == _types(theirs)
    found = rows_of(ours)
    assert found == rows_of(theirs)
    assert found.total() > 20, "there is something to compare"


def test_spread_is_sparks_but_for_the_last_digits(spark: SparkSession) -> None:
    """Spark adds up partial sums of a batch, in an order of its own."""
    columns = {
        "std": F.std("small"),
        "stddev": F.stddev("small"),
        "samp": F.stddev_samp("cost"),
        "variance": F.variance("big"),
        "var": F.var_samp("small"),
    }
    ours, theirs = _both(spark.createDataFrame(_rows(7)), columns)
    assert _types(ours) == _types(theirs)
    mine, spark_rows = ({(r.key, r.window): r for r in df.collect()} for df in (ours, theirs))
    assert mine.keys() == spark_rows.keys()
    for place, row in mine.items():
        for name in columns:
            expected = spark_rows[place][name]
            is_near = row[name] == (None if expected is None else pytest.approx(expected, rel=1e-9))
            assert is_near, (place, name, row[name], expected)


def test_first_and_last_go_by_the_order_that_is_asked_for(spark: SparkSession) -> None:
    rows = _rows(3).sort_by("at")
    columns = {
        "first": F.first("name"),
        "known": F.first("name", ignorenulls=True),
        "value": F.first_value("small"),
        "last": F.last("name"),
        "newest": F.last_value("small", F.lit(True)),
    }
    df = spark.createDataFrame(rows)
    given: dict[str, Any] = {
        "by": "key",
        "window": _WINDOW,
        "values": columns,
        "order_by": "at",
        "flush": True,
    }
    ours = tm.aggregate(df, path="/unused", **given)
    grouped = df.coalesce(1).sort("at").groupBy("key", F.window("at", "10 seconds"))
    theirs = grouped.agg(*(column.alias(name) for name, column in columns.items()))
    assert _types(ours) == _types(theirs)
    assert rows_of(ours) == rows_of(theirs)


def test_functions_that_hold_values_give_sparks_results(spark: SparkSession) -> None:
    rows = spark.createDataFrame(_rows(11).sort_by("at")).coalesce(1)
    columns = {
        "kinds": F.count_distinct("name"),
        "parts": F.count_distinct("part"),
        "names": F.collect_list("name"),
        "costs": F.array_agg("cost"),
        "smalls": F.collect_list("small"),
        "days": F.collect_list(F.col("at")),
        "set": F.collect_set("cost"),
        "part_set": F.collect_set("part"),
        "middle": F.median("part"),
        "high": F.percentile("cost", 0.9),
        "several": F.percentile("big", [0.0, 0.3, 1.0]),
        "about": F.approx_count_distinct("name"),
        "nearly": F.approx_count_distinct("part", 0.01),
    }
    given: dict[str, Any] = {"by": "key", "window": _WINDOW, "values": columns, "flush": True}
    ours = tm.aggregate(rows, path="/unused", order_by="at", **given)
    grouped = rows.sort("at").groupBy("key", F.window("at", "10 seconds"))
    theirs = grouped.agg(*(column.alias(name) for name, column in columns.items()))
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    # A set of Spark's has no certain order, nor has a list behind its shuffle.
    lists = [name for name, kind in theirs.dtypes if kind.startswith("array") and name != "several"]
    sorts = {name: F.sort_array(name) for name in lists}
    found, wanted = (rows_of(each.withColumns(sorts)) for each in (ours, theirs))
    assert not found - wanted
    assert found.total() == wanted.total() > 20
    for row in ours.select("days").collect():
        assert row.days == sorted(row.days), "in the order that was asked for"


_SKETCHED = ("flag", "tiny", "small", "big", "thin", "part", "day", "at", "cost", "wide", "name")


def test_approximate_counts_are_sparks_own_where_it_corrects_nothing(spark: SparkSession) -> None:
    """That is below 2.5 and above 5 times as many values as there are registers, here 512: hashes
    and registers are the same for every type. In between they differ by little."""
    counts = {"few": 5, "some": 400, "many": 1_000, "between": 1_900, "lots": 6_000}
    rows = spark.sql(" UNION ALL ".join(
        f"SELECT '{kind}' AS kind, id FROM range({count})" for kind, count in counts.items()
    )).selectExpr(
        "kind",
        "timestamp_micros(1700000000000000 + id) AS at",
        "id % 2 = 0 AS flag",
        "cast(id % 100 AS byte) AS tiny",
        "cast(id AS int) AS small",
        "id * id AS big",
        "cast(id / 8 - 9 AS float) AS thin",
        "if(id % 7 = 0, double('nan'), id / 8 - 9) AS part",
        "date_add(DATE'2024-01-01', cast(id AS int)) AS day",
        "cast(id / 100 AS decimal(9, 2)) AS cost",
        "cast(id - 900 AS decimal(38, 0)) * 1000000000000000000000 AS wide",
        "repeat(cast(id AS string), cast(id % 13 AS int)) AS name",
    )  # fmt: skip
    columns = {name: F.approx_count_distinct(name) for name in _SKETCHED}
    window = tm.time_window("at", "1 hour")
    given: dict[str, Any] = {"by": "kind", "values": columns, "path": "/unused", "flush": True}
    ours = tm.aggregate(rows, window=window, **given)
    theirs = rows.groupBy("kind").agg(*(each.alias(name) for name, each in columns.items()))
    assert _types(ours.select(*_SKETCHED)) == _types(theirs.select(*_SKETCHED))
    found, wanted = ({row.kind: row for row in df.collect()} for df in (ours, theirs))
    assert found.keys() == wanted.keys() == counts.keys()
    for kind, expected in wanted.items():
        for name in _SKETCHED:
            if kind != "between":
                assert found[kind][name] == expected[name], (kind, name)
            else:
                assert found[kind][name] == pytest.approx(expected[name], rel=0.03), name


def test_a_sum_that_fits_no_type_is_an_error_or_null_as_spark_was_asked(
    spark: SparkSession,
) -> None:
    df = spark.createDataFrame([(1, 2**63 - 1), (1, 1)], "key int, big long")
    given: dict[str, Any] = {"by": "key", "window": tm.count_window(2), "path": "/unused"}
    tried = tm.aggregate(df, values={"s": F.try_sum("big")}, **given)
    assert [row.s for row in tried.collect()] == [None]
    with pytest.raises(Exception, match=ValueOverflow.__name__):
        tm.aggregate(df, values={"s": F.sum("big")}, **given).collect()


def test_logs_do_not_tell_whose_function_it_was(spark: SparkSession) -> None:
    """A query may go on with the other spelling: both are the same operator."""
    df = spark.createDataFrame([], "key int, v double")
    given = {"n": F.count("*"), "s": F.sum("V"), "l": F.last(df.v, True), "t": F.try_avg("v")}
    given |= {"a": F.approx_count_distinct("v"), "b": F.approx_count_distinct("V", 0.02)}
    ours = {
        "n": tm.count(),
        "s": tm.sum("v"),
        "l": tm.last("v", ignore_nulls=True),
        "t": tm.avg("v", overflow="null"),
        "a": tm.approx_count_distinct("v"),
        "b": tm.approx_count_distinct("v", rsd=0.02),
    }
    assert own_functions(given, df) == ours
