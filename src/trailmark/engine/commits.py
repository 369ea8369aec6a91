"""Commit marks: which batches the query's own checkpoint says are done.

A batch of a bucket is committed once a later one is in the log, so a mark is only needed for the
newest, and only by those who cannot read Spark's own commit log (`spark_commits`); a few are kept
for whoever looks at several buckets one after another.

Marks also tell a query whose checkpoint was rolled back. A run of it, from its start to its end,
knows the newest mark that was there when it began. Whoever commits an older batch than that has
gone back; nobody else has:

- a run that tells of a batch twice, to two listeners or because an answer was lost, tells nothing
  new;
- a run that commits the newest marked batch again repeats it after a crash, as Spark does;
- a run that was overtaken, and tells late of a batch that its successor has done again, began
  before the later marks were made.
"""

from __future__ import annotations

from trailmark.errors import BatchGoesBackward
from trailmark.log import Storage
from trailmark.log.names import LARGEST_BATCH
from trailmark.records import NO_BATCH

COMMITS = "commits"
#: Says that the query has gone back; while it is there, no batch is taken.
ROLLED_BACK = "rolled-back"
_KEPT = 64
_DIGITS = 20


class RunMarks:
    """Marks what one run of a query commits. To be made before the run commits anything."""

    def __init__(self, storage: Storage, run: str) -> None:
        self._storage = storage
        self._run = run
        self._marked_before = newest_mark(storage)

    def commit(self, batch: int) -> bool:
        """Says that a batch is committed; False if the query has gone back."""
        if batch < self._marked_before:
            mark_rolled_back(self._storage, batch, self._marked_before, self._run)
            return False
        mark_committed(self._storage, batch, self._run)
        return True


def mark_committed(storage: Storage, batch: int, run: str) -> None:
    """Says that a run has committed a batch; who says so first is in the mark."""
    storage.publish(_path(batch), [f"committed by run {run}\n".encode()])
    if batch % _KEPT == 0:
        for marked in _marked(storage):
            if marked < batch - _KEPT:
                storage.delete(_path(marked))


def newest_mark(storage: Storage) -> int:
    """The newest batch that is marked, or NO_BATCH."""
    return max(_marked(storage), default=NO_BATCH)


def _marked(storage: Storage) -> list[int]:
    """The batches that are marked; files with other names are passed over."""
    names = [entry.name for entry in storage.list(COMMITS)]
    found = [int(name) for name in names if len(name) == _DIGITS and name.isdecimal()]
    return [batch for batch in found if batch <= LARGEST_BATCH]


def mark_rolled_back(storage: Storage, batch: int, newest: int, run: str) -> None:
    """Says that a query has gone back: from now on the logs take no batch."""
    why = f"batch {batch} was committed again by run {run}, which began after batch {newest} was"
    storage.publish(ROLLED_BACK, [f"{why}\n".encode()])


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
