"""The README's example runs as it is printed, and goes on after being stopped."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.spark_feed import Feed, rows_of

_README = Path(__file__).parents[2] / "README.md"


def _example() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", _README.read_text(), flags=re.DOTALL)
    return str(block)


def _orders(file: int) -> pa.Table:
    """The first three files make one batch, in which an item has one price: order is no matter."""
    items = np.random.default_rng(file).integers(0, 20, 150, dtype=np.int32)
    return pa.table({"item_id": items, "item_price": (items + 100 * (file // 3)).astype(np.int32)})


def _averages(tables: list[pa.Table]) -> Counter[tuple[Any, ...]]:
    """The same query, by hand."""
    prices: dict[int, list[int]] = {}
    results: Counter[tuple[Any, ...]] = Counter()
    for table in tables:
        for row in table.to_pylist():
            window = prices.setdefault(row["item_id"], [])
            window.append(row["item_price"])
            if len(window) == 10:
                results[row["item_id"], ("float", (sum(window) / 10).hex())] += 1
                window.clear()
    return results


def test_the_example_gives_the_right_averages_and_goes_on_after_a_restart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    feed = Feed(spark, tmp_path / "in", "item_id int, item_price int")
    tables = [_orders(file) for file in range(4)]
    # Spark resolves relative paths in the directory that its JVM was started in.
    text = _example()
    for name in ("in", "ckpt", "out"):
        text = text.replace(f'"{name}"', repr(str(tmp_path / name)))
    for files in (tables[:3], tables[3:]):
        feed.add(*files)
        names: dict[str, Any] = {"spark": spark}
        exec(compile(text, str(_README), "exec"), names)
        query = names["query"]
        query.processAllAvailable()
        query.stop()
        done = tables[: feed.files]
        assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == _averages(done)
    assert (tmp_path / "orders-average" / "meta.json").exists()
    assert _averages(tables).total() > 40


def test_the_example_is_no_longer_than_fifteen_lines() -> None:
    assert len(_example().strip().splitlines()) <= 15
