"""The examples about states in docs/streams.md run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_feed import Feed, Query
from tests.support.stated import VALUES

_PAGE = Path(__file__).parents[2] / "docs" / "streams.md"


def _examples() -> list[str]:
    section = _PAGE.read_text().split("\n### An operator's state\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)


def _orders(batch: int) -> pa.Table:
    rng = np.random.default_rng(batch)
    items = rng.integers(0, 9, 40, dtype=np.int32)
    return pa.table({"item_id": items, "n": rng.integers(0, 99, 40), "x": rng.random(40)})


@pytest.fixture(scope="module")
def root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    feed = Feed(spark, root / "in", "item_id int, n long, x double")
    feed.add(*(_orders(batch) for batch in range(3)))
    values: dict[str, Any] = {
        "orders-average": {"avg_price": tm.avg("x")},
        "orders-spread": VALUES,
    }
    for name, functions in values.items():
        df = tm.aggregate(
            feed.stream(),
            by="item_id",
            window=tm.count_window(10),
            values=functions,
            path=root / name,
            buckets=2,
        )
        Query(root, f"query-{name}").run(df)
    return root


def _run(spark: SparkSession, root: Path, text: str) -> dict[str, Any]:
    for name in ("orders-average", "orders-spread"):
        text = text.replace(f'"{name}"', repr(str(root / name)))
    text = text.replace("from shop.functions import values", "values = VALUES")
    text = text.replace("shop.functions:values", "tests.support.stated:VALUES")
    names: dict[str, Any] = {"spark": spark, "tm": tm, "VALUES": VALUES}
    exec(compile(text, str(_PAGE), "exec"), names)
    return names


def test_the_state_is_shown_as_of_now_and_then(
    spark: SparkSession, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = _examples()
    names = _run(spark, root, first)
    assert "avg_price.sum" in capsys.readouterr().out
    assert set(names["then"]["batch"].to_pylist()) == {1}
    now = tm.read_table(root / "orders-average", records="state")
    assert names["state"].count() == now.num_rows > 5
    assert sum(now["fill"].to_pylist()) < 3 * 40


def test_code_of_ones_own_is_named_or_handed_in(spark: SparkSession, root: Path) -> None:
    _, second = _examples()
    names = _run(spark, root, second)
    assert names["own"].count() == names["same"].num_rows > 5
    assert names["own"].columns == names["same"].schema.names
