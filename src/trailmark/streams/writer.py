"""Writing a stream: rows into data files wherever the tasks run, batches by whoever commits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from trailmark.errors import BatchGoesBackward, MissingSegment, SchemaChanged, TrailmarkError
from trailmark.kernel.columns import contiguous
from trailmark.log import Codecs, OperatorMeta, Origin, Storage, StreamLog, TimeRange
from trailmark.log.clock import Clock, wall_clock_us
from trailmark.records import NO_BATCH, START_OF_LOG, Fingerprint, SegmentLink
from trailmark.settings import HOUR, MIB, LogSettings
from trailmark.streams.buckets import Buckets
from trailmark.streams.description import StreamDescription
from trailmark.streams.files import DataFile, write_file
from trailmark.streams.manifest import (
    Manifest,
    joined_times,
    manifest_attributes,
    manifest_log,
    read_manifest,
)
from trailmark.streams.retention import Retention, trim_stream

_log = logging.getLogger("trailmark")

#: Rows that are put together into one part of a file, for whoever reads it.
_ROWS_AT_ONCE = 1 << 16
#: A task puts so many bytes of rows into one file.
_FILE_BYTES = 64 * MIB
#: Old batches are removed and manifests merged after every so many commits.
_TRIM_EVERY = 16
_MERGE_EVERY = 256
#: The newest manifests stay files of their own: whoever follows the stream reads them by name.
UNMERGED = 64
#: How far the clocks of the hosts that write to a stream may be apart.
_CLOCKS_DIFFER_US = HOUR


class StreamWriter:
    """Writes to one stream.

    Parameters
    ----------
    storage
        Where the stream is.
    meta
        What it is, see `open_stream`.
    settings
        How files are written.
    retention
        How much is kept.
    """

    def __init__(
        self,
        storage: Storage,
        meta: OperatorMeta,
        settings: LogSettings | None = None,
        retention: Retention | None = None,
        clock: Clock = wall_clock_us,
    ) -> None:
        self._storage = storage
        self._meta = meta
        self._settings = settings or LogSettings()
        self._retention = retention or Retention()
        self._clock = clock
        self._stream = StreamDescription.of(meta)
        self._buckets = Buckets.of(self._stream)
        self._codecs = Codecs(self._settings.compression)

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Put the rows of a task into data files. They are on disk, and part of nothing yet."""
        files: list[DataFile] = []
        waiting: list[pa.RecordBatch] = []
        size = 0
        for rows in _larger(batches, self._stream.schema):
            waiting.append(rows)
            size += rows.nbytes
            if size >= _FILE_BYTES:
                files += self._write(waiting)
                waiting, size = [], 0
        if waiting:
            files += self._write(waiting)
        return files

    def commit(
        self, files: Sequence[DataFile], writer: str | None = None, number: int | None = None
    ) -> int:
        """Make a batch of the files; returns its place in the stream, or NO_BATCH.

        With the name of a writer and its own number of the batch, the batch is taken once: when it
        was committed before, these files are discarded. A batch without rows is none.
        """
        if not files:
            return NO_BATCH
        log = manifest_log(self._storage, self._meta, self._settings, self._clock)
        while True:
            before, link = _newest(log)
            writers = {} if before is None else dict(before.writers)
            if writer is not None and number is not None:
                if writers.get(writer, NO_BATCH) >= number:
                    # Whoever committed it may have died before the last sync, and these rows are
                    # the only others there are.
                    log.settle(link.batch)
                    self.discard(files)
                    return NO_BATCH
                writers[writer] = number
            batch = 0 if before is None else before.batch + 1
            try:
                published = log.append(
                    batch,
                    [],
                    previous=link,
                    fingerprint=Fingerprint(sum(file.rows for file in files), 0),
                    time_range=joined_times(files),
                    attributes=manifest_attributes(files, before, writers),
                )
            except BatchGoesBackward:
                continue  # the place was taken, and trimmed since
            if published.created:
                break  # otherwise somebody else has taken the place: try the next one
        self._keep_up(batch)
        return batch

    def discard(self, files: Sequence[DataFile]) -> None:
        """Remove data files, except those that are part of a batch after all.

        A commit that failed may have failed after the batch was published.
        """
        if not files:
            return
        log = manifest_log(self._storage, self._meta, self._settings, self._clock)
        named = _named_since(log, min(file.written_us for file in files) - _CLOCKS_DIFFER_US)
        for file in files:
            if file.path not in named:
                self._storage.delete(file.path, synced=False)  # nobody names it

    def _keep_up(self, batch: int) -> None:
        """Tends the stream now and then. That it fails does not undo the batch, so it must not
        fail the commit: a job would be run again, and its rows were there twice."""
        if batch % _TRIM_EVERY != _TRIM_EVERY - 1:
            return
        log = manifest_log(self._storage, self._meta, self._settings, self._clock)
        try:
            trim_stream(self._storage, log, self._retention, self._clock())
            if batch % _MERGE_EVERY == _MERGE_EVERY - 1:
                log.merge(batch - UNMERGED)
        except TrailmarkError as error:
            _log.warning("Batch %d is committed, but the stream was not tended: %s", batch, error)

    def _write(self, batches: Sequence[pa.RecordBatch]) -> list[DataFile]:
        rows = pa.Table.from_batches(batches, self._stream.schema)
        return [
            write_file(
                self._storage,
                self._meta.log_id,
                bucket,
                part,
                self._times(part),
                self._codecs,
                self._clock(),
            )
            for bucket, part in self._buckets.split(rows)
        ]

    def _times(self, rows: pa.Table) -> TimeRange | None:
        if self._stream.time_column is None:
            return None
        import pyarrow.compute as pc  # not for streams without it, nor for commits

        bounds = pc.min_max(rows.column(self._stream.time_column))
        if not bounds["min"].is_valid:
            return None  # all times are null
        per_us = {"s": 1_000_000, "ms": 1_000, "us": 1}
        unit = self._stream.schema.field(self._stream.time_column).type.unit
        if unit == "ns":
            return TimeRange(bounds["min"].value // 1000, bounds["max"].value // 1000)
        return TimeRange(bounds["min"].value * per_us[unit], bounds["max"].value * per_us[unit])


def _larger(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows in fewer parts, with the types of the stream.

    They are put together as they come: whoever sends them gets on with the next meanwhile.
    """
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(conform(batch, schema))
            count, size = count + batch.num_rows, size + batch.nbytes
        if count >= _ROWS_AT_ONCE or size >= _FILE_BYTES:
            yield contiguous(pa.Table.from_batches(waiting, schema))
            waiting, count, size = [], 0, 0
    if waiting:
        yield contiguous(pa.Table.from_batches(waiting, schema))


def _newest(log: StreamLog) -> tuple[Manifest | None, SegmentLink]:
    while True:
        batch = log.newest()
        if batch == NO_BATCH:
            return None, START_OF_LOG
        try:
            footer, checksum = log.read_footer(batch)
        except MissingSegment:
            if log.newest() == batch:
                raise
            continue  # others have committed, and trimmed it, since it was the newest
        return Manifest.of(footer, Origin(log.directory)), SegmentLink(batch, checksum)


def _named_since(log: StreamLog, since_us: int) -> set[str]:
    """Paths of the files of all batches that were committed since a time."""
    named: set[str] = set()
    for batch in reversed(log.batches()):
        try:
            manifest = read_manifest(log, batch)
        except MissingSegment:
            break  # trimmed since, and so are all before it
        if manifest.written_us < since_us:
            break
        named.update(file.path for file in manifest.files)
    return named


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns as the stream has them: by name, with its types.

    Only what holds the same values in another form is changed: zoned times of another zone, texts
    with wider offsets.
    """
    if batch.schema.names != schema.names:
        raise SchemaChanged(
            f"The rows have columns {batch.schema.names} instead of {schema.names}.",
            where="columns",
            fix="Select the columns of the stream, in its order, before you write.",
        )
    columns = []
    for column, wanted in zip(batch.columns, schema, strict=True):
        if column.type == wanted.type:
            columns.append(column)
            continue
        if not _has_same_values(column.type, wanted.type):
            raise _other_type(column, wanted)
        try:
            columns.append(column.cast(wanted.type))
        except pa.ArrowException as error:
            raise _other_type(column, wanted) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _has_same_values(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types differ in form only; a cast would also make texts of numbers, and drop
    the fields of a struct."""
    kinds = pa.types
    if kinds.is_timestamp(given) and kinds.is_timestamp(wanted):
        return given.unit == wanted.unit and (given.tz is None) == (wanted.tz is None)
    if kinds.is_map(given) or kinds.is_map(wanted):
        return (
            kinds.is_map(given)
            and kinds.is_map(wanted)
            and _has_same_values(given.key_type, wanted.key_type)
            and _has_same_values(given.item_type, wanted.item_type)
        )
    if kinds.is_struct(given) and kinds.is_struct(wanted):
        return [each.name for each in given] == [each.name for each in wanted] and all(
            _has_same_values(one.type, other.type) for one, other in zip(given, wanted, strict=True)
        )
    if _is_list(given) and _is_list(wanted):
        return _has_same_values(given.value_type, wanted.value_type)
    return given == wanted or any(
        is_kind(given) and is_kind(wanted) for is_kind in (_is_text, _is_bytes)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _other_type(column: pa.Array, wanted: pa.Field) -> SchemaChanged:
    return SchemaChanged(
        f"Column {wanted.name!r} arrives as {column.type} instead of {wanted.type}.",
        where=wanted.name,
        fix="Cast it before you write, or write to a new stream.",
    )
