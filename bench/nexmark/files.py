"""The events as files that all engines read, made once and kept in `.bench/nexmark`.

A Parquet file for each kind and batch. Flink reads the same rows as CSV (its package has no
Parquet), two files of each kind, one for each of two readers: every other row, so that both are in
the order of time. It has no batches.

Engines that only go by the times they have seen would wait for the end of the last windows for
ever. So a last batch holds events hours later, of a person and an auction with the id 0; their
results are left out when results are compared. Flink needs none, for it knows that files end.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from bench.batch_files import write_batch
from bench.nexmark.events import FIRST_MS, KINDS, Numbers, Stream

HOME = Path(".bench/nexmark")
#: Part of the name of the directory: to be raised when the same stream gives other files.
_FORMAT = 1
READERS = 2
#: How much later the closing events are. There are several, since a window of windows closes when a
#: later window has closed.
_LATER_H = (1, 2, 3)
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Batches:
    """``count`` batches of ``events`` events; with ``kinds``, only events of these are made."""

    events: int
    count: int
    rate: int = 10_000
    seed: int = 1
    kinds: tuple[str, ...] = KINDS

    @property
    def stream(self) -> Stream:
        return Stream(self.events * self.count, self.rate, self.seed)

    def tables(self, kind: str) -> list[pa.Table]:
        """A table for each batch."""
        rows, numbers = self.stream.table(kind), self.stream.numbers(kind)
        bounds = np.searchsorted(numbers, np.arange(self.count + 1) * self.events)
        return [rows.slice(first, last - first) for first, last in pairwise(bounds)]

    def rows(self, kinds: tuple[str, ...]) -> int:
        """How many events of these kinds there are."""
        return sum(len(self.stream.numbers(kind)) for kind in kinds)


def closing(batches: Batches, kind: str) -> pa.Table:
    """The events that close whatever is open."""
    end = FIRST_MS + batches.stream.events * 1000 // batches.rate
    return _closing(kind, np.array([end + hours * _HOUR_MS for hours in _LATER_H]))


def _closing(kind: str, ms: Numbers) -> pa.Table:
    zero, at = np.zeros_like(ms), pa.array(ms * 1000, pa.timestamp("us", "UTC"))
    nobody = pa.array([""] * len(ms))
    columns = {
        "person": {"id": zero, "name": nobody, "city": nobody, "state": nobody, "joined": at},
        "auction": {"id": zero, "seller": zero, "category": zero, "opened": at, "expires": at},
        "bid": {"auction": zero, "bidder": zero, "price": zero, "at": at, "arrived": at},
    }
    return pa.table(columns[kind])


def prepare(batches: Batches, home: Path = HOME) -> Path:
    """The directory of the files, which are written if they are not there yet."""
    described = json.dumps([_FORMAT, asdict(batches)])
    directory = home / hashlib.sha256(described.encode()).hexdigest()[:16]
    if not directory.exists():
        unfinished = home / f"{directory.name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        for kind in batches.kinds:
            _write(batches, kind, unfinished)
        unfinished.rename(directory)
    return directory.absolute()


def _write(batches: Batches, kind: str, directory: Path) -> None:
    (directory / kind).mkdir(parents=True)
    tables = batches.tables(kind)
    for number, rows in enumerate([*tables, closing(batches, kind)]):
        write_batch(directory / kind, number, rows)
    plain = csv.WriteOptions(include_header=False, quoting_style="none")
    (directory / "csv" / kind).mkdir(parents=True)
    rows = _as_text(pa.concat_tables(tables))
    for reader in range(READERS):
        every = pa.array(np.arange(reader, len(rows), READERS))
        csv.write_csv(rows.take(every), directory / "csv" / kind / f"{reader}.csv", plain)


def _as_text(rows: pa.Table) -> pa.Table:
    """Times as milliseconds: nobody has to parse dates."""
    columns = [
        column.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        if pa.types.is_timestamp(column.type)
        else column
        for column in rows.columns
    ]
    return pa.table(columns, rows.column_names)
