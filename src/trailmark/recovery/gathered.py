"""What a walk back through the output log gathers: the newest footprint of each window that has not
closed since."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from trailmark.errors import DamagedSegment, MissingSegment
from trailmark.kernel.columns import arrow_fixed, chosen_rows, contiguous
from trailmark.log import Footer, Segment, StreamLog
from trailmark.operators.identities import Identities
from trailmark.records import FOOTPRINT, FrameKind

#: Room that is made before any window was seen: a footer may say any number of them.
MOST_RESERVED = 1 << 20
#: Attribute of a snapshot: the output segment that it is the state after.
OUTPUT_CHECKSUM = "output_checksum"

#: Rows of an output segment that say nothing of the state.
_NOT_READ = frozenset({FrameKind.LATE, FrameKind.TENTATIVE})


class Form(Protocol):
    """What the footprints in a log look like: an operator knows it, and so does its description."""

    @property
    def identities(self) -> Identities:
        """What tells windows from one another."""

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        """What is wrong with the footprints of a batch; empty if nothing is."""


class Gathered:
    """Footprints, newest first, and how much was read to find them.

    Attributes
    ----------
    taken, found
        Footprints, and how many they are.
    segments, records
        What was read.
    used, excess
        The records of it that had to be looked at, and what these weigh beyond one each.
    """

    def __init__(self, form: Form) -> None:
        self._form = form
        self._seen = form.identities.new_set()
        self.taken: list[pa.RecordBatch] = []
        self.found = 0
        self.segments = 0
        self.records = 0
        self.used = 0
        self.excess = 0

    def reserve(self, windows: int) -> None:
        """Makes room for so many at once."""
        self._seen.reserve_windows(windows)

    def count(self, segment: Segment) -> None:
        """Takes note of a segment that is read."""
        self.segments += 1
        self.records += records_of(segment.footer)

    def take(self, footprints: pa.RecordBatch, batch: int, excess: int) -> int:
        """Takes those whose windows were not met yet; returns how many these are."""
        self.used += footprints.num_rows
        self.excess += excess
        is_new = self._form.identities.add(footprints, self._seen)
        count = int(is_new.sum())
        if not count:
            return 0
        if count < footprints.num_rows:
            footprints = chosen_rows(footprints, is_new)
        ages = arrow_fixed(np.full(count, batch, dtype=np.int64), pa.int64())
        self.taken.append(footprints.append_column(FOOTPRINT, ages))
        self.found += count
        return count

    def close(self, segment: Segment) -> None:
        """Leaves alone from now on what a segment has closed; raises `DamagedSegment`.

        Within a batch footprints are newer than results: they describe its end.
        """
        kind = FrameKind.CLOSED if FrameKind.CLOSED in segment.frames else FrameKind.RESULTS
        closed = segment.table(kind)
        if closed is None or not closed.num_rows:
            return
        rows = contiguous(closed)
        trouble = self._form.identities.trouble(rows)
        if trouble:
            raise segment.mismatch(kind, trouble)
        self.used += rows.num_rows
        self._form.identities.add(rows, self._seen)

    def footprints_of(self, segment: Segment) -> pa.RecordBatch | None:
        """The footprints of a segment, if they can be loaded; raises `DamagedSegment`."""
        table = segment.table(FrameKind.FOOTPRINTS)
        if table is None:
            return None
        rows = contiguous(table)
        trouble = self._form.trouble(rows, segment.batch)
        if trouble:
            raise segment.mismatch(FrameKind.FOOTPRINTS, trouble)
        return rows

    def snapshot_at(
        self, snapshots: StreamLog, output: StreamLog, batch: int
    ) -> tuple[pa.RecordBatch | None, str]:
        """The windows in the snapshot of a batch, or why it cannot be used."""
        try:
            # Not by its name alone: the file may be left over of a trim, and soon be deleted.
            (segment,) = snapshots.read_from(batch, batch)
            _, checksum = output.read_footer(batch)
            footprints = self.footprints_of(segment)
            if footprints is None:
                raise segment.mismatch(FrameKind.FOOTPRINTS, "is missing")
        except (DamagedSegment, MissingSegment) as error:
            return None, f"Its snapshot cannot be used: {error.what}"
        if not is_after(segment.footer, checksum):
            return None, "Its snapshot is the state after another segment"
        return footprints, ""

    def take_snapshot(self, footprints: pa.RecordBatch, batch: int, excess: int) -> int:
        """Takes the windows of a snapshot."""
        self.segments += 1
        self.records += footprints.num_rows
        return self.take(footprints, batch, excess)


def is_after(snapshot: Footer, output_checksum: int) -> bool:
    """Whether a snapshot is the state after the output segment with this checksum."""
    return snapshot.attributes.get(OUTPUT_CHECKSUM) == output_checksum


def records_of(footer: Footer) -> int:
    """Records of an output segment: what a recovery reads. Late rows and tentative results are
    not for it."""
    return sum(count for kind, count in footer.rows.items() if kind not in _NOT_READ)
