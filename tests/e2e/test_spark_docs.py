"""The examples of docs/spark.md do what stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import trailmark as tm

_PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_explained_query_is_the_one_that_is_shown(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = _PAGE.read_text().split("\n## What is in a query\n")[1].split("\n## ")[0]
    section = section.replace("/data/", f"{tmp_path}/")
    code, shown = re.findall(r"```(?:python|text)\n(.*?)```", section, flags=re.DOTALL)
    (tmp_path / "orders").mkdir()
    capsys.readouterr()
    exec(compile(code, str(_PAGE), "exec"), {"spark": spark, "tm": tm})
    assert capsys.readouterr().out == shown


def test_columns_of_sparks_are_taken_as_they_are_shown(spark: SparkSession, tmp_path: Path) -> None:
    section = _PAGE.read_text().split("\n## Columns of Spark's\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    (tmp_path / "orders").mkdir()
    schema = "item_id int, price double, ordered_at timestamp"
    orders = spark.readStream.schema(schema).parquet(str(tmp_path / "orders"))
    names: dict[str, Any] = {"tm": tm, "orders": orders}
    exec(compile(code.replace("/data/", f"{tmp_path}/"), str(_PAGE), "exec"), names)
    kinds = "struct<start:timestamp,end:timestamp>", "bigint", "double", "double"
    assert names["prices"].dtypes == [
        ("item_id", "int"),
        *zip(("window", "n", "price", "last"), kinds, strict=True),
    ]
