"""The rows that a decision releases, in their order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa

from trailmark.settings import MIB
from trailmark.streams.boundaries import later
from trailmark.streams.files import DataFile
from trailmark.streams.times import Span
from trailmark.streams.view import Chunk, StreamView, rows_within
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")

#: Bytes of files that are put in order at once, about. Of those that reach further, more is read.
_BYTES_AT_ONCE = 16 * MIB


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


def stretches(
    pieces: Sequence[Piece], first_us: int | None, end_us: int, size: int = _BYTES_AT_ONCE
) -> list[Stretch]:
    """What is read one after another, or side by side: each about as large as it is worth."""
    if not pieces:
        return []
    cuts = [first_us, *_cuts(pieces, first_us, end_us, size), end_us]
    found = []
    for begin, end in pairwise(cuts):
        assert end is not None, "only the first may be open"
        inside = tuple(each for each in pieces if _reaches(each, begin, end))
        if inside:
            found.append(Stretch(begin, end, inside))
    return found


def _cuts(pieces: Sequence[Piece], first_us: int | None, end_us: int, size: int) -> list[int]:
    """Times at which to begin anew, since enough files have begun before them."""
    begins = sorted((_range(each)[0], each.file.bytes) for each in pieces)
    cuts: list[int] = []
    taken = 0
    last_us = later(first_us, begins[0][0])
    for begin_us, group in groupby(begins, key=lambda each: each[0]):
        assert last_us is not None
        if taken >= size and last_us < begin_us < end_us:
            cuts.append(begin_us)
            last_us, taken = begin_us, 0
        taken += sum(count for _, count in group)
    return cuts


def _reaches(piece: Piece, first_us: int | None, end_us: int) -> bool:
    begin_us, last_us = _range(piece)
    return begin_us < end_us and (first_us is None or last_us >= first_us)


def _range(piece: Piece) -> tuple[int, int]:
    times = piece.file.time_range
    assert times is not None, "files without times are in no piece"
    return times.min_us, times.max_us


def read_stretch(
    stretch: Stretch,
    views: Sequence[StreamView],
    columns: Sequence[str],
    time: str,
    shown: Callable[[pa.RecordBatch, int], pa.RecordBatch],
) -> pa.Table | None:
    """The rows of a stretch, in order; None if there are none.

    Parameters
    ----------
    views
        The streams, in the order of the union.
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
    span = Span(first_us=first_us, last_us=stretch.end_us - 1)
    file = piece.file
    timeless = 0
    for rows in view.read(
        Chunk(piece.batch, file.bucket, file.rows, file.bytes, file), columns, Span()
    ):
        timeless += rows.column(time).null_count
        yield rows_within(rows, time, span)
    begin_us, _ = _range(piece)
    # A file may be read for several stretches; it begins in one of them.
    if timeless and begin_us < stretch.end_us and not _is_before(begin_us, stretch.first_us):
        _log.warning(
            "%s: %d rows have no time in column %s, so no place in the order; they are left out.",
            file.path,
            timeless,
            time,
        )


def _is_before(time_us: int, than_us: int | None) -> bool:
    return than_us is not None and time_us < than_us
