"""Commit marks: which batches the query's own checkpoint says are done.

A batch of a bucket is committed once a later one is in the log, so a mark is only needed for the
newest; a few are kept for whoever looks at several buckets one after another, and to notice a
checkpoint that commits a batch for the second time.
"""

from __future__ import annotations

from trailmark.errors import BatchGoesBackward
from trailmark.log import Storage
from trailmark.records import NO_BATCH

COMMITS = "commits"
#: Says that a batch was committed twice; while it is there, no batch is taken.
ROLLED_BACK = "rolled-back"
_KEPT = 64
_DIGITS = 20


def mark_committed(storage: Storage, batch: int) -> bool:
    """Says that a batch is committed; False if that was said before."""
    is_new = storage.publish(_path(batch), [b"committed\n"])
    if batch % _KEPT == 0:
        for marked in _marked(storage):
            if marked < batch - _KEPT:
                storage.delete(_path(marked))
    return is_new


def newest_mark(storage: Storage) -> int:
    """The newest batch that is marked, or NO_BATCH."""
    return max(_marked(storage), default=NO_BATCH)


def _marked(storage: Storage) -> list[int]:
    """The batches that are marked; files with other names are passed over."""
    names = [entry.name for entry in storage.list(COMMITS)]
    return [int(name) for name in names if len(name) == _DIGITS and name.isdecimal()]


def mark_rolled_back(storage: Storage, batch: int) -> None:
    """Says that a batch was committed twice: from now on the logs take no batch."""
    storage.publish(ROLLED_BACK, [f"batch {batch} was committed twice\n".encode()])


def check_not_rolled_back(storage: Storage) -> None:
    """Refuses to go on with logs whose query has gone back.

    A sink that has a batch already skips it without asking for its rows. So the logs themselves
    see nothing of a query that goes back, except that the rows of such batches never come.
    """
    if not storage.exists(ROLLED_BACK):
        return
    why = bytes(storage.read(ROLLED_BACK)).decode(errors="replace").strip()
    raise BatchGoesBackward(
        f"The query has gone back: {why}.",
        where=ROLLED_BACK,
        fix="The query's checkpoint was deleted or rolled back. Restore it and delete this file, "
        "or start with a new path and a new checkpoint.",
    )


def _path(batch: int) -> str:
    return f"{COMMITS}/{batch:0{_DIGITS}d}"
