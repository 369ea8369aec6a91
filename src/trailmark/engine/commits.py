"""Commit marks: which batches the query's own checkpoint says are done.

A batch of a bucket is committed once a later one is in the log, so a mark is only needed for the
newest; a few are kept for whoever looks at several buckets one after another.
"""

from __future__ import annotations

from trailmark.log import Storage
from trailmark.records import NO_BATCH

_DIRECTORY = "commits"
_KEPT = 64


def mark_committed(storage: Storage, batch: int) -> None:
    """Says that a batch is committed. Marking it again changes nothing."""
    storage.publish(_path(batch), [b"committed\n"])
    if batch % _KEPT == 0:
        for entry in storage.list(_DIRECTORY):
            if f"{_DIRECTORY}/{entry.name}" < _path(batch - _KEPT):
                storage.delete(f"{_DIRECTORY}/{entry.name}")


def newest_mark(storage: Storage) -> int:
    """The newest batch that is marked, or NO_BATCH."""
    return max((int(entry.name) for entry in storage.list(_DIRECTORY)), default=NO_BATCH)


def _path(batch: int) -> str:
    return f"{_DIRECTORY}/{max(batch, 0):020d}"
