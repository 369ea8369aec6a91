"""A stream as its readers see it: committed batches in order, each in chunks that are read apart.

A view may be asked again and again what there is; the normal answer costs a look for one file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.log import OperatorMeta, Storage, StreamLog, TimeRange, read_meta
from trailmark.records import NO_BATCH, Stream
from trailmark.streams.answers import Answers, refuse_written
from trailmark.streams.description import StreamDescription, is_stream
from trailmark.streams.files import DataFile, read_file
from trailmark.streams.manifest import manifest_log, read_manifest
from trailmark.streams.times import EARLIEST, LATEST, Span, first_in_unit
from trailmark.streams.union.description import is_union
from trailmark.values import dataclass

if TYPE_CHECKING:
    from trailmark.log.index import IndexEntry

#: What an operator has open, as records that are asked for. No log holds them, they are rebuilt:
#: see `operator_state`.
STATE = "state"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a batch that are read in one go: a bucket's, or those of a data file.

    ``tentative`` are the batches whose tentative results are among them, where that is not for the
    chunk itself to tell; ``has_stable`` says whether the batch's stable ones are.
    """

    batch: int
    bucket: int
    rows: int
    bytes: int
    file: DataFile | None = None
    tentative: range = range(0)
    has_stable: bool = True


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A committed batch."""

    batch: int
    chunks: Sequence[Chunk]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        """How many bytes have to be read for them."""
        return sum(chunk.bytes for chunk in self.chunks)


class Columned(Protocol):
    """Whatever can be read and has columns."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""

    @property
    def source_schema(self) -> Mapping[str, Any] | None:
        """The schema in the words of its writer, if it is known."""


class StreamView(Columned, Protocol):
    """A written stream, or one kind of an operator's records."""

    @property
    def time_column(self) -> str | None:
        """The column that times are about; None where that is when a batch was written."""

    @property
    def log_id(self) -> str:
        """Tells this stream from any other, also from a later one in the same place."""

    @property
    def stream(self) -> Stream:
        """The log whose batches these are."""

    def oldest(self) -> int:
        """The first batch that is still there; where the next one will be if there is none."""

    def end(self) -> int:
        """The batch after the last committed one."""

    def find(self, timestamp_us: int) -> int:
        """The first batch that may hold rows of this time or later; the end if none does."""

    def needs(self, batch: int) -> int:
        """The first batch that has to be kept for whoever goes on with a batch."""

    def beginning_at(self, batch: int) -> StreamView:
        """The view of whoever has read nothing before a batch."""

    def batches(self, first: int, end: int, span: Span) -> Iterator[StreamBatch]:
        """The batches from one to before another that may hold rows of a span.

        A batch that is gone raises `MissingSegment`.
        """

    def read(self, chunk: Chunk, columns: Sequence[str], span: Span) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk that are within the times of a span: these columns, in this order."""


def open_view(
    storage: Storage,
    records: str | None = None,
    answers: Answers | None = None,
    *,
    fails_on_data_loss: bool = True,
) -> StreamView:
    """The view of a path: of a written stream, or of an operator's results or other records.

    Without ``fails_on_data_loss``, a change feed leaves out deletes of what is gone.
    """
    meta = read_meta(storage)
    if meta is not None and is_union(meta):
        raise SettingError(
            "This is the path of a union, which keeps what it has decided, and no rows.",
            where="path",
            fix="Read its streams, or the results of what is behind it.",
        )
    if meta is None or not is_stream(meta):
        # Processes that Spark starts to plan and commit wait for every import: no operator's then.
        from trailmark.streams.operator_view import open_operator_view

        return open_operator_view(storage, records, answers, fails_on_data_loss=fails_on_data_loss)
    if records not in (None, "results"):
        raise only_rows(records)
    return _written_view(storage, meta, answers)


def _written_view(storage: Storage, meta: OperatorMeta, answers: Answers | None) -> StreamView:
    """Its rows as they are; only the stable ones where that is asked for."""
    if answers in (Answers.CURRENT, Answers.CHANGES):
        raise refuse_written(answers)
    view = WrittenView(storage, meta)
    if answers is Answers.STABLE:
        from trailmark.streams.stable_rows import StableRows, is_marked

        return StableRows(view) if is_marked(view.schema) else view
    return view


def only_rows(records: str) -> SettingError:
    """The error to raise about records that a written stream does not have."""
    return SettingError(
        f"A written stream has rows and nothing else, not records {records!r}.",
        where="records",
        fix="Leave the option out.",
    )


class WrittenView:
    """Implements `StreamView` for a written stream."""

    def __init__(self, storage: Storage, meta: OperatorMeta) -> None:
        self._storage = storage
        self._meta = meta
        stream = StreamDescription.of(meta)
        self.schema = stream.schema
        self.source_schema = stream.source_schema
        self.time_column = stream.time_column
        self._log = manifest_log(storage, meta)
        self._tail = Tail(self._log)

    @property
    def log_id(self) -> str:
        return str(self._meta.log_id)

    @property
    def stream(self) -> Stream:
        return Stream.BATCHES

    def oldest(self) -> int:
        return self._log.start()

    def end(self) -> int:
        return self._tail.newest() + 1

    def find(self, timestamp_us: int) -> int:
        found = find_time(self._log, timestamp_us, self.time_column is not None)
        return self.end() if found == NO_BATCH else found

    def needs(self, batch: int) -> int:
        return batch

    def beginning_at(self, batch: int) -> StreamView:
        return self

    def batches(self, first: int, end: int, span: Span) -> Iterator[StreamBatch]:
        for batch in wanted_batches(self._log, first, end, span, self.time_column is not None):
            manifest = read_manifest(self._log, batch)
            chunks = [
                Chunk(batch, file.bucket, file.rows, file.bytes, file)
                for file in manifest.files
                if self.time_column is None or span.meets(file.time_range)
            ]
            yield StreamBatch(batch, chunks)

    def read(self, chunk: Chunk, columns: Sequence[str], span: Span) -> Iterator[pa.RecordBatch]:
        assert chunk.file is not None
        needed = _with_time(columns, self.time_column, span)
        parts = read_file(self._storage, self._meta.log_id, chunk.file, self.schema, needed)
        for rows in parts:
            yield rows_within(rows, self.time_column, span).select(list(columns))


class Tail:
    """The newest batch of a log, for those who ask often."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._newest = NO_BATCH

    def newest(self) -> int:
        """The newest batch, or NO_BATCH."""
        if self._newest == NO_BATCH:
            self._newest = self._log.newest()
        while self._newest != NO_BATCH and self._is_plain(self._newest + 1):
            self._newest += 1
        # While it has a file of its own, the next one would have one too. Otherwise it was merged
        # or trimmed since, and how far the log reaches is not to be told from names.
        if self._newest != NO_BATCH and not self._is_plain(self._newest):
            self._newest = self._log.newest()
        return self._newest

    def _is_plain(self, batch: int) -> bool:
        reader = self._log.reader
        return reader.storage.exists(reader.segment_path(batch))


