"""Batches that a query commits again: those that are in the stream, and those that are not."""

from __future__ import annotations

from collections.abc import Sequence

from trailmark.errors import BatchGoesBackward, DamagedSegment, InputDiffers, MissingSegment
from trailmark.log import StreamLog
from trailmark.records import NO_BATCH
from trailmark.streams.files import DataFile, rows_of
from trailmark.streams.manifest import Manifest, read_manifest
from trailmark.values import dataclass

_FIX = (
    "The query's checkpoint was deleted or rolled back, or lost its newest files in a power "
    "failure. Restore it. If that cannot be, start the query with a new checkpoint, from where the "
    "stream ends."
)


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """A batch by the name of its query and the query's own number of it."""

    writer: str
    number: int
    files: Sequence[DataFile]
    #: Whether a batch that comes again must have the rows that it had.
    is_compared: bool = True

    def is_in(self, log: StreamLog, newest: Manifest | None) -> bool:
        """Whether the stream has it, as far as its newest manifest; refused if with other rows.

        Spark begins a batch when the one before is committed, so after a crash it repeats the
        newest, with the same rows, in whatever order and parts. Anything else was planned anew.
        """
        last = NO_BATCH if newest is None else newest.writers.get(self.writer, NO_BATCH)
        if newest is None or self.number > last:
            return False
        if self.number < last:
            raise BatchGoesBackward(
                f"Batch {self.number} of query {self.writer} cannot be written: the stream has its "
                f"batches up to {last}.",
                where=log.directory,
                fix=_FIX,
            )
        if self.is_compared:
            self._check_rows(log, newest)
        return True

    def _check_rows(self, log: StreamLog, newest: Manifest) -> None:
        given, before = rows_of(self.files), newest.fingerprints.get(self.writer)
        if before is not None and before[0] == self.number:
            is_same, rows = given == before[1], before[1].rows
        else:
            # Committed by a Trailmark that kept no fingerprints: only rows can be counted, and
            # where the batch has been trimmed, not even those.
            counted = _count_rows(log, newest, self.writer)
            is_same, rows = counted in (None, given.rows), counted or 0
        if not is_same:
            raise InputDiffers(
                f"Batch {self.number} of query {self.writer} is in the stream with other rows "
                f"({rows:,} then, {given.rows:,} now).",
                where=log.directory,
                fix=f"{_FIX} If the query computes other values every time (rand, uuid, sums of "
                "floats), set the option repeatedBatch to 'keep': what is in the stream stands.",
            )


def _count_rows(log: StreamLog, newest: Manifest, writer: str) -> int | None:
    """Rows of the last batch of a query; None if it cannot be found any more."""
    number, found = newest.writers[writer], newest
    while found.batch:
        try:
            before = read_manifest(log, found.batch - 1)
        except (DamagedSegment, MissingSegment):
            return None
        if before.writers.get(writer) != number:
            break
        found = before
    return found.rows
