"""`tm.aggregate` gives what the oracle gives, for every type of key and value."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

import trailmark as tm
from tests.support.spark_feed import (
    Feed,
    Query,
    expected_rows,
    logged_rows,
    meta_of,
    rows_of,
    table_rows,
)
from trailmark.spark import operate, placement
from trailmark.windows.functions import AnyFunction
from trailmark.windows.spec import TimeWindow, Window

_SCHEMA = (
    "tiny tinyint, small smallint, whole int, big bigint, flag boolean, text string, day date, "
    "instant timestamp, local timestamp_ntz, price decimal(12,3), single float, number double, "
    "unused array<int>"
)
_START = datetime(2024, 3, 1)


def _value(rng: random.Random, name: str, second: int) -> Any:
    if rng.random() < 0.1 and name != "instant":
        return None
    when = _START + timedelta(seconds=second, microseconds=rng.randrange(1_000_000))
    made: dict[str, Callable[[], Any]] = {
        "tiny": lambda: rng.randrange(-3, 3),
        "small": lambda: rng.randrange(-300, 300),
        "whole": lambda: rng.randrange(12),
        "big": lambda: rng.choice([1 << 40, -5, 7]),
        "flag": lambda: rng.random() < 0.5,
        "text": lambda: rng.choice(["", "a", "ß", "longer than sixteen bytes"]),
        "day": lambda: date(2024, 1, rng.randrange(1, 5)),
        "instant": lambda: when.replace(tzinfo=timezone.utc),
        "local": lambda: _START + timedelta(days=rng.randrange(3)),
        "price": lambda: Decimal(rng.randrange(-5000, 5000)).scaleb(-3),
        "single": lambda: rng.choice([0.5, -2.25, float("nan")]),
        "number": lambda: rng.choice([1.5, -0.0, 3.25]),
        "unused": lambda: [1, 2],
    }
    return made[name]()


def _tables(seed: int, batches: int = 4, rows: int = 250) -> list[pa.Table]:
    rng = random.Random(seed)
    kinds = {
        "tiny": pa.int8(),
        "small": pa.int16(),
        "whole": pa.int32(),
        "big": pa.int64(),
        "flag": pa.bool_(),
        "text": pa.string(),
        "day": pa.date32(),
        "instant": pa.timestamp("us", tz="UTC"),
        "local": pa.timestamp("us"),
        "price": pa.decimal128(12, 3),
        "single": pa.float32(),
        "number": pa.float64(),
        "unused": pa.list_(pa.int32()),
    }
    return [
        pa.table(
            {
                name: pa.array([_value(rng, name, 40 * b + n % 50) for n in range(rows)], kind)
                for name, kind in kinds.items()
            }
        )
        for b in range(batches)
    ]


_CASES: dict[str, tuple[list[str], Window, dict[str, AnyFunction]]] = {
    "whole numbers": (
        ["whole"],
        tm.count_window(5),
        {"n": tm.count(), "total": tm.sum("big"), "mean": tm.avg("small"), "least": tm.min("tiny")},
    ),
    "only counting": (["big"], tm.count_window(7), {"n": tm.count()}),
    "text": (
        ["text"],
        tm.count_window(6, slide=4),
        {"first": tm.first("text"), "last": tm.last("whole"), "most": tm.max("text")},
    ),
    "flag": (
        ["flag"],
        tm.count_window(9),
        {"spread": tm.stddev("number"), "v": tm.variance("big")},
    ),
    "day and tiny": (
        ["day", "tiny"],
        tm.count_window(2, slide=3),
        {"total": tm.sum("price"), "mean": tm.avg("price"), "most": tm.max("single")},
    ),
    "instant": (["instant"], tm.count_window(1), {"n": tm.count("price"), "d": tm.max("day")}),
    "local": (["local"], tm.count_window(8), {"latest": tm.max("instant"), "l": tm.min("local")}),
    "price": (["price"], tm.count_window(1), {"n": tm.count(), "x": tm.last("number")}),
    "time": (
        ["small", "flag"],
        tm.time_window("instant", "20 seconds", slide="10 seconds", delay="5 seconds"),
        {"n": tm.count(), "total": tm.sum("price"), "single": tm.avg("single")},
    ),
    "local time": (["tiny"], tm.time_window("local", "1 day"), {"n": tm.count()}),
}


@pytest.mark.parametrize("name", _CASES)
def test_results_are_those_of_the_oracle(spark: SparkSession, tmp_path: Path, name: str) -> None:
    _compare_with_oracle(spark, tmp_path, name)


@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize("name", ["day and tiny", "text", "time"])
def test_results_are_the_same_where_buckets_have_places(
    spark: SparkSession,
    tmp_path: Path,
    name: str,
    is_cached: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where Spark was told to forget all that is cached, and the places with it."""
    monkeypatch.setattr(operate, "has_several_hosts", lambda session: True)
    if not is_cached:
        monkeypatch.setattr(ClassicDataFrame, "persist", lambda df: df)
        monkeypatch.setattr(placement, "_anchors", {})
        spark.catalog.clearCache()
    _compare_with_oracle(spark, tmp_path, name)
    if not is_cached:  # nor was anything said yet
        assert caplog.text.count("Set spark.shuffle.reduceLocality.enabled=false") == 1


