"""Reading a log in order, with every link between two segments checked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from trailmark.errors import DamagedSegment, MissingSegment
from trailmark.log.reader import LogReader
from trailmark.log.segment import Segment
from trailmark.records import SegmentLink
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a segment that is damaged or missing, so that a walk can go on past it."""

    batch: int
    error: DamagedSegment | MissingSegment


def read_forward(reader: LogReader, first: int | None, last: int | None) -> Iterator[Segment]:
    """Segments from ``first`` (the oldest if None) to ``last`` (the newest if None), in order.

    Nothing is skipped: a missing, damaged or unlinked segment raises. Reading from behind the
    newest batch on yields nothing, and so does an empty range.
    """
    if last is not None and last < (0 if first is None else first):
        return
    batches = reader.look().batches()
    start = 0 if first is None else bisect_left(batches, first)
    end = len(batches) if last is None else bisect_left(batches, last + 1)
    before: Segment | None = None
    for batch in batches[start:end]:
        segment = reader.read(batch)
        if before is not None:
            _check_link(segment, before.link)
        elif first is not None and batch != first:
            _check_nothing_between(segment, first)
        yield segment
        before = segment
    if last is not None and (before is None or before.batch != last):
        raise _missing(reader, last)


def read_backward(reader: LogReader, newest: int) -> Iterator[Segment | Unreadable]:
    """Segments from ``newest`` down to the oldest one; damaged and missing ones are named, not
    raised. One that is unknown is raised: nobody may go around it.

    A whole segment that is not the one its successor links to counts as damaged. The walk ends at
    the start of the log, or where it was trimmed.
    """
    batches = reader.look().batches()
    end = bisect_left(batches, newest + 1)
    expected: SegmentLink | None = None
    if batches[end - 1 : end] != [newest]:
        yield Unreadable(newest, _missing(reader, newest))
    for batch in reversed(batches[:end]):
        if expected is not None and expected.batch > batch:
            yield Unreadable(expected.batch, _missing(reader, expected.batch))
            expected = None
        found = _read_linked(reader, batch, expected)
        yield found
        expected = found.footer.previous if isinstance(found, Segment) else None


def _read_linked(
    reader: LogReader, batch: int, expected: SegmentLink | None
) -> Segment | Unreadable:
    try:
        segment = reader.read(batch)
        if expected is not None and not expected.names(segment.link):
            raise segment.origin.mismatch(0, "the next segment was written after another one")
    except (DamagedSegment, MissingSegment) as error:
        return Unreadable(batch, error)
    return segment


def _check_link(segment: Segment, before: SegmentLink) -> None:
    previous = segment.footer.previous
    if previous.names(before):
        return
    if before.batch < previous.batch < segment.batch:
        raise _missing_link(segment)
    raise segment.origin.mismatch(
        0,
        f"it follows batch {previous.batch} with checksum {previous.checksum:08x}, but the log "
        f"holds batch {before.batch} with checksum {before.checksum:08x} before it",
    )


def _check_nothing_between(segment: Segment, first: int) -> None:
    if segment.footer.previous.batch >= first:
        raise _missing_link(segment)


def _missing_link(segment: Segment) -> MissingSegment:
    return MissingSegment(
        f"Batch {segment.footer.previous.batch}, which batch {segment.batch} follows, is not in "
        "the log.",
        where=segment.origin.path,
        fix="If it was not trimmed on purpose, bring it back from a backup.",
    )


def _missing(reader: LogReader, batch: int) -> MissingSegment:
    return MissingSegment(
        f"Batch {batch} is not in the log.",
        where=reader.segment_path(batch),
        fix="If it was not trimmed on purpose, bring it back from a backup.",
    )
