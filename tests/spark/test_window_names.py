"""Columns named as the bounds of time windows are: what they are is told by the windows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_feed import Feed, Query, rows_of
from trailmark.cli.entry import main
from trailmark.errors import SettingError

_SCHEMA = "window int, window_start int, window_end int, time timestamp"
_NAMES = ("window", "window_start", "window_end")


def _orders() -> pa.Table:
    numbers = pa.array([1, 2, 1, 2, 1], pa.int32())
    times = pa.array([0, 10, 20, 30, 3_000], pa.int64()).cast(pa.timestamp("s", "UTC"))
    return pa.table([numbers, numbers, numbers, times], names=[*_NAMES, "time"])


@pytest.mark.parametrize("slide", [2, 1])
def test_in_count_windows_they_are_columns_like_any_other(
    spark: SparkSession, tmp_path: Path, slide: int, capsys: pytest.CaptureFixture[str]
) -> None:
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    feed.add(_orders())
    window, values = tm.count_window(2, slide), {"window_end": tm.count(), "window": tm.count()}
    given: dict[str, Any] = {"by": "window_start", "window": window, "values": values}
    results = tm.aggregate(feed.stream(), path=tmp_path / "log", **given)
    query = Query(tmp_path)
    query.run(results)
    windows = {1: 1, 2: 1} if slide == 2 else {1: 2, 2: 1}
    expected = [row for key, count in windows.items() for row in [(key, 2, 2)] * count]
    assert sorted(query.rows(spark).elements()) == expected
    batch = tm.aggregate(spark.read.parquet(str(tmp_path / "in")), path="unused", **given)
    assert sorted(rows_of(batch).elements()) == expected

    feed.add(_orders())  # with which the batch before it becomes visible to readers
    query.run(results)
    read = spark.read.format("trailmark").load(str(tmp_path / "log"))
    assert set(read.collect()) == {(1, 2, 2), (2, 2, 2)}
    assert read.schema.simpleString() == "struct<window_start:int,window_end:bigint,window:bigint>"
    assert main(["log", str(tmp_path / "log"), "--records", "--kind", "results"]) == 0
    assert "window_start=1" in capsys.readouterr().out


@pytest.mark.parametrize("name", _NAMES)
def test_in_time_windows_they_are_taken(spark: SparkSession, tmp_path: Path, name: str) -> None:
    stream = Feed(spark, tmp_path / "in", _SCHEMA).stream()
    window = tm.time_window("time", "1 minute")
    wrong: list[dict[str, Any]] = [
        {"by": name, "values": {"n": tm.count()}},
        {"by": "time", "values": {name: tm.count()}},
    ]
    for given in wrong:
        with pytest.raises(SettingError, match="column with the bounds of time windows"):
            tm.aggregate(stream, window=window, path=tmp_path / "log", **given)
    # Folded over, they are inputs like any other.
    sums = {f"sum_{each}": tm.sum(each) for each in _NAMES}
    results = tm.aggregate(stream, by="time", window=window, values=sums, path=tmp_path / "log")
    assert results.columns == ["time", "window", *sums]
