"""The rows that a decision releases, in their order."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from trailmark.settings import MIB
from trailmark.streams.boundaries import later
from trailmark.streams.files import DataFile
from trailmark.streams.times import EARLIEST, Span, first_in_unit
from trailmark.streams.union.amounts import Amounts
from trailmark.streams.view import Chunk, StreamView, rows_from
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")

#: Bytes of files that are put in order at once, about.
_BYTES_AT_ONCE = 16 * MIB
#: Tasks that a batch is worth, at most.
_MOST_STRETCHES = 1024
#: How often a byte is read on the average, at most.
_MOST_OFTEN = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A file with rows that may be released, of the stream at a place among the inputs.

    Rows before ``first_us`` are late, or were released before.
    """

    place: int
    batch: int
    file: DataFile
    first_us: int | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of what a decision releases: the rows from a time to before another, from these
    files. Those of the next stretch come after them."""

    first_us: int | None
    end_us: int
    pieces: tuple[Piece, ...]

    @property
    def places(self) -> list[int]:
        """Which inputs it reads."""
        return sorted({piece.place for piece in self.pieces})


def stretches(
    pieces: Sequence[Piece], first_us: int | None, end_us: int, size: int = _BYTES_AT_ONCE
) -> list[Stretch]:
    """What is read one after another, or side by side: each about as large as it is worth."""
    if not pieces:
        return []
    cuts = _cuts(pieces, first_us, end_us, size)
    inside: list[list[Piece]] = [[] for _ in range(len(cuts) + 1)]
    for piece, (first, last) in zip(pieces, _reached(pieces, cuts), strict=True):
        for place in range(first, last + 1):
            inside[place].append(piece)
    bounds = pairwise([first_us, *cuts, end_us])
    return [
        Stretch(begin, end, tuple(held))
        for (begin, end), held in zip(bounds, inside, strict=True)
        if held and end is not None
    ]


def _cuts(pieces: Sequence[Piece], first_us: int | None, end_us: int, size: int) -> list[int]:
    """Times between which there is about the same amount.

    A file that reaches over several stretches is read for each of them: where that is too often,
    stretches are fewer and larger.
    """
    held = [(each.file.time_range, each.file.bytes) for each in pieces if each.file.time_range]
    amounts = Amounts(held, first_us, end_us)
    most = _MOST_OFTEN * sum(each.file.bytes for each in pieces)
    count = min(int(amounts.total // size) + 1, _MOST_STRETCHES)
    while count > 1:
        found = (amounts.time_of(amounts.total * n / count) for n in range(1, count))
        times = sorted({time for time in found if time is not None})
        cuts = [time for time in times if amounts.first_us < time < end_us]
        reached = zip(pieces, _reached(pieces, cuts), strict=True)
        if sum(each.file.bytes * (last - first + 1) for each, (first, last) in reached) <= most:
            return cuts
        count //= 2
    return []


def _reached(pieces: Sequence[Piece], cuts: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last stretch that each file has rows in."""
    return [
        (bisect_right(cuts, begin_us), bisect_right(cuts, last_us))
        for begin_us, last_us in map(_range, pieces)
    ]


def _range(piece: Piece) -> tuple[int, int]:
    times = piece.file.time_range
    assert times is not None, "files without times are in no piece"
    return times.min_us, times.max_us


def read_stretch(
    stretch: Stretch,
    views: Mapping[int, StreamView],
    columns: Sequence[str],
    time: str,
    shown: Callable[[pa.RecordBatch, int], pa.RecordBatch],
) -> pa.Table | None:
    """The rows of a stretch, in order; None if there are none.

    Parameters
    ----------
    views
        The streams by their places in the union, those that the stretch reads.
    columns, time
        What is read of them, and which of the columns says when a row was.
    shown
        Makes of rows, and the place of their stream, what is wanted of them: the same columns for
        all streams.
    """
    parts = [
        shown(rows, piece.place)
        for piece in stretch.pieces
        for rows in _rows_of(piece, stretch, views[piece.place], columns, time)
    ]
    if not parts:
        return None
    table = pa.Table.from_batches(parts)
    # Parts are in the order of inputs, batches and files, which stays among equal times.
    times = table[time].cast(pa.int64()).to_numpy()
    if (times[1:] >= times[:-1]).all():
        return table
    return table.take(pa.array(np.argsort(times, kind="stable")))


def _rows_of(
    piece: Piece, stretch: Stretch, view: StreamView, columns: Sequence[str], time: str
) -> Iterator[pa.RecordBatch]:
    first_us = later(stretch.first_us, piece.first_us)
    if first_us is not None and first_us >= stretch.end_us:
        return
    file = piece.file
    chunk = Chunk(piece.batch, file.bucket, file.rows, file.bytes, file)
    timeless = 0
    for rows in view.read(chunk, columns, Span()):
        timeless += rows.column(time).null_count
        yield _between(rows, time, first_us, stretch.end_us)
    begin_us, _ = _range(piece)
    # A file may be read for several stretches; it begins in one of them.
    if timeless and begin_us < stretch.end_us and not _is_before(begin_us, stretch.first_us):
        _log.warning(
            "%s: %d rows have no time in column %s, so no place in the order; they are left out.",
            file.path,
            timeless,
            time,
        )


def _between(rows: pa.RecordBatch, time: str, first_us: int | None, end_us: int) -> pa.RecordBatch:
    """The rows from one time to before another, in whatever unit they have theirs."""
    unit = rows.column(time).type.unit
    first = EARLIEST if first_us is None else first_in_unit(first_us, unit)
    return rows_from(rows, time, first, first_in_unit(end_us, unit) - 1)


def _is_before(time_us: int, than_us: int | None) -> bool:
    return than_us is not None and time_us < than_us