def find_time(log: StreamLog, timestamp_us: int, has_times: bool) -> int:
    """The first batch that may hold a time or a later one, or NO_BATCH."""
    index = log.time_index()
    return index.find(timestamp_us) if has_times else index.find_written(timestamp_us)


def wanted_batches(
    log: StreamLog, first: int, end: int, span: Span, has_times: bool
) -> Sequence[int] | range:
    """The batches that may hold rows of a span: by the index, if it is about times."""
    if not span.has_times:
        return range(first, end)
    index = log.time_index()
    found = {e.batch for e in index.entries if span.meets(_times(e, has_times))} | index.unreadable
    return sorted(batch for batch in found if first <= batch < end)


def _times(entry: IndexEntry, has_times: bool) -> TimeRange | None:
    return entry.time_range if has_times else TimeRange(entry.written_us, entry.written_us)


def _with_time(columns: Sequence[str], time_column: str | None, span: Span) -> list[str]:
    if time_column is None or time_column in columns or not span.has_times:
        return list(columns)
    return [*columns, time_column]


def rows_within(rows: pa.RecordBatch, time_column: str | None, span: Span) -> pa.RecordBatch:
    """Only the rows whose time is asked for."""
    if time_column is None or not span.has_times:
        return rows
    first, last = _in_unit(span, rows.column(time_column).type.unit)
    return rows_from(rows, time_column, first, last)


def rows_from(rows: pa.RecordBatch, time_column: str, first: int, last: int) -> pa.RecordBatch:
    """Only the rows from one time to another, both included, in the unit of the column: whole
    numbers of any size."""
    import pyarrow.compute as pc

    times = rows.column(time_column)
    if first > LATEST or last < EARLIEST:
        return rows.slice(0, 0)
    numbers = times.cast(pa.int64())
    is_wanted = pc.is_valid(numbers)
    if first > EARLIEST:
        is_wanted = pc.and_(is_wanted, pc.greater_equal(numbers, pa.scalar(first, pa.int64())))
    if last < LATEST:
        is_wanted = pc.and_(is_wanted, pc.less_equal(numbers, pa.scalar(last, pa.int64())))
    return rows.filter(is_wanted)


def _in_unit(span: Span, unit: str) -> tuple[int, int]:
    """The ends of a span in a column's unit: whole numbers of any size, both included."""
    per_unit = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[unit]
    factor = 1_000 if unit == "ns" else 1
    first = EARLIEST if span.first_us is None else first_in_unit(span.first_us, unit)
    last = LATEST if span.last_us is None else span.last_us // per_unit * factor
    return first, last
