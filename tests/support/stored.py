"""Written streams with known rows, on a simulated disk or in a directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from trailmark.log import LocalStorage, Storage
from trailmark.streams.description import open_stream
from trailmark.streams.files import DataFile
from trailmark.streams.retention import Retention
from trailmark.streams.stored import StreamFiles
from trailmark.streams.writer import StreamWriter

SECOND = 1_000_000
#: When the first batch is written.
BEGIN_US = 1_790_000_000 * SECOND
#: Rows of every batch, half of them from each of its two tasks.
ROWS = 20
QUERY = "5f1c2a4e-0000-4000-8000-000000000001"

_SCHEMA = pa.schema([("item", pa.int32()), ("price", pa.int32()), ("time", pa.timestamp("us"))])


def rows_of(batch: int) -> list[dict[str, int]]:
    """The rows of a batch, with times as microseconds; ten items, one second a row."""
    return [
        {"item": place % 10, "price": batch * 100 + place, "time": (batch * ROWS + place) * SECOND}
        for place in range(ROWS)
    ]


def table_of(rows: Sequence[dict[str, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=_SCHEMA)


@dataclass
class Stored:
    """A stream, and who writes it; the time is ten seconds later with every batch."""

    storage: Storage
    keys: Sequence[str] = ("item",)
    buckets: int | None = 2
    time_column: str | None = "time"
    retention: Retention = field(default_factory=Retention)
    now_us: int = BEGIN_US
    batches: int = 0

    def __post_init__(self) -> None:
        self.meta = open_stream(
            self.storage,
            _SCHEMA,
            keys=self.keys,
            buckets=self.buckets,
            time_column=self.time_column,
        )

    @property
    def files(self) -> StreamFiles:
        return StreamFiles(self.storage)

    def writer(self) -> StreamWriter:
        return StreamWriter(
            self.storage, self.meta, retention=self.retention, clock=lambda: self.now_us
        )

    def task(self, rows: Sequence[dict[str, int]]) -> list[DataFile]:
        """What a task writes that has not committed."""
        return self.writer().write([table_of(rows)])

    def run(self, batches: int) -> None:
        """Write and commit so many batches more."""
        for batch in range(self.batches, self.batches + batches):
            self.now_us += 10 * SECOND
            rows = rows_of(batch)
            files = [*self.task(rows[: ROWS // 2]), *self.task(rows[ROWS // 2 :])]
            assert self.writer().commit(files, QUERY, batch) == batch
        self.batches += batches


@dataclass
class StoredAt(Stored):
    """A stream in a directory."""

    path: Path = Path()

    def contents(self) -> dict[str, bytes]:
        """Every file and what is in it."""
        found = sorted(each for each in self.path.rglob("*") if each.is_file())
        return {str(each.relative_to(self.path)): each.read_bytes() for each in found}

    def flip(self, name: str, at: int = 60) -> None:
        """Changes one bit of a file."""
        data = bytearray((self.path / name).read_bytes())
        data[at] ^= 4
        (self.path / name).write_bytes(data)

    def manifest(self, batch: int) -> str:
        """The name of a manifest's file."""
        return f"batches/00000/{batch:020d}.seg"


def stored_at(path: Path, batches: int = 6, **given: object) -> StoredAt:
    """A stream of so many batches in a directory."""
    stream = StoredAt(LocalStorage(path), path=path, **given)  # type: ignore[arg-type]
    stream.run(batches)
    return stream
