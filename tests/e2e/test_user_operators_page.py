"""The page about users' operators: its examples run as they are printed, one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tests.support.pages import run_examples
from tests.support.spark_feed import Feed

_PAGE = Path(__file__).parents[2] / "docs" / "user-operators.md"


def test_the_examples_of_the_page_run(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path / "in", "item string, price double")
    items = np.random.default_rng(1).integers(0, 5, 300)
    feed.add(pa.table({"item": np.char.mod("item %d", items), "price": items / 4}))
    names: dict[str, Any] = {"__name__": "__main__", "orders": feed.stream()}
    places = ("running-log", "running-ckpt", "running-out")
    assert run_examples(_PAGE, names, places, tmp_path) == 5
    found = {
        row["item"]: row for row in spark.read.parquet(str(tmp_path / "running-out")).collect()
    }
    assert {item: row["n"] for item, row in found.items()} == {
        f"item {number}": int((items == number).sum()) for number in range(5)
    }
    assert all(row["highest"] == int(item[-1]) / 4 for item, row in found.items())
