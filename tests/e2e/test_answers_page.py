"""The examples of docs/answers-on-time.md run as they stand."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_runs import wait_until

_PAGE = Path(__file__).parents[2] / "docs" / "answers-on-time.md"
_NOW = datetime.now(timezone.utc)


def _examples(root: Path) -> list[str]:
    """Of a session's directory nothing is known, so paths are made full ones."""
    code = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), flags=re.DOTALL)
    return [
        re.sub(r'"((?:streams|union|logs|ckpt)/\w+|counts(?:\.db)?)"', rf'"{root}/\1"', c)
        for c in code
    ]


@pytest.mark.usefixtures("spark")
def test_three_streams_are_counted_in_windows(spark: SparkSession, tmp_path: Path) -> None:
    merging, ingesting, answering, keeping, following = _examples(tmp_path)
    names: dict[str, Any] = {"tm": tm, "spark": spark}
    exec(compile(ingesting, str(_PAGE), "exec"), names)
    try:
        schema = pa.schema([("ordered_at", pa.timestamp("us", "UTC")), ("item", pa.int64())])
        for name in ("us", "asia"):
            given: dict[str, Any] = {"name": name, "time_column": "ordered_at", "delay": "1 second"}
            writer = tm.stream_writer(tmp_path / "streams" / name, schema, **given)
            times = [_NOW - timedelta(minutes=5), _NOW + timedelta(hours=1)]
            writer.append(pa.table([times, [5, 5]], schema=schema))
        wait_until("a stream", lambda: (tmp_path / "streams/eu/batches").exists())
        exec(compile(merging, str(_PAGE), "exec"), names)
        try:
            wait_until("two windows", lambda: _counted(tmp_path) == [2])
        finally:
            names["query"].stop()
        exec(compile(answering, str(_PAGE), "exec"), names)
        assert names["orders"].columns[-1] == "tentative", "also of a union that has waited before"
        _check_table(keeping, names, tmp_path)
        exec(compile(following, str(_PAGE), "exec"), names)
        assert names["totals"].columns == ["item", "window", "n", "tentative"]
    finally:
        names["ingest"].stop()


def _check_table(keeping: str, names: dict[str, Any], root: Path) -> None:
    """The table that follows a change feed has the results."""
    with closing(sqlite3.connect(root / "counts.db")) as database:
        for line in re.findall(r"(?:CREATE|INSERT INTO applied)[^;\n]*;", keeping):
            database.execute(line)
        database.commit()
        exec(compile(keeping, str(_PAGE), "exec"), names)
        found = "SELECT count(*) FROM counts WHERE n = 2 AND NOT tentative"
        try:
            wait_until("a table", lambda: database.execute(found).fetchone() == (1,))
        finally:
            names["table"].stop()


def _counted(root: Path) -> list[int]:
    """The counts of windows that began before the streams did."""
    if not (root / "logs/counts/meta.json").exists():
        return []
    rows = tm.read_table(root / "logs/counts").to_pylist()
    early = _NOW - timedelta(minutes=4)
    return [row["n"] for row in rows if row["window"]["start"] < early]
