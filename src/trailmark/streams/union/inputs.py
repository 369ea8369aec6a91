"""One stream of a union: which batches it has, which of their rows are late, and up to which time
it is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from trailmark.errors import DataLoss, MissingSegment
from trailmark.log import OperatorMeta, Storage, StreamLog, TimeRange, read_meta
from trailmark.log.meta import META_PATH
from trailmark.log.readers import acknowledge, register
from trailmark.log.storage.urls import redacted
from trailmark.records import Stream
from trailmark.streams.boundaries import later
from trailmark.streams.description import StreamDescription
from trailmark.streams.files import DataFile, read_column
from trailmark.streams.heartbeats import Heartbeat, newest_heartbeats, settle
from trailmark.streams.manifest import Manifest, joined_times, manifest_log, read_manifest
from trailmark.streams.promises import end_for_good, promised, standing_at
from trailmark.streams.times import EARLIEST, count_before
from trailmark.streams.union.decision import Reached
from trailmark.streams.union.kept import Kept
from trailmark.streams.view import Tail
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """A batch of a stream.

    Rows before ``late_before_us`` are late by what the batch itself says, and ``late_rows`` is how
    many they are; None if nobody promised anything.
    """

    batch: int
    times: TimeRange | None
    files: Sequence[DataFile]
    late_before_us: int | None
    late_rows: int | None

    @classmethod
    def of(cls, manifest: Manifest) -> SeenBatch:
        """As the manifest of the batch has it."""
        told, files = manifest.boundaries, tuple(manifest.files)
        late_before_us = None if told is None else told.late_before
        late_rows = None if told is None else told.late_rows
        return cls(manifest.batch, joined_times(files), files, late_before_us, late_rows)

    @property
    def is_late(self) -> bool:
        """Whether all its rows are late by what it says itself."""
        limit_us = self.late_before_us
        return self.times is not None and limit_us is not None and self.times.max_us < limit_us

    def is_over(self, released_us: int | None) -> bool:
        """Whether all its rows are before a time, if there is one."""
        if self.times is None:
            return True
        return released_us is not None and self.times.max_us < released_us


@dataclass(frozen=True, slots=True)
class Look:
    """What a stream has at one moment: batches before ``end``, and a boundary if one is known.

    ``at`` is where the union stood then, ``is_promised`` whether any writer promises something, and
    ``latest_us`` the latest time that it has seen in batches with rows which are not released, if
    it has asked for it.
    """

    at: Reached
    end: int
    boundary_us: int | None
    is_promised: bool
    latest_us: int | None = None


class UnionInput:
    """Looks at a stream again and again, and reads each manifest once.

    Nothing is read before the first look, and nothing by a decision that was not read by
    `look_through` before it.

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
    reader
        Under which name the stream keeps what the union still needs, if it does.
    """

    def __init__(
        self, name: str, path: str, storage: Storage, delay_us: int, reader: str | None = None
    ) -> None:
        self.name = name
        self.storage = storage
        self._place = place_of(name, path)
        self._delay_us = delay_us
        self._reader = reader
        self._is_registered = False
        #: What this process has acknowledged.
        self._acknowledged: int | None = None
        self._settled: dict[str, Heartbeat] = {}
        self._kept = Kept(self._place)
        #: Manifests that may be asked for again, by batch.
        self._seen: dict[int, SeenBatch] = {}
        #: How many rows of a batch are before a time, where they had to be counted.
        self._counted: dict[tuple[int, int], int] = {}
        self._newest: Manifest | None = None
        #: Where the stream stood at the last look.
        self._stood_at: tuple[str, int | None] | None = None
        #: Up to which batch the latest time is known, where nobody promises anything.
        self._timed_to: int | None = None
        self._latest_us: int | None = None
        #: The same for whoever asks how long rows have been waiting.
        self._looked_to: int | None = None
        self._latest_row_us: int | None = None

    @cached_property
    def _meta(self) -> OperatorMeta:
        meta = read_meta(self.storage)
        if meta is None:
            raise loss_of_data("The stream is gone.", self._place)
        return meta

    @cached_property
    def _stream(self) -> StreamDescription:
        return StreamDescription.of(self._meta)

    @cached_property
    def _log(self) -> StreamLog:
        return manifest_log(self.storage, self._meta)

    @cached_property
    def _tail(self) -> Tail:
        return Tail(self._log)

    @cached_property
    def _begun(self) -> Reached:
        """Where a union stands that has not looked yet: all that is there is to come."""
        first = self._log.start()
        return Reached(str(self._meta.log_id), first, first, first, None, None)

    def look(self, at: Reached | None) -> Look:
        """How far the stream has come since the union stood somewhere, if it did.

        Heartbeats are read before manifests: what a writer had committed when it sent one is in the
        stream by then.
        """
        if at is None:
            at = self._begun
        if at.log != str(self._meta.log_id):
            raise DataLoss(
                "The path holds another stream than the union began to read.",
                where=self._place,
                fix="Give the path of the stream itself: it may have been moved, with all its "
                "files. To go on with another one, begin another union at an empty path, with "
                "another checkpoint.",
            )
        self._register(at.needs)
        heartbeats = newest_heartbeats(self.storage)
        self._settle(heartbeats)
        end = self._tail.newest() + 1
        is_empty = not end and not heartbeats
        if end < at.end or (is_empty and not self.storage.exists(META_PATH)):
            what = "The stream is gone, or a part of it that was there before."
            raise loss_of_data(what, self._place)
        newest = self._manifest_before(end)
        self._stood_at = standing_at(newest, heartbeats)
        if any(each.after >= end for each in heartbeats.values()):
            # Batches that a heartbeat speaks of cannot be seen yet, as after a power failure.
            return Look(at, end, at.boundary_us, is_promised=True)
        known = promised(newest, heartbeats)
        self._kept.check(known, heartbeats)
        boundary_us = self._by_rows(at, end) if known is None else known.stream
        return Look(at, end, boundary_us, known is not None)

    def look_through(self, at: Reached | None, released_us: int | None) -> Look:
        """The same, and reads all that the decision after it asks for."""
        look = self.look(at)
        latest_us = self.latest_us(look.at, look.end)
        for batch in look.at.early:
            self._read(batch)
        self._count(look.at, look.end, released_us)
        return replace(look, latest_us=latest_us)

    def read(self, at: Reached, end: int, released_us: int | None) -> None:
        """Reads the batches before ``end`` that may hold rows which are not released, and counts
        those that are late."""
        self.batches(at, end)
        self._count(at, end, released_us)

    def has_acknowledged(self, needs: int) -> bool:
        """Whether all batches before one are let go of, if that is done under a name."""
        return self._reader is None or self._acknowledged == needs

    def acknowledge(self, needs: int) -> None:
        """Lets go of all batches before one."""
        assert self._reader is not None
        self._register(needs)
        if self._acknowledged != needs:
            acknowledge(self.storage, self._reader, Stream.BATCHES, needs)
            self._acknowledged = needs

    def batches(self, at: Reached, end: int) -> list[SeenBatch]:
        """Those before ``end`` that may hold rows which are not released yet."""
        found = {batch: self._read(batch) for batch in [*at.early, *range(at.first, end)]}
        newer = {batch: each for batch, each in self._seen.items() if batch >= end}
        self._seen = {**found, **newer}
        return list(found.values())

    def give_up(self, now_us: int) -> bool:
        """Ends the stream for all who read it; False if it has moved since the last look: this may
        be carried out late, and cannot be undone."""
        return end_for_good(self.storage, now_us, self._stood_at)

    def latest_us(self, at: Reached, end: int) -> int | None:
        """The latest time in batches before ``end`` that may hold rows which are not released."""
        begin = at.first if self._looked_to is None else self._looked_to
        # Of those that are early, the process knows that has released what is around them.
        early = at.early if self._looked_to is None else ()
        for batch in (*early, *range(begin, end)):
            seen = self._read(batch)
            if seen.times is not None and not seen.is_late:
                self._latest_row_us = later(self._latest_row_us, seen.times.max_us)
        self._looked_to = max(begin, end)
        return self._latest_row_us

    def count_late(self, batch: SeenBatch, released_us: int | None) -> int:
        """How many rows of a batch are late, if everything before a time is released."""
        before_us = later(batch.late_before_us, released_us)
        if before_us is None or batch.times is None or batch.times.min_us >= before_us:
            return 0
        if batch.late_rows is not None and batch.late_before_us == before_us:
            return batch.late_rows
        place = (batch.batch, before_us)
        if place not in self._counted:
            self._counted[place] = sum(self._before(file, before_us) for file in batch.files)
        return self._counted[place]

    def _count(self, at: Reached, end: int, released_us: int | None) -> None:
        """Counts late rows before a decision asks for them."""
        self._counted = {key: n for key, n in self._counted.items() if key[0] >= at.end}
        for batch in range(at.end, end):
            self.count_late(self._read(batch), released_us)

    def _register(self, needs: int) -> None:
        """Before anything is decided, the stream has to know what is needed."""
        if self._reader is not None and not self._is_registered:
            register(self.storage, self._reader, Stream.BATCHES, needs)
            self._is_registered = True

    def _manifest_before(self, end: int) -> Manifest | None:
        if end and (self._newest is None or self._newest.batch != end - 1):
            self._newest = read_manifest(self._log, end - 1)
        return self._newest if end else None

    def _by_rows(self, at: Reached, end: int) -> int | None:
        """The boundary where nobody promises any: the latest time so far, less the delay."""
        if self._timed_to is None:
            self._timed_to, self._latest_us = at.end, at.latest_us
        for batch in range(self._timed_to, end):
            times = self._read(batch).times
            self._latest_us = later(self._latest_us, None if times is None else times.max_us)
        self._timed_to = end
        return None if self._latest_us is None else max(EARLIEST, self._latest_us - self._delay_us)

    def _read(self, batch: int) -> SeenBatch:
        if batch not in self._seen:
            try:
                self._seen[batch] = SeenBatch.of(read_manifest(self._log, batch))
            except MissingSegment as error:
                what = f"Batch {batch} is gone: it was trimmed before it was read."
                raise loss_of_data(what, self._place) from error
        return self._seen[batch]

    def _settle(self, heartbeats: dict[str, Heartbeat]) -> None:
        """Who goes by a heartbeat makes sure that it lasts: it could be gone after a power failure,
        and its writer would know nothing of its promise."""
        for writer, heartbeat in heartbeats.items():
            if self._settled.get(writer) != heartbeat and not heartbeat.problem:
                settle(self.storage, writer, (heartbeat.number, heartbeat.said))
                self._settled[writer] = heartbeat

    def _before(self, file: DataFile, before_us: int) -> int:
        if file.time_range is None or file.time_range.min_us >= before_us:
            return 0
        column = self._stream.time_column
        assert column is not None, "it has times"
        schema = self._stream.schema
        times = read_column(self.storage, self._meta.log_id, file, schema, column)
        return count_before(times, before_us)


def place_of(name: str, path: str) -> str:
    """An input in messages."""
    return f"input {name} ({redacted(path)})"


def loss_of_data(what: str, where: str) -> DataLoss:
    """The error to raise about rows that a union has not read and cannot read any more."""
    return DataLoss(
        what,
        where=where,
        fix="Give the union a name as a reader (argument reader) and the stream a longer "
        "retention. What is gone cannot be put into the order any more: begin another union "
        "at an empty path, with another checkpoint.",
    )
