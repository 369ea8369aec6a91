"""Results as multisets of rows, compared bit by bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from demo.failure import DemoFailure

_ROW = np.dtype([("item_id", np.int64), ("avg_price", np.int64), ("orders", np.int64)])


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows in one fixed order, averages by their bits: equal arrays are equal multisets."""

    sorted: npt.NDArray[np.void]

    @classmethod
    def of(cls, item_id: npt.ArrayLike, avg_price: npt.ArrayLike, orders: npt.ArrayLike) -> Rows:
        bits = np.asarray(avg_price, dtype=np.float64).view(np.int64)
        columns = [np.asarray(item_id), bits, np.asarray(orders)]
        rows = np.empty(len(bits), dtype=_ROW)
        for name, column in zip(_ROW.names or (), columns, strict=True):
            rows[name] = column
        return cls._in_order(rows)

    @classmethod
    def concatenate(cls, parts: Sequence[Rows]) -> Rows:
        return cls._in_order(np.concatenate([np.empty(0, _ROW), *(part.sorted for part in parts)]))

    @classmethod
    def _in_order(cls, rows: npt.NDArray[np.void]) -> Rows:
        return cls(rows[np.lexsort((rows["orders"], rows["avg_price"], rows["item_id"]))])

    def __len__(self) -> int:
        return len(self.sorted)


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows that should be there and are not, and rows that are there and should not be."""

    missing: int
    extra: int
    example: str = ""

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra)

    def __str__(self) -> str:
        return f"{self.missing:,} rows missing, {self.extra:,} too many, such as {self.example}"


def compare(expected: Rows, found: Rows) -> Difference:
    """How ``found`` differs from ``expected``; false if they are the same multiset."""
    if np.array_equal(expected.sorted, found.sorted):
        return Difference(0, 0)
    both = np.concatenate([expected.sorted, found.sorted])
    rows, place = np.unique(both, return_inverse=True)
    balance = np.bincount(place[len(expected) :], minlength=len(rows))
    balance -= np.bincount(place[: len(expected)], minlength=len(rows))
    missing, extra = -balance[balance < 0].sum(), balance[balance > 0].sum()
    return Difference(int(missing), int(extra), _describe(rows[np.flatnonzero(balance)[0]]))


def _describe(row: Any) -> str:
    average = np.int64(row["avg_price"]).view(np.float64)
    return f"item {row['item_id']}, average {float(average)!r} of {row['orders']} orders"


def read_sink(directory: Path) -> Rows:
    """What a reader of Spark's file sink sees: the files of committed batches, no others."""
    parts = [_read_part(path) for path in sorted(committed_files(directory))]
    return Rows.concatenate(parts)


def committed_files(directory: Path) -> set[Path]:
    """The files that are named in the sink's own log."""
    files = set()
    for entry in (directory / "_spark_metadata").glob("[0-9]*"):
        version, *lines = entry.read_text().splitlines()
        if version != "v1":
            raise DemoFailure(f"{entry} has an unknown version: {version}")
        for line in lines:
            status = json.loads(line)
            assert status["action"] == "add", "nothing deletes results"
            files.add(Path(unquote(urlparse(status["path"]).path)))
    return files


def _read_part(path: Path) -> Rows:
    table = pq.read_table(path, partitioning=None)
    columns = [table[name] for name in ("item_id", "avg_price", "orders")]
    if any(column.null_count for column in columns):
        raise DemoFailure(f"{path} has results that are null")
    return Rows.of(*(column.to_numpy() for column in columns))
