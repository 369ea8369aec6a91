"""Snapshots that are written behind: copies of all open windows, in files of their own.

A snapshot counts once its file is there. Until then a recovery builds on the one before, which is
why that one is kept.
"""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa

from trailmark.checkpoint.policy import FullSnapshot, Policy
from trailmark.errors import StorageError
from trailmark.log import Appending, StreamLog
from trailmark.records import START_OF_LOG, Fingerprint, FrameKind

_log = logging.getLogger("trailmark")


class SnapshotWriter:
    """Writes the snapshots of one bucket, one at a time, beside the batches."""

    def __init__(self, log: StreamLog) -> None:
        self.log = log
        self._under_way: Appending | None = None

    def find_stored(self, policy: Policy, notes: dict[str, Any]) -> tuple[int, int] | None:
        """The newest snapshot that is safely stored, and how many windows it holds.

        The batch after a snapshot was begun may run in another process than the one that writes
        it, so the file alone tells.
        """
        if not isinstance(policy, FullSnapshot) or not policy.asynchronous:
            return None
        pending = notes.get("pending")
        if pending is not None and self.log.contains(pending[0]):
            self.log.settle(pending[0])
            notes["stored"] = pending
            del notes["pending"]
        stored = notes.get("stored")
        return None if stored is None else (stored[0], stored[1])

    @property
    def is_busy(self) -> bool:
        return self._under_way is not None and not self._under_way.is_done()

    def begin(self, batch: int, windows: pa.RecordBatch, notes: dict[str, Any]) -> None:
        """Begins to write the state after a batch; it is a copy that nobody changes."""
        self.collect()
        self._under_way = self.log.begin_append(
            batch,
            [(FrameKind.FOOTPRINTS, windows)],
            previous=START_OF_LOG,
            fingerprint=Fingerprint(windows.num_rows, 0),
        )
        notes["pending"] = [batch, windows.num_rows]

    def collect(self) -> None:
        """Waits for the snapshot under way. One that failed is only missed: the next will do."""
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return
        try:
            under_way.result()
        except StorageError as error:
            _log.warning("the snapshot of batch %d was not written: %s", under_way.batch, error)

    def close(self) -> None:
        self.collect()
        self.log.close()
