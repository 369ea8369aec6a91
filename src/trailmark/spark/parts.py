"""What a task of a source reads, and how many rows Spark is handed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import pyarrow as pa

from trailmark.settings import MIB

#: Rows handed to Spark at a time.
ROWS_AT_ONCE = 1 << 16
#: Bytes that one task reads. Smaller pieces of a bucket are put together, in their order.
_TASK_BYTES = 16 * MIB


class OfBucket(Protocol):
    """Rows of a bucket that are read in one go."""

    @property
    def bucket(self) -> int:
        """Whose they are."""


_Piece = TypeVar("_Piece", bound=OfBucket)


def in_tasks(
    pieces: Iterable[_Piece], size: Callable[[_Piece], int]
) -> Iterator[tuple[_Piece, ...]]:
    """Pieces, bucket by bucket, as many together as make a task worth its start; ``size`` says how
    many bytes one has."""
    waiting: list[_Piece] = []
    held = 0
    for piece in pieces:
        if waiting and (held >= _TASK_BYTES or piece.bucket != waiting[-1].bucket):
            yield tuple(waiting)
            waiting, held = [], 0
        waiting.append(piece)
        held += size(piece)
    if waiting:
        yield tuple(waiting)


def at_once(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows in batches that Spark takes well."""
    for first in range(0, rows.num_rows, ROWS_AT_ONCE):
        yield rows.slice(first, ROWS_AT_ONCE)