def _compare_with_oracle(spark: SparkSession, tmp_path: Path, name: str) -> None:
    by, window, values = _CASES[name]
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    tables = _tables(1)
    feed.add(*tables)
    query, path = Query(tmp_path), tmp_path / "log"
    result = tm.aggregate(
        feed.stream(),
        by=by,
        window=window,
        values=values,
        path=path,
        checkpoint=tm.Continuous(q=20),
        cache_dir=tmp_path / "cache",
    )
    progress = query.run(result)
    assert len([each for each in progress if each["numInputRows"]]) == len(tables)
    assert len(progress) <= len(tables) + isinstance(window, TimeWindow), "one may come without"
    found = query.rows(spark)
    assert found == expected_rows(path, by=by, window=window, values=values)
    assert found.total() > 10, "there is something to compare"
    names = meta_of(path).input_schema.names
    assert logged_rows(path) == table_rows(tables, names), "nothing is lost on the way to the log"


#: Count windows whose results do not depend on an order that a shuffle does not keep.
_ORDERLESS = ["only counting", "instant"]


@pytest.mark.parametrize("name", [n for n in _CASES if "time" not in n])
def test_a_dataframe_that_does_not_stream_is_one_batch(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    by, window, values = _CASES[name]
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    feed.add(*_tables(2, batches=2))
    still = spark.read.schema(_SCHEMA).parquet(str(tmp_path / "in"))
    path = tmp_path / "log"
    whole = tm.aggregate(still, by=by, window=window, values=values, path=path)
    flushed = tm.aggregate(still, by=by, window=window, values=values, path=path, flush=True)
    assert not path.exists(), "one batch needs no logs"
    per_key = rows_of(still.groupBy(*by).count())
    size, slide = window.size, window.slide
    closed = sum((n - size) // slide + 1 for *_, n in per_key if n >= size)
    begun = sum((n - 1) // slide + 1 for *_, n in per_key)
    assert whole.count() == closed
    assert flushed.count() == begun
    if name in _ORDERLESS:
        assert not rows_of(whole) - rows_of(flushed)


def test_windows_of_time_need_a_flush_in_one_batch(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    feed.add(*_tables(3, batches=2))
    still = spark.read.schema(_SCHEMA).parquet(str(tmp_path / "in"))
    window = tm.time_window("instant", "20 seconds")
    given: dict[str, Any] = {"by": "flag", "window": window, "path": tmp_path / "log"}
    values = {"n": tm.count(), "total": tm.sum("price")}
    assert tm.aggregate(still, values=values, **given).count() == 0
    flushed = tm.aggregate(still, values=values, flush=True, **given)
    theirs = still.groupBy("flag", F.window("instant", "20 seconds")).agg(
        F.count("*").alias("n"), F.sum("price").alias("total")
    )
    assert rows_of(flushed) == rows_of(theirs)


def test_the_result_has_keys_then_the_window_then_the_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    feed.add(*_tables(4, batches=1))
    given: dict[str, Any] = {"path": tmp_path / "log", "cache_dir": tmp_path / "cache"}
    timed = tm.aggregate(
        feed.stream(),
        by=["text", "price"],
        window=tm.time_window("instant", "1 minute"),
        values={"total": tm.sum("price"), "mean": tm.avg("whole"), "n": tm.count()},
        **given,
    )
    assert timed.isStreaming
    assert [(f.name, f.dataType.simpleString()) for f in timed.schema] == [
        ("text", "string"),
        ("price", "decimal(12,3)"),
        ("window", "struct<start:timestamp,end:timestamp>"),
        ("total", "decimal(22,3)"),
        ("mean", "double"),
        ("n", "bigint"),
    ]
