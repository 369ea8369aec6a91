"""What writers promise about rows that are still to come, and which rows break a promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from trailmark.errors import BatchGoesBackward
from trailmark.log import OperatorMeta, Storage, read_meta
from trailmark.log.clock import Clock
from trailmark.records import NO_BATCH, SegmentLink
from trailmark.streams.boundaries import (
    NO_BOUNDARIES,
    Boundaries,
    advanced,
    later,
    with_heartbeats,
    without,
)
from trailmark.streams.description import StreamDescription
from trailmark.streams.files import DataFile, read_column, rows_of
from trailmark.streams.heartbeats import (
    Heartbeat,
    Said,
    newest_heartbeats,
    next_number,
    send,
    settle,
)
from trailmark.streams.manifest import (
    Manifest,
    joined_times,
    manifest_attributes,
    manifest_log,
    newest_manifest,
)
from trailmark.streams.times import EARLIEST, LATEST, count_before

#: The boundary of a stream that has ended: the year 9999.
END_OF_TIME = 253_402_214_400_000_000
#: A boundary that is as late as this one or later says as much, whatever the delay.
_ENDED = END_OF_TIME - 365 * 86_400_000_000


def has_ended(boundary_us: int | None) -> bool:
    """Whether a stream that is complete up to a time has ended."""
    return boundary_us is not None and boundary_us >= _ENDED


def promised(newest: Manifest | None, heartbeats: Mapping[str, Heartbeat]) -> Boundaries | None:
    """What the newest manifest and the heartbeats since say; None if nobody promises anything."""
    before = None if newest is None else newest.boundaries
    if before is None and not heartbeats:
        return None
    return with_heartbeats(before, heartbeats, _committed(newest))


def standing_at(
    newest: Manifest | None, heartbeats: Mapping[str, Heartbeat]
) -> tuple[str, int | None]:
    """How far a stream has come, to be compared: by what is promised, or else by its batches."""
    known = promised(newest, heartbeats)
    if known is not None:
        return "boundary", known.stream
    return "batch", None if newest is None else newest.batch


def let_go(storage: Storage, writer: str, now_us: int, seen: Heartbeat | None) -> bool:
    """Waits no longer for a writer: the boundary of the stream is the least of the others.

    ``seen`` is its last heartbeat, if there was any, when that was decided. It counts again as soon
    as it writes again, or sends another; False if it has done so since.
    """
    meta = read_meta(storage)
    assert meta is not None, "there is a stream"
    newest, link = newest_manifest(manifest_log(storage, meta))
    known = promised(newest, newest_heartbeats(storage)) or NO_BOUNDARIES
    if writer not in known.writers:
        return True  # nobody waits for it
    gone = Heartbeat(
        writer,
        next_number(seen),
        Said.GONE,
        link.batch,
        known.own(writer),
        known.stream,
        now_us,
        _committed(newest).get(writer, NO_BATCH),
    )
    if not send(storage, gone):
        return False
    # It may be asleep in the middle of a commit that knows nothing of this.
    newest, link = newest_manifest(manifest_log(storage, meta))
    after = promised(newest, newest_heartbeats(storage)) or NO_BOUNDARIES
    _publish(storage, meta, (newest, link), after, now_us)
    return True


def end_for_good(
    storage: Storage, now_us: int, stood_at: tuple[str, int | None] | None = None
) -> bool:
    """Promises for all who write to a stream that nothing will come any more: whatever does is late
    for every reader. ``stood_at`` is where it stood when that was decided.

    False if it has moved since, or somebody has written meanwhile.
    """
    meta = read_meta(storage)
    assert meta is not None, "there is a stream"
    newest, link = newest_manifest(manifest_log(storage, meta))
    heartbeats = newest_heartbeats(storage)
    if stood_at is not None and standing_at(newest, heartbeats) != stood_at:
        return False
    known = promised(newest, heartbeats) or NO_BOUNDARIES
    if has_ended(known.stream):
        return True
    ended = replace(known, writers=dict.fromkeys(known.writers, END_OF_TIME), stream=END_OF_TIME)
    return _publish(storage, meta, (newest, link), ended, now_us)


def _publish(
    storage: Storage,
    meta: OperatorMeta,
    before: tuple[Manifest | None, SegmentLink],
    promises: Boundaries,
    now_us: int,
) -> bool:
    """Makes a batch without rows that has promises of somebody else's; False if its place is taken.

    Whoever is about to commit rows loses the place, however long it has slept meanwhile, and looks
    anew at which of them are late. So all who read the stream agree about that.
    """
    newest, link = before
    told = replace(promises, late_before=None, late_rows=0)
    try:
        published = manifest_log(storage, meta, clock=lambda: now_us).append(
            0 if newest is None else newest.batch + 1,
            [],
            previous=link,
            fingerprint=rows_of(()),
            attributes=manifest_attributes((), newest, None, told),
        )
    except BatchGoesBackward:
        return False  # it was taken, and trimmed since
    return published.created


def _committed(newest: Manifest | None) -> Mapping[str, int]:
    """The last batch with rows of every writer, in its own numbers."""
    return {} if newest is None else newest.writers


class Promises:
    """Those of whoever writes to a stream with a delay; without one, only rows are counted that
    break those of others."""

    def __init__(
        self, storage: Storage, meta: OperatorMeta, delay_us: int | None, clock: Clock
    ) -> None:
        self._storage = storage
        self._meta = meta
        self._stream = StreamDescription.of(meta)
        self._delay_us = delay_us
        self._clock = clock
        #: Times of files that had to be read, by path: a commit that lost a race tries again.
        self._times: dict[str, pa.ChunkedArray] = {}

    @property
    def are_made(self) -> bool:
        """Whether whoever writes makes any."""
        return self._delay_us is not None and self._stream.time_column is not None

    def known(self, newest: Manifest | None) -> Boundaries | None:
        """What all writers promise by now; None if nobody promises anything."""
        return promised(newest, newest_heartbeats(self._storage))

    def late_before(self, writer: str, newest: Manifest | None) -> int | None:
        """Rows that a writer is about to write are late if their time is before this."""
        return _late_before(newest, newest_heartbeats(self._storage), writer)

    def after(
        self,
        before: Manifest | None,
        writer: str | None,
        number: int | None,
        files: Sequence[DataFile],
        asked_us: int | None,
    ) -> Boundaries | None:
        """What holds after a batch, with the rows of it that are late."""
        is_made = writer is not None and self.are_made
        if not is_made and self._stream.time_column is None:
            return None
        if writer is not None and is_made:
            heartbeats = self._introduced(writer, number, before)
            earliest = _late_before(before, heartbeats, writer)
            times = joined_times(files)
            reached = later(asked_us, None if times is None else times.max_us)
            known = promised(before, heartbeats) or NO_BOUNDARIES
            after = advanced(known, writer, later(earliest, self._boundary(reached)))
        else:
            told = self.known(before)
            if told is None:
                return None  # nobody promises anything
            after, earliest = told, told.stream
        late = sum(self._count_late(file, earliest) for file in files)
        total = after.total_late_rows + late
        return replace(after, late_before=earliest, late_rows=late, total_late_rows=total)

    def send(self, writer: str, number: int | None, before: Manifest | None, asked_us: int) -> None:
        """Says what is promised though there are no rows, if that is anything new.

        Under a number of the writer's own, or the next one.
        """
        boundary_us = self._boundary(asked_us)
        if not self.are_made or boundary_us is None:
            return
        heartbeats = self._introduced(writer, number, before)
        boundary_us = later(boundary_us, _late_before(before, heartbeats, writer))
        known = promised(before, heartbeats) or NO_BOUNDARIES
        if boundary_us == known.writers.get(writer) and not _is_new(before, heartbeats, writer):
            if writer in heartbeats:
                newest = heartbeats[writer]
                settle(self._storage, writer, (newest.number, newest.said))
            return
        if number is None:
            number = next_number(heartbeats.get(writer))
        self._send(writer, number, Said.SILENT, before, boundary_us, heartbeats)

    def counted(self, rows: pa.Table, before_us: int | None) -> tuple[int, int] | None:
        """A time, and how many rows are before it; None if there is none."""
        if before_us is None or self._stream.time_column is None:
            return None
        return before_us, count_before(rows.column(self._stream.time_column), before_us)

    def _introduced(
        self, writer: str, number: int | None, before: Manifest | None
    ) -> dict[str, Heartbeat]:
        """The heartbeats, after all who look know of a writer.

        As long as they do not, they may go on without it. So it says first that it is there, and
        looks then how far the others have come: whoever went on without it has seen no more.
        """
        heartbeats = newest_heartbeats(self._storage)
        known = promised(before, heartbeats) or NO_BOUNDARIES
        if writer in known.writers:
            return heartbeats
        if number is None:
            number = next_number(heartbeats.get(writer))
        self._send(writer, number, Said.NEW, before, known.own(writer), heartbeats)
        return newest_heartbeats(self._storage)

    def _send(
        self,
        writer: str,
        number: int,
        said: Said,
        before: Manifest | None,
        boundary_us: int | None,
        heartbeats: Mapping[str, Heartbeat],
    ) -> None:
        after = NO_BATCH if before is None else before.batch
        stream_us = (promised(before, heartbeats) or NO_BOUNDARIES).stream
        last = _committed(before).get(writer, NO_BATCH)
        told = (after, boundary_us, stream_us, self._clock(), last)
        send(self._storage, Heartbeat(writer, number, said, *told))

    def _boundary(self, reached_us: int | None) -> int | None:
        if reached_us is None or self._delay_us is None:
            return None
        boundary_us = min(reached_us - self._delay_us, LATEST)
        return boundary_us if boundary_us >= EARLIEST else None  # too early to be told

    def _count_late(self, file: DataFile, before_us: int | None) -> int:
        times = file.time_range
        if before_us is None or times is None or times.min_us >= before_us:
            return 0
        if file.counted is not None and file.counted[0] == before_us:
            return file.counted[1]
        # Not counted by its task: it promises nothing, or did not see the last heartbeat.
        if file.path not in self._times:
            self._times[file.path] = self._read_times(file)
        return count_before(self._times[file.path], before_us)

    def _read_times(self, file: DataFile) -> pa.ChunkedArray:
        column = self._stream.time_column
        assert column is not None, "it has times"
        return read_column(self._storage, self._meta.log_id, file, self._stream.schema, column)


def _late_before(
    before: Manifest | None, heartbeats: Mapping[str, Heartbeat], writer: str
) -> int | None:
    """Rows that a writer commits now are late if their time is before this; None if none are.

    A writer is held to its own promise, which no boundary of the stream is beyond: so whoever went
    by that boundary has missed none of the rows that are in time. One that is new begins where the
    stream has come without it.
    """
    known = promised(before, heartbeats) or NO_BOUNDARIES
    limit = later(known.own(writer), known.stream)
    if not _is_new(before, heartbeats, writer):
        return limit
    others = {name: each for name, each in heartbeats.items() if name != writer}
    return later(limit, (without(promised(before, others) or NO_BOUNDARIES, writer)).stream)


def _is_new(before: Manifest | None, heartbeats: Mapping[str, Heartbeat], writer: str) -> bool:
    """Whether a writer has said that it is there, and nothing since."""
    newest = heartbeats.get(writer)
    if newest is None or newest.said is not Said.NEW:
        return False
    return newest.still_holds(_committed(before))
