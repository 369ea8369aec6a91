"""Deleting the old end of a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trailmark.log.catalog import Catalog
from trailmark.log.names import LogFile
from trailmark.log.reader import LogReader
from trailmark.records import NO_BATCH


@dataclass(frozen=True, slots=True)
class TrimReport:
    """What a trim deleted, and which batch is the oldest now (NO_BATCH in an empty log)."""

    deleted: Sequence[str]
    bytes: int
    oldest: int


def files_before(catalog: Catalog, before: int) -> list[LogFile]:
    """The files that hold only batches before the given one, oldest first.

    The newest batch stays whatever is asked for: the next segment links to it.
    """
    before = min(before, catalog.newest())
    return [file for file in catalog.files if file.last < before]


def trim_log(reader: LogReader, before: int) -> TrimReport:
    """Delete the files that hold only batches before the given one, oldest first.

    In this order an interrupted trim leaves a shorter trim, not a hole.
    """
    catalog = reader.look()
    gone = files_before(catalog, before)
    for file in gone:
        reader.storage.delete(reader.path(file))
    kept = catalog.files[len(gone) :]
    oldest = min((file.first for file in kept), default=NO_BATCH)
    return TrimReport([file.name for file in gone], sum(file.size for file in gone), oldest)
