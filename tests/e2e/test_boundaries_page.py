"""The examples about boundaries in docs/streams.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_runs import wait_until

_PAGE = Path(__file__).parents[2] / "docs" / "streams.md"


def _example(title: str) -> str:
    section = _PAGE.read_text().split(f"\n### {title}\n")[1].split("\n##")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    return str(code)


def test_a_silent_stream_says_that_it_is_complete(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = _example("Up to which time a stream is complete")
    for place in ("ckpt/orders", "orders"):  # a session's directory is not the test's
        code = code.replace(f'"{place}"', f'"{tmp_path / place}"')
    orders = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "ordered_at")
    names: dict[str, Any] = {"tm": tm, "orders": orders}
    exec(compile(code, str(_PAGE), "exec"), names)
    query = names["query"]
    try:
        wait_until("a batch", lambda: (tmp_path / "orders" / "batches").exists())
    finally:
        query.stop()
    assert tm.read_table(tmp_path / "orders").column_names == ["ordered_at", "value"]


def test_plain_python_writes_to_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = pa.table({"at": pa.array([1, 2], pa.timestamp("us", "UTC")), "value": [0.5, 1.5]})
    names = {"tm": tm, "schema": table.schema, "table": table}
    exec(compile(_example("Writing without Spark"), str(_PAGE), "exec"), names)
    assert tm.read_table("sensors").equals(table)
    assert names["sensors"].boundary is not None
