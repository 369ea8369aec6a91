"""What writers promise about rows that are still to come, and which rows break a promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from trailmark.log import OperatorMeta, Storage
from trailmark.log.clock import Clock
from trailmark.records import NO_BATCH
from trailmark.streams.boundaries import (
    NO_BOUNDARIES,
    Boundaries,
    advanced,
    joined,
    late_before,
    later,
)
from trailmark.streams.description import StreamDescription
from trailmark.streams.files import DataFile, read_file
from trailmark.streams.heartbeats import Heartbeat, newest_heartbeats, send
from trailmark.streams.manifest import Manifest, joined_times, newest_manifest
from trailmark.streams.stored import StreamFiles
from trailmark.streams.times import EARLIEST, LATEST, count_before


def promised(newest: Manifest | None, heartbeats: Mapping[str, Heartbeat]) -> Boundaries | None:
    """What the newest manifest and the heartbeats since say; None if nobody promises anything."""
    before = None if newest is None else newest.boundaries
    if before is None and not heartbeats:
        return None
    return joined(before, heartbeats, {} if newest is None else newest.writers)


def let_go(storage: Storage, writer: str, now_us: int) -> None:
    """Waits no longer for a writer: the boundary of the stream is the least of the others.

    It counts again as soon as it writes again, or sends a heartbeat.
    """
    files = StreamFiles(storage)
    newest = newest_manifest(files.log)[0]
    last = NO_BATCH if newest is None else newest.writers.get(writer, NO_BATCH)
    known = newest_heartbeats(storage).get(writer)
    number = 0 if known is None else known.number + 1
    after = NO_BATCH if newest is None else newest.batch
    send(storage, Heartbeat(writer, number, after, None, now_us, gone_after=last))


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

    @property
    def are_made(self) -> bool:
        """Whether whoever writes makes any."""
        return self._delay_us is not None and self._stream.time_column is not None

    def known(self, newest: Manifest | None) -> Boundaries | None:
        """What all writers promise by now; None if nobody promises anything."""
        return promised(newest, newest_heartbeats(self._storage))

    def late_before(self, writer: str, newest: Manifest | None) -> int | None:
        """Rows that a writer writes now are late if their time is before this."""
        known = self.known(newest)
        return None if known is None else late_before(known, writer)

    def after(
        self,
        before: Manifest | None,
        writer: str | None,
        files: Sequence[DataFile],
        asked_us: int | None,
    ) -> Boundaries | None:
        """What holds after a batch, with the rows of it that are late."""
        is_made = writer is not None and self.are_made
        if not is_made and (before is None or before.boundaries is None):
            return None  # heartbeats alone are not looked for: most streams have none
        known = self.known(before) or NO_BOUNDARIES
        after = known
        if writer is not None and is_made:
            times = joined_times(files)
            reached = later(asked_us, None if times is None else times.max_us)
            after = advanced(known, writer, self._boundary(reached))
        earliest = late_before(known, writer if is_made else None)
        late = sum(self._count_late(file, earliest) for file in files)
        total = known.total_late_rows + late
        return replace(after, late_before=earliest, late_rows=late, total_late_rows=total)

    def send(self, writer: str, number: int | None, before: Manifest | None, asked_us: int) -> None:
        """Says what is promised though there are no rows, if that is anything new.

        Under a number of the writer's own, or the next one.
        """
        if not self.are_made:
            return
        heartbeats = newest_heartbeats(self._storage)
        known = promised(before, heartbeats) or NO_BOUNDARIES
        boundary_us = self._boundary(asked_us)
        own = known.own(writer)
        is_known = own is not None and writer in known.writers
        if boundary_us is None or (is_known and later(own, boundary_us) == own):
            return
        if number is None:
            number = heartbeats[writer].number + 1 if writer in heartbeats else 0
        newest = NO_BATCH if before is None else before.batch
        send(self._storage, Heartbeat(writer, number, newest, boundary_us, self._clock()))

    def counted(self, rows: pa.Table, before_us: int | None) -> tuple[int, int] | None:
        """How many rows are before a time, and that time; None if there is none."""
        if before_us is None or self._stream.time_column is None:
            return None
        return before_us, count_before(rows.column(self._stream.time_column), before_us)

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
        column = self._stream.time_column
        assert column is not None, "it has times"
        log_id, schema = self._meta.log_id, self._stream.schema
        parts = read_file(self._storage, log_id, file, schema, [column])
        table = pa.Table.from_batches(parts, pa.schema([schema.field(column)]))
        return count_before(table.column(0), before_us)
