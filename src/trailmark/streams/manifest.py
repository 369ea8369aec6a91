"""Manifests: which data files a batch of a written stream consists of.

They are the segments of one log, without rows: the batch is in the attributes of the footer. So a
batch is committed by publishing one file, batches have an order and are linked to one another, and
finding a time, merging, trimming and verifying are those of any log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from trailmark.errors import MissingSegment
from trailmark.log import Footer, OperatorMeta, Storage, StreamLog, TimeRange
from trailmark.log.clock import Clock, wall_clock_us
from trailmark.log.damage import Origin
from trailmark.log.footer import LARGEST_DIGEST
from trailmark.log.json_text import object_of, whole
from trailmark.log.names import LARGEST_BATCH
from trailmark.records import NO_BATCH, START_OF_LOG, Fingerprint, SegmentLink, Stream
from trailmark.settings import LogSettings
from trailmark.streams.boundaries import Boundaries
from trailmark.streams.files import DataFile, rows_of
from trailmark.values import dataclass

if TYPE_CHECKING:
    from trailmark.streams.repeats import QueryBatch


@dataclass(frozen=True, slots=True)
class Manifest:
    """A batch of a written stream.

    Parameters
    ----------
    batch
        Its place in the stream.
    files
        What it consists of.
    written_us
        When it was committed.
    writers
        The last batch of every query that has written to the stream, in the query's own numbers:
        what a query commits a second time is in the stream already.
    total_rows, total_bytes
        Of the stream from its beginning to the end of this batch, trimmed ones included.
    fingerprints
        The number of the last batch of every query, and what was in it: a query that commits
        another one under that number has lost its place. None of those that were last committed by
        a Trailmark which did not keep them.
    boundaries
        Up to which time the stream is complete; None if nobody has promised anything.
    """

    batch: int
    files: Sequence[DataFile]
    written_us: int
    writers: Mapping[str, int]
    total_rows: int
    total_bytes: int
    fingerprints: Mapping[str, tuple[int, Fingerprint]] = field(default_factory=dict)
    boundaries: Boundaries | None = None

    @property
    def rows(self) -> int:
        """How many rows the batch has."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """How many bytes are in its files."""
        return sum(file.bytes for file in self.files)

    @classmethod
    def of(cls, footer: Footer, origin: Origin) -> Manifest:
        """The manifest that a footer holds."""
        stored = footer.attributes
        try:
            files = stored["files"]
            digests = stored.get("digests", [0] * len(files))
            writers = object_of(stored["writers"])
            known = object_of(stored.get("fingerprints", {}))
            promised = stored.get("boundaries")
            return cls(
                footer.batch,
                tuple(DataFile.from_json(*each) for each in zip(files, digests, strict=True)),
                footer.written_us,
                {query: whole(n, NO_BATCH, LARGEST_BATCH) for query, n in writers.items()},
                whole(stored["total_rows"], 0, 2**63 - 1),
                whole(stored["total_bytes"], 0, 2**63 - 1),
                {query: _rows_from_json(*each) for query, each in known.items()},
                None if promised is None else Boundaries.from_json(promised),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise origin.mismatch(0, f"this is no manifest of a batch ({error!r})") from error


def _rows_from_json(batch: object, rows: object, digest: object) -> tuple[int, Fingerprint]:
    found = Fingerprint(whole(rows, 0, 2**63 - 1), whole(digest, 0, LARGEST_DIGEST))
    return whole(batch, NO_BATCH, LARGEST_BATCH), found


def manifest_attributes(
    files: Sequence[DataFile],
    before: Manifest | None,
    given: QueryBatch | None,
    boundaries: Boundaries | None = None,
) -> dict[str, Any]:
    """The attributes of a new batch's footer; ``given`` if it is a query's."""
    rows, size = (0, 0) if before is None else (before.total_rows, before.total_bytes)
    writers = {} if before is None else dict(before.writers)
    fingerprints = {} if before is None else dict(before.fingerprints)
    if given is not None:
        writers[given.writer] = given.number
        fingerprints[given.writer] = (given.number, rows_of(files))
    promised = {} if boundaries is None else {"boundaries": boundaries.to_json()}
    return {
        **promised,
        "digests": [file.digest for file in files],
        "files": [file.to_json() for file in files],
        "fingerprints": {
            writer: [number, each.rows, each.digest]
            for writer, (number, each) in fingerprints.items()
        },
        "total_bytes": size + sum(file.bytes for file in files),
        "total_rows": rows + sum(file.rows for file in files),
        "writers": writers,
    }


def joined_times(files: Sequence[DataFile]) -> TimeRange | None:
    """From the earliest to the latest time of all files; None if none of them has a time."""
    return joined(file.time_range for file in files)


def joined(ranges: Iterable[TimeRange | None]) -> TimeRange | None:
    """From the earliest to the latest time of all ranges; None if there is no time at all."""
    times = [each for each in ranges if each is not None]
    if not times:
        return None
    return TimeRange(min(each.min_us for each in times), max(each.max_us for each in times))


def manifest_log(
    storage: Storage,
    meta: OperatorMeta,
    settings: LogSettings | None = None,
    clock: Clock = wall_clock_us,
) -> StreamLog:
    """The log of a stream's batches."""
    return StreamLog(storage, Stream.BATCHES, meta.log_id, 0, settings, clock)


def read_manifest(log: StreamLog, batch: int) -> Manifest:
    """The manifest of a batch."""
    footer, _ = log.read_footer(batch)
    return Manifest.of(footer, Origin(log.reader.segment_path(batch)))


def newest_manifest(log: StreamLog) -> tuple[Manifest | None, SegmentLink]:
    """The newest manifest, if there is one, and what the next one is linked to."""
    while True:
        batch = log.newest()
        if batch == NO_BATCH:
            return None, START_OF_LOG
        try:
            footer, checksum = log.read_footer(batch)
        except MissingSegment:
            if log.newest() == batch:
                raise
            continue  # others have committed, and trimmed it, since it was the newest
        return Manifest.of(footer, Origin(log.directory)), SegmentLink(batch, checksum)
