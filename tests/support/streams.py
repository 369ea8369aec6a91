"""Small written streams with known rows."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pyarrow as pa

from trailmark.log import Entry, OperatorMeta, Storage, StreamLog
from trailmark.log.storage import LocalStorage
from trailmark.settings import LogSettings
from trailmark.streams import writer as writer_module
from trailmark.streams.description import open_stream
from trailmark.streams.files import DataFile
from trailmark.streams.manifest import manifest_log
from trailmark.streams.retention import Retention
from trailmark.streams.table import table_of
from trailmark.streams.times import Span
from trailmark.streams.view import open_view
from trailmark.streams.writer import StreamWriter
from trailmark.testing.disk import ROOT, SimulatedDisk

SECOND = 1_000_000
ORDERS = pa.schema(
    [("item", pa.string()), ("price", pa.int64()), ("time", pa.timestamp("us", "UTC"))]
)

Row = tuple[Any, ...]


@dataclass
class SetClock:
    """Stands still until a test moves it on."""

    now_us: int = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now_us


@dataclass
class Written:
    """A stream that a test writes to, and its clock."""

    storage: Storage
    meta: OperatorMeta
    clock: SetClock
    retention: Retention | None = None

    def writer(self, retention: Retention | None = None) -> StreamWriter:
        """As another process would have it."""
        return StreamWriter(
            self.storage, self.meta, LogSettings(), retention or self.retention, self.clock
        )

    def write(self, rows: Sequence[Row]) -> list[DataFile]:
        """Into data files that are part of nothing yet."""
        return self.writer().write([batch_of(rows, self.meta.result_schema)])

    def add(self, rows: Sequence[Row], query: str | None = None, number: int | None = None) -> int:
        """A batch more; a second later."""
        self.clock.now_us += SECOND
        return self.writer().commit(self.write(rows), query, number)

    def log(self) -> StreamLog:
        return manifest_log(self.storage, self.meta, clock=self.clock)

    def rows(self, span: Span | None = None) -> list[Row]:
        return rows_in(self.storage, span)


def written(
    storage: Storage | None = None,
    schema: pa.Schema = ORDERS,
    *,
    time_column: str | None = None,
    keys: Sequence[str] | None = None,
    buckets: int | None = None,
    retention: Retention | None = None,
) -> Written:
    """An empty stream, on a simulated disk if no place is named."""
    place = SimulatedDisk().storage() if storage is None else storage
    meta = open_stream(place, schema, time_column=time_column, keys=keys, buckets=buckets)
    return Written(place, meta, SetClock(), retention)


def batch_of(rows: Iterable[Row], schema: pa.Schema = ORDERS) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def orders(batch: int, count: int = 3) -> list[Row]:
    """The rows that every test expects in a batch: ten seconds of orders."""
    return [
        (f"item {(batch + place) % 4}", 10 * batch + place, (10 * batch + place) * SECOND)
        for place in range(count)
    ]


def plain(table: pa.Table) -> list[Row]:
    """Rows as they were given: times as whole numbers."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))


def rows_in(storage: Storage, span: Span | None = None, records: str | None = None) -> list[Row]:
    """All rows of a part of a stream, in order."""
    return plain(table_of(open_view(storage, records), span or Span()))


def rows_by_batch(storage: Storage) -> dict[int, list[Row]]:
    """The rows of each batch, as a view gives them."""
    view = open_view(storage)
    names = view.schema.names
    found = {}
    for batch in view.batches(view.oldest(), view.end(), Span()):
        parts = [rows for chunk in batch.chunks for rows in view.read(chunk, names, Span())]
        assert sum(part.num_rows for part in parts) == batch.rows
        found[batch.batch] = plain(pa.Table.from_batches(parts, view.schema))
    return found


def data_files(disk: SimulatedDisk) -> list[str]:
    return [path for path in disk.files() if path.startswith("data/")]


@contextmanager
def often(trim: int = 2, merge: int = 4, unmerged: int = 1) -> Iterator[None]:
    """Streams are trimmed and merged after few commits."""
    with mock.patch.multiple(
        writer_module, _TRIM_EVERY=trim, _MERGE_EVERY=merge, UNMERGED=unmerged
    ):
        yield


class Counting(LocalStorage):
    """Counts the looks at a simulated disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(ROOT, file_system=disk)
        self.reads: list[str] = []
        self.lists: list[str] = []

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        self.reads.append(path)
        return super().read(path, offset, length)

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        self.reads.append(path)
        return super().read_tail(path, length)

    def list(self, directory: str) -> builtins.list[Entry]:
        self.lists.append(directory)
        return super().list(directory)
