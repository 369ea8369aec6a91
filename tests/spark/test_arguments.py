"""What is wrong is said at once, on the driver, and by the name of the argument."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.spark_feed import Feed, Query
from trailmark.errors import SchemaChanged, TrailmarkError

_SCHEMA = (
    "item int, price double, name string, time timestamp, tags array<string>, flag boolean, "
    "raw binary"
)
_GOOD: dict[str, Any] = {
    "by": "item",
    "window": tm.count_window(3),
    "values": {"n": tm.count()},
}

_WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "a key that is not there": ({"by": "id"}, "by", "no column 'id'"),
    "a key that cannot be one": ({"by": "price"}, "price", "cannot be a key"),
    "a nested key": ({"by": "tags"}, "by", "array<string>"),
    "no key and several buckets": (
        {"by": [], "values": {"s": tm.sum("price")}, "buckets": 2},
        "buckets",
        "takes the tuples of all",
    ),
    "no key and no column": ({"by": []}, "by, values", "read no column"),
    "a key that is no name": ({"by": 3}, "by", "name of a column"),
    "no window": (
        {"window": "10 seconds"},
        "window",
        "count_window, a time_window or a session_window",
    ),
    "a window over text": (
        {"window": tm.time_window("name", "1 minute")},
        "time_window(column='name')",
        "timestamp column",
    ),
    "a window over nothing": ({"window": tm.time_window("when", "1 minute")}, "window", "'when'"),
    "no values": ({"values": {}}, "values", "at least one function"),
    "a value of a missing column": ({"values": {"x": tm.sum("cost")}}, "values['x']", "'cost'"),
    "a sum of text": ({"values": {"x": tm.sum("name")}}, "x", "sum"),
    "a nested value": ({"values": {"x": tm.max("tags")}}, "values['x']", "array<string>"),
    "a value that is no function": ({"values": {"x": "avg"}}, "values", "must be a function"),
    "a value named like a key": ({"values": {"item": tm.count()}}, "values", "'item'"),
    "a key named like the window": (
        {"window": tm.time_window("time", "1 minute"), "values": {"window": tm.count()}},
        "values",
        "'window'",
    ),
    "a policy and an objective": (
        {"checkpoint": tm.Continuous(), "recover_within": "1 second"},
        "checkpoint, recover_within",
        "either",
    ),
    "an objective that is no time": ({"recover_within": "fast"}, "objective", "not a duration"),
    "an objective of no time": ({"recover_within": "0 seconds"}, "objective", "no time"),
    "a policy that is none": ({"checkpoint": "continuous"}, "checkpoint", "must be a policy"),
    "an unknown loss": ({"loss": "some"}, "loss", "'none' or 'bounded'"),
    "loss where windows count together": (
        {"loss": "bounded", "window": tm.count_window(3, 2)},
        "loss",
        "have lost count",
    ),
    "no buckets": ({"buckets": 0}, "buckets", "from 1 to"),
    "half a bucket": ({"buckets": 1.5}, "buckets", "from 1 to"),
    "more buckets than keys": ({"by": "flag", "buckets": 50}, "buckets", "so few"),
    "an unknown way with late rows": ({"late": "ignore"}, "late", "'drop' or 'keep'"),
    "an order of nothing": ({"order_by": []}, "order_by", "names no column"),
    "an order that is not there": ({"order_by": "seq"}, "order_by", "no column 'seq'"),
    "a nested order": ({"order_by": ["name", "tags"]}, "order_by", "array<string>"),
    "an order by bytes": ({"order_by": "raw"}, "order_by", "cannot be ordered"),
    "an order named twice": ({"order_by": ["name", "name"]}, "order_by", "named twice"),
    "an order that is no name": ({"order_by": [["name"]]}, "order_by", "name of a column"),
    "an unknown durability": ({"durability": "maybe"}, "durability", "maybe"),
    "nothing retained": ({"retain_batches": 0}, "retain_batches", "number of batches"),
    "a flush of a stream": ({"flush": True}, "flush", "do not stream"),
    "no path": ({"path": ""}, "path", "directory or URL"),
    "a path of an unknown kind": ({"path": "hdfs://host/dir"}, "path", "names no storage"),
    "a path with a secret": ({"path": "s3://me:SECRET@b/x"}, "path", "'s3://***@b/x' holds more"),
    "a URL that lacks a slash": ({"path": "s3:/bucket/x"}, "path", "two slashes"),
}


@pytest.mark.parametrize("name", _WRONG)
def test_a_wrong_argument_is_named(spark: SparkSession, tmp_path: Path, name: str) -> None:
    given, where, text = _WRONG[name]
    stream = Feed(spark, tmp_path / "in", _SCHEMA).stream()
    with pytest.raises(TrailmarkError, match=re.escape(text)) as refused:
        tm.aggregate(stream, **(_GOOD | {"path": tmp_path / "log"} | given))
    assert where in refused.value.where
    assert not (tmp_path / "log").exists()


def test_columns_of_spark_that_are_no_function_are_refused_with_what_to_write(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Feed(spark, tmp_path / "in", _SCHEMA).stream()
    other = spark.createDataFrame([], "price double")
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"values": {"s": F.sum(F.col("price") * 2)}}, "values['s']", "df.withColumn"),
        ({"values": {"s": F.sum("price") + 1}}, "values['s']", "afterwards"),
        ({"values": {"s": F.sum("price").cast("int")}}, "values['s']", "CAST(sum(price) AS INT)"),
        ({"values": {"s": F.sum("price").alias("t")}}, "values['s']", "called 't'"),
        ({"values": {"s": F.count_distinct("price", "name")}}, "values['s']", "more than count"),
        ({"values": {"s": F.percentile("price", 0.5, 2)}}, "values['s']", "more than percentile"),
        ({"values": {"s": F.percentile("price", 1.5)}}, "percentile(at=...)", "between 0 and 1"),
        ({"values": {"s": F.median("name")}}, "s", "percentile cannot take"),
        ({"values": {"s": F.collect_list("tags")}}, "values['s']", "array<string>"),
        ({"values": {"s": F.sum_distinct("price")}}, "values['s']", "more than sum of a column"),
        ({"values": {"s": F.sum(other["price"])}}, "values['s']", "of a column of df"),
        ({"values": {"s": F.sum("tags.size")}}, "values['s']", "of a column of df"),
        ({"values": {"s": F.sum("cost")}}, "values['s']", "no column 'cost'"),
        ({"values": {"s": F.sum("name")}}, "s", "sum cannot take"),
        ({"values": {"s": F.stddev_pop("price")}}, "values['s']", "F.stddev_samp"),
        ({"values": {"s": F.expr("sum(price)")}}, "values['s']", "F.avg('price')"),
        ({"values": {"s": F.count(F.lit(None))}}, "values['s']", "more than count"),
        ({"values": {"s": F.col("price")}}, "values['s']", "F.avg('price')"),
        ({"values": {"s": tm.sum(F.col("price"))}}, "values['s']", "given by its name"),  # type: ignore[arg-type]
        ({"by": [F.col("item")]}, "by", "list of names"),
        ({"window": F.window("time", "1 minute")}, "window", "time_window"),
    ]
    for given, where, text in wrong:
        with pytest.raises(TrailmarkError, match=re.escape(text)) as refused:
            tm.aggregate(stream, **(_GOOD | {"path": tmp_path / "log"} | given))
        assert where in refused.value.where


def test_something_else_than_a_dataframe_is_refused(tmp_path: Path) -> None:
    wrong: Any = pa.table({"item": [1]})
    with pytest.raises(TrailmarkError, match="df must be a DataFrame"):
        tm.aggregate(wrong, path=tmp_path, **_GOOD)


def test_other_logs_than_those_of_the_operator_are_refused_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path / "in", "item int, price double")
    feed.add(pa.table({"item": pa.array([1, 2], pa.int32()), "price": [1.0, 2.0]}))
    path = tmp_path / "log"
    averages = tm.aggregate(
        feed.stream(), path=path, buckets=2, cache_dir=tmp_path / "cache", **_GOOD
    )
    Query(tmp_path).run(averages)
    with pytest.raises(SchemaChanged, match=r"buckets: 2 -> 3"):
        tm.aggregate(feed.stream(), path=path, buckets=3, **_GOOD)
    with pytest.raises(SchemaChanged, match=r"operator.window.size: 3 -> 4"):
        tm.aggregate(feed.stream(), path=path, **(_GOOD | {"window": tm.count_window(4)}))
    tm.aggregate(feed.stream(), path=path, **_GOOD)  # the number of buckets is known by now
