"""What an engine has left, as rows that can be compared."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from bench.nexmark.plain import Row, rows_of


def rows_in(directory: Path) -> list[Row]:
    """Results as rows in order, of the files of a sink. Those of the closing events, whose first
    column is 0, are left out."""
    parts = [pq.read_table(file) for file in directory.glob("*.parquet")]
    # Flink's files have no ending; those that are not committed begin with a dot.
    parts += [_text(file) for file in directory.glob("part-*") if file.suffix != ".parquet"]
    return sorted(row for part in parts for row in rows_of(part) if row[0] != 0)


def _text(file: Path) -> pa.Table:
    return csv.read_csv(file, csv.ReadOptions(autogenerate_column_names=True))


def digest(rows: list[Row]) -> str:
    """Equal for equal rows."""
    return hashlib.sha256("\n".join(map(repr, rows)).encode()).hexdigest()
