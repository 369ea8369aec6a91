"""The example of `tm.explain` in docs/spark.md prints what stands there."""

from __future__ import annotations

import re
from pathlib import Path

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
