"""Writing a stream: rows into data files wherever the tasks run, batches by whoever commits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from trailmark.errors import (
    BatchGoesBackward,
    LogError,
    MissingSegment,
    SettingError,
    TrailmarkError,
)
from trailmark.kernel.columns import contiguous
from trailmark.log import Codecs, OperatorMeta, Storage, StreamLog, TimeRange
from trailmark.log.clock import Clock, wall_clock_us
from trailmark.records import NO_BATCH
from trailmark.settings import MIB, LogSettings
from trailmark.streams.boundaries import Boundaries
from trailmark.streams.buckets import Buckets
from trailmark.streams.conform import conform
from trailmark.streams.description import StreamDescription
from trailmark.streams.files import DataFile, data_directories, rows_of, write_file
from trailmark.streams.heartbeats import HEARTBEATS
from trailmark.streams.manifest import (
    Manifest,
    joined_times,
    manifest_attributes,
    manifest_log,
    newest_manifest,
    read_manifest,
)
from trailmark.streams.promises import Promises
from trailmark.streams.repeats import QueryBatch
from trailmark.streams.retention import Retention, trim_stream
from trailmark.values import dataclass

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


@dataclass(frozen=True, slots=True)
class Planned:
    """Where a stream stood when it was planned to write to it, for those who have other clocks.

    No batch up to ``after`` can name a file that was written since; and none of these files says
    that it is older than ``at_us``, or it could be taken for one that a killed task has left.
    """

    after: int
    at_us: int


#: Nothing is known: any batch may name a file.
NOT_PLANNED = Planned(NO_BATCH, 0)


def plan_writing(storage: Storage, meta: OperatorMeta, clock: Clock = wall_clock_us) -> Planned:
    """Look where a stream stands, before tasks write to it."""
    newest, link = newest_manifest(manifest_log(storage, meta))
    return Planned(link.batch, max(clock(), 0 if newest is None else newest.written_us))


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
    planned
        Where the stream stood when the writing was planned; see `plan_writing`.
    compares_repeated
        Whether a batch that a query commits again must have the rows that it had.
    delay_us
        How much older than the newest row of a query one of its later rows may be. With it, and a
        time column, queries promise boundaries.
    """

    def __init__(
        self,
        storage: Storage,
        meta: OperatorMeta,
        settings: LogSettings | None = None,
        retention: Retention | None = None,
        clock: Clock = wall_clock_us,
        planned: Planned = NOT_PLANNED,
        *,
        compares_repeated: bool = True,
        delay_us: int | None = None,
    ) -> None:
        self._storage = storage
        self._meta = meta
        self._settings = settings or LogSettings()
        self._retention = retention or Retention()
        self._clock = clock
        self._planned = planned
        self._compares_repeated = compares_repeated
        self._stream = StreamDescription.of(meta)
        self._promises = Promises(storage, meta, delay_us, clock)
        self._buckets = Buckets.of(self._stream)
        self._codecs = Codecs(self._settings.compression)

    def write(self, batches: Iterable[pa.RecordBatch], writer: str | None = None) -> list[DataFile]:
        """Put the rows of a task into data files. They are on disk, and part of nothing yet.

        With the name of the writer, late rows are counted meanwhile; `commit` would have to read
        the files again.
        """
        late_before = None
        if writer is not None and self._promises.are_made:
            late_before = self._promises.late_before(writer, newest_manifest(self._manifests())[0])
        files: list[DataFile] = []
        waiting: list[pa.RecordBatch] = []
        size = 0
        for rows in _larger(batches, self._stream.schema):
            waiting.append(rows)
            size += rows.nbytes
            if size >= _FILE_BYTES:
                files += self._write(waiting, late_before)
                waiting, size = [], 0
        if waiting:
            files += self._write(waiting, late_before)
        return files

    def commit(
        self,
        files: Sequence[DataFile],
        writer: str | None = None,
        number: int | None = None,
        asked_us: int | None = None,
    ) -> int:
        """Make a batch of the files; returns its place in the stream, or NO_BATCH.

        With the name of a writer and its own number of the batch, the batch is taken once: when it
        was committed before, these files are discarded, and so they are when they are refused for
        holding other rows than it had. A batch without rows is none; but if the writer's source was
        asked at a time ``asked_us``, by the clock, and had nothing more, that is promised.
        """
        given = None
        if writer is not None and number is not None:
            given = QueryBatch(writer, number, files, self._compares_repeated)
        if given is None and not files:
            return NO_BATCH
        log = self._manifests()
        while True:
            before, link = newest_manifest(log)
            if given is not None and self._has(log, before, given):
                # Whoever committed it may have died before the last sync, and these rows are the
                # only others there are.
                _settle(log, link.batch)
                self.discard(files)
                return NO_BATCH
            if not files:
                if given is not None and asked_us is not None:
                    self._promises.send(given.writer, given.number, before, asked_us)
                return NO_BATCH
            promised = self._promises.after(before, writer, number, files, asked_us)
            batch = 0 if before is None else before.batch + 1
            try:
                published = log.append(
                    batch,
                    [],
                    previous=link,
                    fingerprint=rows_of(files),
                    time_range=joined_times(files),
                    attributes=manifest_attributes(files, before, given, promised),
                )
            except BatchGoesBackward:
                if newest_manifest(log)[1] == link:
                    raise  # nobody has gone on: the newest manifest is lost
                continue  # the place was taken, and trimmed since
            if published.created:
                break  # otherwise somebody else has taken the place: try the next one
        self._keep_up(batch)
        return batch

    def send_heartbeat(self, writer: str, asked_us: int) -> None:
        """Promise that a writer's source was asked at a time and had nothing more."""
        if not self._promises.are_made:
            raise SettingError(
                "A heartbeat is a promise by the clock, less a delay that was not given.",
                where="delay",
                fix='Give one when the writer is opened, such as delay="1 second".',
            )
        self._promises.send(writer, None, newest_manifest(self._manifests())[0], asked_us)

    def last(self, writer: str) -> int:
        """The number of the last batch of a writer, in its own numbers, or NO_BATCH."""
        newest, _ = newest_manifest(self._manifests())
        return NO_BATCH if newest is None else newest.writers.get(writer, NO_BATCH)

    def boundaries(self) -> Boundaries | None:
        """What all writers promise by now; None if nobody promises anything."""
        return self._promises.known(newest_manifest(self._manifests())[0])

    def _has(self, log: StreamLog, newest: Manifest | None, given: QueryBatch) -> bool:
        try:
            return given.is_in(log, newest)
        except LogError:
            self.discard(given.files)
            raise

    def discard(self, files: Sequence[DataFile]) -> None:
        """Remove data files, except those that are part of a batch after all.

        A commit that failed may have failed after the batch was published. What tells are the
        manifests since the writing was planned, not the times of files and manifests: these are
        from the clocks of several hosts.
        """
        if not files:
            return
        named = _named_after(self._manifests(), self._planned.after)
        for file in files:
            if file.path not in named:
                self._storage.delete(file.path, synced=False)  # nobody names it

    def _manifests(self) -> StreamLog:
        return manifest_log(self._storage, self._meta, self._settings, self._clock)

    def _keep_up(self, batch: int) -> None:
        """Tends the stream now and then. That it fails does not undo the batch, so it must not
        fail the commit: a job would be run again, and its rows were there twice."""
        if batch % _TRIM_EVERY != _TRIM_EVERY - 1:
            return
        log = self._manifests()
        places = [log.directory, HEARTBEATS]
        try:
            trim_stream(self._storage, log, self._retention, self._clock())
            if batch % _MERGE_EVERY == _MERGE_EVERY - 1:
                log.merge(batch - UNMERGED)
                places += data_directories(self._meta.buckets)
            for place in places:
                self._storage.clean(place)  # what killed processes have half written
        except TrailmarkError as error:
            _log.warning("Batch %d is committed, but the stream was not tended: %s", batch, error)

    def _write(self, batches: Sequence[pa.RecordBatch], late_before: int | None) -> list[DataFile]:
        rows = pa.Table.from_batches(batches, self._stream.schema)
        return [
            write_file(
                self._storage,
                self._meta.log_id,
                bucket,
                part,
                self._times(part),
                self._codecs,
                max(self._clock(), self._planned.at_us),
                self._promises.counted(part, late_before),
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


def _settle(log: StreamLog, batch: int) -> None:
    try:
        log.settle(batch)
    except MissingSegment:
        if log.start() <= batch:
            raise
        # Others have committed, and trimmed it, since it was the newest: it has served.


def _named_after(log: StreamLog, batch: int) -> set[str]:
    """Paths of the files of all batches behind one."""
    named: set[str] = set()
    for each in range(max(batch + 1, log.start()), log.newest() + 1):
        try:
            named.update(file.path for file in read_manifest(log, each).files)
        except MissingSegment:
            if log.start() <= each:
                raise  # lost: what it names is not known
    return named
