"""Snapshots that are written behind: copies of all open windows, in files of their own.

A snapshot counts once its file is there. Until then a recovery builds on the one before, which is
why that one is kept. It names the output segment that it is the state after: where a power failure
took that segment and left the snapshot, the batch is done again, perhaps in another order.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

import pyarrow as pa

from trailmark.checkpoint.standing import StoredSnapshot
from trailmark.engine.notes import BucketNotes
from trailmark.errors import LogError, StorageError, UnknownFormat
from trailmark.log import Appending, StreamLog
from trailmark.records import START_OF_LOG, Fingerprint, FrameKind, SegmentLink
from trailmark.recovery.gathered import OUTPUT_CHECKSUM, is_after

_log = logging.getLogger("trailmark")


class SnapshotWriter:
    """Writes the snapshots of one bucket, one at a time, beside the batches."""

    def __init__(self, log: StreamLog) -> None:
        self.log = log
        self._under_way: Appending | None = None

    def find_stored(self, notes: BucketNotes) -> StoredSnapshot | None:
        """The snapshot that is safely stored since the last batch.

        The batch after a snapshot was begun may run in another process than the one that writes
        it, so the file alone tells.
        """
        if notes.pending is None or not self.log.contains(notes.pending[0]):
            return None
        (batch, output_checksum), notes.pending = notes.pending, None
        return self._stored(batch, output_checksum, notes.pending_excess)

    def _stored(self, batch: int, output_checksum: int, excess: int) -> StoredSnapshot | None:
        """The file if it is the snapshot that was begun, and not one that was left over; then it
        survives a power failure from now on."""
        try:
            footer, _ = self.log.read_footer(batch)
            if not is_after(footer, output_checksum):
                return None
            self.log.settle(batch)
        except UnknownFormat:
            raise
        except LogError as error:
            _log.warning("the snapshot of batch %d cannot be used: %s", batch, error)
            return None
        return StoredSnapshot(batch, footer.rows[FrameKind.FOOTPRINTS], excess)

    @property
    def is_busy(self) -> bool:
        return self._under_way is not None and not self._under_way.is_done()

    def begin(
        self, output: SegmentLink, windows: pa.RecordBatch, excess: int, notes: BucketNotes
    ) -> None:
        """Begins to write the state after an output segment; it is a copy that nobody changes.
        ``excess`` is what its records weigh beyond one each."""
        self.collect()
        self._under_way = self.log.begin_append(
            output.batch,
            [(FrameKind.FOOTPRINTS, windows)],
            previous=START_OF_LOG,
            fingerprint=Fingerprint(windows.num_rows, 0),
            attributes={OUTPUT_CHECKSUM: output.checksum},
        )
        self._under_way.on_failure(partial(_warn, output.batch))
        notes.pending = (output.batch, output.checksum)
        notes.pending_excess = excess

    def collect(self) -> None:
        """Waits for the snapshot under way. One that failed is only missed: the next will do, and
        its thread has said so."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            with suppress(LogError, StorageError):
                under_way.result()

    def close(self) -> None:
        self.collect()
        self.log.close()


def _warn(batch: int, error: BaseException) -> None:
    _log.warning("the snapshot of batch %d was not written: %s", batch, error)
