"""Deleting the old end of a log.

Files are deleted behind a *mark*, an empty file that says in its name where the log begins::

    1 publish the mark, synced
    2 delete the files before it, and older marks, unsynced

After 1 these files are no part of the log any more, whichever of them are still there, or come back
after a power failure. So they need not be deleted one by one, each on disk before the next. What is
left over of them the next trim deletes. A merge that had read some of them publishes them again, in
a pack; there, too, the mark hides them.

Before 1, the footers of these files are read: a segment of a later format is not deleted.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from trailmark.log.catalog import Catalog
from trailmark.log.names import LogFile, mark_name, segment_name
from trailmark.log.reader import LogReader
from trailmark.log.unknown import refuse_unknown
from trailmark.records import NO_BATCH
from trailmark.values import dataclass

#: A repeated trim lists the directory at least so often.
_LIST_EVERY = 16


@dataclass(frozen=True, slots=True)
class TrimReport:
    """What a trim deleted, and which batch is the oldest now (NO_BATCH in an empty log)."""

    deleted: Sequence[str]
    bytes: int
    oldest: int


def files_before(catalog: Catalog, before: int) -> list[LogFile]:
    """The files that hold only batches before the given one, oldest first; left-overs, too.

    The newest batch stays whatever is asked for: the next segment links to it. So does a segment
    that a pack which has to stay holds as well: a merge will delete it.
    """
    before = min(before, catalog.newest())
    start = min((file.first for file in catalog.files if file.last >= before), default=NO_BATCH)
    return [*catalog.left_over, *(file for file in catalog.files if file.last < start)]


def trim_log(
    reader: LogReader, before: int, most: int | None = None, *, recycles: bool = False
) -> TrimReport:
    """Delete the files that hold only batches before the given one.

    With ``most``, no more files than that, the oldest: the others stay for the next trim. However a
    trim is interrupted, it leaves a shorter trim or a whole one, not a hole. ``recycles`` leaves
    the space of segments to those that are written later.
    """
    catalog = reader.look()
    gone = files_before(catalog, before)[:most]
    refuse_unknown(reader, set(gone).difference(catalog.left_over))
    start = start_without(catalog, gone, before)
    if gone or start > catalog.start:
        # What is left over may be a name that came back, for what is another segment by now.
        recycled = set(catalog.segments.values()) if recycles else set()
        # Where only left-overs go, the mark is there: whoever published it may not have synced it.
        _delete_behind_mark(reader, catalog, start, gone, recycled)
    kept = set(catalog.files).difference(gone)
    oldest = min((max(file.first, start) for file in kept), default=NO_BATCH)
    return TrimReport([file.name for file in gone], sum(file.size for file in gone), oldest)


def start_without(catalog: Catalog, gone: Sequence[LogFile], before: int) -> int:
    """Where the log begins when these files are gone, as batches before the given one may be.

    Batches that were lost count as trimmed when the log is trimmed up to the next one.
    """
    kept = set(catalog.files).difference(gone)
    first = min((file.first for file in kept), default=NO_BATCH)
    reached = gone[-1].last + 1 if gone else 0
    return max(catalog.start, reached, first if first <= before else 0)


class RepeatedTrim:
    """Trims a log over and over, for whoever goes on writing it: the next segments are written over
    the last that were trimmed.

    What an earlier trim left is known by its name: the segments from there on. Files under other
    names, packs and what was left over, are looked for only now and then, for the time that a
    listing takes grows with the number of files.
    """

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._oldest = NO_BATCH
        self._unlisted = 0

    def trim(self, before: int, most: int) -> None:
        """`trim_log`, up to a batch before the newest."""
        if self._oldest == NO_BATCH or self._unlisted == _LIST_EVERY:
            self._oldest = trim_log(self._reader, before, most, recycles=True).oldest
            self._unlisted = 0
            return
        self._unlisted += 1
        before = min(before, self._oldest + most)
        if before > self._oldest:
            self._delete_segments(before)

    def _delete_segments(self, before: int) -> None:
        storage = self._reader.storage
        gone = [LogFile(segment_name(b), b, b, 0) for b in range(self._oldest, before)]
        refuse_unknown(self._reader, gone)
        _publish_mark(self._reader, before)
        for file in gone:
            storage.recycle(self._reader.path(file))
        storage.delete(_mark_path(self._reader, self._oldest), synced=False)
        self._oldest = before


def finish_trim(reader: LogReader, catalog: Catalog) -> list[str]:
    """Delete what is left over of earlier trims, oldest first, each for good; the paths."""
    paths = [reader.path(file) for file in catalog.left_over]
    for path in paths:
        reader.storage.delete(path)
    return paths


def move_mark_back(reader: LogReader, catalog: Catalog, start: int) -> list[str]:
    """Let the log begin with an earlier batch, once trims have been finished; the deleted marks.

    For whoever is going to publish batches that the marks would hide. What was before them stays
    gone, as the mark of the earlier batch says.
    """
    # Syncs the directory: what was trimmed has to be gone for good before its mark goes.
    _publish_mark(reader, start)
    paths = [_mark_path(reader, mark) for mark in catalog.marks if mark > start]
    for path in paths:
        reader.storage.delete(path)
    return paths


def _delete_behind_mark(
    reader: LogReader,
    catalog: Catalog,
    start: int,
    deleted: Sequence[LogFile],
    recycled: Set[LogFile],
) -> None:
    _publish_mark(reader, start)
    for file in deleted:
        if file in recycled:
            reader.storage.recycle(reader.path(file))
        else:
            reader.storage.delete(reader.path(file), synced=False)
    for mark in catalog.marks:
        if mark < start:
            reader.storage.delete(_mark_path(reader, mark), synced=False)


def _publish_mark(reader: LogReader, batch: int) -> None:
    # Synced whatever the durability: the deletions that follow may be on disk at once.
    reader.storage.publish(_mark_path(reader, batch), [], force_sync=True)


def _mark_path(reader: LogReader, batch: int) -> str:
    return f"{reader.directory}/{mark_name(batch)}"
