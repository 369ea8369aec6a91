"""One stream of a union: which batches it has, which of their rows are late, and up to which time
it is complete."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from trailmark.errors import DataLoss, MissingSegment
from trailmark.log import Storage, TimeRange, read_meta
from trailmark.log.storage.urls import redacted
from trailmark.records import Stream
from trailmark.streams.boundaries import later
from trailmark.streams.description import StreamDescription
from trailmark.streams.files import DataFile, read_file
from trailmark.streams.heartbeats import Heartbeat, newest_heartbeats, settle
from trailmark.streams.manifest import joined_times, manifest_log, read_manifest
from trailmark.streams.promises import promised
from trailmark.streams.times import count_before
from trailmark.streams.union.decision import Reached
from trailmark.streams.view import Tail
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """A batch of a stream.

    Rows before ``late_before_us`` are late. That follows from the stream alone, not from when it is
    looked at; ``late_rows`` is how many they are, where the manifest says so.
    """

    batch: int
    times: TimeRange | None
    files: Sequence[DataFile]
    late_before_us: int | None
    late_rows: int | None

    @property
    def latest_us(self) -> int | None:
        """Its latest time."""
        return None if self.times is None else self.times.max_us

    def is_over(self, released_us: int) -> bool:
        """Whether all its rows are before a time."""
        return self.times is None or self.times.max_us < released_us


@dataclass(frozen=True, slots=True)
class Look:
    """What a stream has at one moment, from the batch on where it was not all released."""

    log: str
    batches: Sequence[SeenBatch]
    end: int
    boundary_us: int | None


class UnionInput:
    """Looks at a stream again and again, and reads each manifest once.

    Parameters
    ----------
    name
        What the union calls it.
    path
        Where it is, for messages.
    storage
        Its files.
    delay_us
        How much older than the newest row a later one may be, where its writers promise nothing.
    """

    def __init__(self, name: str, path: str, storage: Storage, delay_us: int) -> None:
        self.name = name
        self.storage = storage
        self._path = redacted(path)
        self._delay_us = delay_us
        meta = read_meta(storage)
        if meta is None:
            raise self._loss("The stream is gone.")
        self._meta = meta
        self._stream = StreamDescription.of(meta)
        self.log_id = str(meta.log_id)
        self._log = manifest_log(storage, meta)
        self._tail = Tail(self._log)
        self._settled: dict[str, Heartbeat] = {}
        #: Batches that follow one another, and the latest time up to their end.
        self._seen: list[SeenBatch] = []
        self._latest_us: int | None = None

    @property
    def stream(self) -> Stream:
        """The log that a named reader of it reads."""
        return Stream.BATCHES

    def oldest(self) -> int:
        """Where a union begins that has not read anything: with all that is there."""
        return self._seen[0].batch if self._seen else self._log.start()

    def look(self, at: Reached | None) -> Look:
        """All that has come since; ``at`` is None if the stream was never looked at.

        Heartbeats are read before manifests: what a writer had committed when it sent one is in the
        stream by then.
        """
        heartbeats = newest_heartbeats(self.storage)
        self._settle(heartbeats)
        end = self._tail.newest() + 1
        batches = self.between(at, end)
        if any(each.after >= end for each in heartbeats.values()):
            # Batches that a heartbeat speaks of cannot be seen yet, as after a power failure.
            return Look(self.log_id, batches, end, None if at is None else at.boundary_us)
        newest = read_manifest(self._log, end - 1) if end else None
        if newest is not None and newest.boundaries is None:
            # Which rows are late follows from the stream alone, and there nobody promises anything.
            return Look(self.log_id, batches, end, self._by_rows())
        known = promised(newest, heartbeats)
        return Look(self.log_id, batches, end, None if known is None else known.stream)

    def between(self, at: Reached | None, end: int) -> Sequence[SeenBatch]:
        """The batches from where a union stands to before another one."""
        first = self.oldest() if at is None else at.first
        if at is not None and at.log != self.log_id:
            raise self._loss("The path holds another stream than the union began to read.")
        if not self._seen or not self._seen[0].batch <= first <= self._seen[-1].batch + 1:
            self._seen, self._latest_us = [], None if at is None else at.latest_us
        elif self._seen[0].batch < first:
            self._seen = self._seen[first - self._seen[0].batch :]
        known = first + len(self._seen)
        for batch in range(known, end):
            self._seen.append(self._read(batch))
            self._latest_us = later(self._latest_us, self._seen[-1].latest_us)
        return self._seen[: max(0, end - first)]

    def count_late(self, batch: SeenBatch, before_us: int | None) -> int:
        """How many rows of a batch are before a time."""
        if before_us is None or batch.times is None or batch.times.min_us >= before_us:
            return 0
        if batch.late_rows is not None and batch.late_before_us == before_us:
            return batch.late_rows
        return sum(self._count(file, before_us) for file in batch.files)

    def _read(self, batch: int) -> SeenBatch:
        try:
            manifest = read_manifest(self._log, batch)
        except MissingSegment as error:
            raise self._loss(
                f"Batch {batch} is gone: it was trimmed before it was read."
            ) from error
        told = manifest.boundaries
        late_before_us = self._by_rows() if told is None else told.late_before
        files = tuple(manifest.files)
        late_rows = None if told is None else told.late_rows
        return SeenBatch(batch, joined_times(files), files, late_before_us, late_rows)

    def _by_rows(self) -> int | None:
        """The boundary after the batches that were seen, where nobody promises any."""
        return None if self._latest_us is None else self._latest_us - self._delay_us

    def _settle(self, heartbeats: dict[str, Heartbeat]) -> None:
        """Who goes by a heartbeat makes sure that it lasts: it could be gone after a power failure,
        and its writer would know nothing of its promise."""
        for writer, heartbeat in heartbeats.items():
            if self._settled.get(writer) != heartbeat and not heartbeat.problem:
                settle(self.storage, writer, (heartbeat.number, heartbeat.said))
                self._settled[writer] = heartbeat

    def _count(self, file: DataFile, before_us: int) -> int:
        if file.time_range is None or file.time_range.min_us >= before_us:
            return 0
        column = self._stream.time_column
        assert column is not None, "it has times"
        parts = read_file(self.storage, self._meta.log_id, file, self._stream.schema, [column])
        schema = pa.schema([self._stream.schema.field(column)])
        return count_before(pa.Table.from_batches(parts, schema).column(0), before_us)

    def _loss(self, what: str) -> DataLoss:
        return DataLoss(
            what,
            where=f"input {self.name} ({self._path})",
            fix="Give the union a name as a reader (argument reader) and the stream a longer "
            "retention. What is gone cannot be put into the order any more: begin another union "
            "at an empty path, with another checkpoint.",
        )
