"""The page about joins: its examples run as they are printed, one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.support.pages import run_examples
from tests.support.spark_feed import Feed, rows_of

_PAGE = Path(__file__).parents[2] / "docs" / "joins.md"
_MINUTE = 60_000_000


def _table(time: str, value: str, rows: list[tuple[str, int, float]]) -> pa.Table:
    ads, minutes, values = zip(*rows, strict=True)
    times = pa.array([minute * _MINUTE for minute in minutes], pa.timestamp("us", "UTC"))
    return pa.table({"ad": ads, time: times, value: values})


def test_the_examples_of_the_page_run(spark: SparkSession, tmp_path: Path) -> None:
    seen = Feed(spark, tmp_path / "seen", "ad string, seen_at timestamp, bid double")
    clicks = Feed(spark, tmp_path / "clicks", "ad string, clicked_at timestamp, price double")
    seen.add(_table("seen_at", "bid", [("a", 0, 1.0), ("b", 1, 2.0), ("c", 300, 3.0)]))
    clicks.add(_table("clicked_at", "price", [("a", 5, 0.5), ("a", 61, 4.0), ("x", 300, 1.0)]))
    names: dict[str, Any] = {"impressions": seen.stream(), "clicks": clicks.stream()}
    logs = ("clicked-log", "dear-log", "priced-log", "latest-log", "grouped-log", "shown-log")
    places = (*logs, "clicked-ckpt", "clicked-out")
    assert run_examples(_PAGE, names, places, tmp_path) == 6
    clicked = rows_of(spark.read.parquet(str(tmp_path / "clicked-out")).select("ad", "price"))
    assert {row[0]: row[1] is not None for row in clicked} == {"a": True, "b": False}
    for name in ("dear", "latest", "grouped", "shown"):
        assert names[name].columns == ["ad", "seen_at", "bid", "clicked_at", "price"]
