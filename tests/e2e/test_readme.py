"""The README's examples run as they are printed, and go on after being stopped."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tests.support.spark_feed import Feed, rows_of

_README = Path(__file__).parents[2] / "README.md"


def _examples() -> tuple[str, str, str]:
    """The operator, one of the user's own, and the persistent stream."""
    found = re.findall(r"```python\n(.*?)```", _README.read_text(), flags=re.DOTALL)
    operator, own, stream = found
    return operator, own, stream


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
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path / "in", "item_id int, item_price int")
    tables = [_orders(file) for file in range(4)]
    text = _below(tmp_path, _examples()[0], "in", "ckpt", "out", "orders-average")
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


def test_the_stream_is_kept_and_read_again(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path / "in", "item_id int, item_price int")
    feed.add(_orders(0), _orders(1))
    names: dict[str, Any] = {"spark": spark, "orders": feed.stream()}
    writing, reading = _below(tmp_path, _examples()[2], "kept", "orders").split("\n\n")
    exec(compile(writing, str(_README), "exec"), names)
    names["kept"].processAllAvailable()
    names["kept"].stop()
    exec(compile(reading, str(_README), "exec"), names)
    written = Counter((row["item_id"], row["item_price"]) for n in (0, 1) for row in _rows(n))
    assert rows_of(names["past"]) == written
    replay = names["again"].writeStream.format("memory").queryName("again").start()
    replay.processAllAvailable()
    replay.stop()
    assert rows_of(spark.table("again")) == written


def test_an_operator_of_ones_own_counts_and_finds_the_highest(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path / "in", "item_id int, item_price int")
    feed.add(_orders(0), _orders(3))
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark, "orders": feed.stream()}
    exec("import trailmark as tm", names)
    exec(compile(_below(tmp_path, _examples()[1], "running"), str(_README), "exec"), names)
    query = names["highest"].writeStream.format("memory").queryName("highest").start()
    query.processAllAvailable()
    query.stop()
    prices: dict[int, list[int]] = {}
    for row in [*_rows(0), *_rows(3)]:
        prices.setdefault(row["item_id"], []).append(row["item_price"])
    newest = {
        row["item_id"]: (row["n"], row["highest"]) for row in spark.table("highest").collect()
    }
    assert newest == {item: (len(each), float(max(each))) for item, each in prices.items()}


def test_the_example_is_no_longer_than_fifteen_lines() -> None:
    assert len(_examples()[0].strip().splitlines()) <= 15


def _below(root: Path, text: str, *names: str) -> str:
    for name in names:
        text = text.replace(f'"{name}"', repr(str(root / name)))
    return text


def _rows(file: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _orders(file).to_pylist()
    return rows
