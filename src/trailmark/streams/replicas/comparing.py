"""Whether two replicas have given the same results, number by number.

Footers hold a digest of all results that a bucket has given. Where those of two replicas are equal
at a number, all before it is equal; so the first difference is found by halving, without reading
everything.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trailmark.streams.replicas.numbered import NumberedResults, check_alike
from trailmark.streams.replicas.positions import Position
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a bucket's results first differ: the number, and both results with their batches.

    ``rows`` is None where they differ before what is still there.
    """

    bucket: int
    number: int
    batches: tuple[int, int] | None = None
    rows: tuple[pa.RecordBatch, pa.RecordBatch] | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two replicas: how far each has come, how many results of theirs were compared, and where
    they differ. Of the buckets ``apart`` one has nothing any more that the other has.
    ``moments`` are columns of numbers that are times."""

    given: tuple[Position, Position]
    compared: int
    differences: tuple[Difference, ...]
    apart: tuple[int, ...]
    moments: frozenset[str]

    @property
    def are_equal(self) -> bool:
        """Whether nothing that both have given differs."""
        return not self.differences

    @property
    def results(self) -> tuple[int, int]:
        """How many results each has given."""
        one, other = self.given
        return sum(each.rows for each in one), sum(each.rows for each in other)

    def describe(self) -> Mapping[str, Any]:
        """For programs, without the rows."""
        one, other = self.results
        return {
            "are_equal": self.are_equal,
            "compared": self.compared,
            "results": [one, other],
            "apart": list(self.apart),
            "differences": [
                {
                    "bucket": each.bucket,
                    "number": each.number,
                    "batches": None if each.batches is None else list(each.batches),
                }
                for each in self.differences
            ],
        }


def compare(one: NumberedResults, other: NumberedResults) -> Comparison:
    """Compares what both have given."""
    check_alike(one, other)
    there = one.there(), other.there()
    given = one.position(there[0].stop, there[0]), other.position(there[1].stop, there[1])
    differences, apart, compared = [], [], 0
    for bucket, (ours, theirs) in enumerate(zip(*given, strict=True)):
        both = min(ours.rows, theirs.rows)
        pair = _Pair(one, other, bucket, *there)
        if both < pair.first_there():
            apart.append(bucket)
            continue
        compared += both
        if not pair.agree(both):
            differences.append(pair.first_difference(both))
    return Comparison(given, compared, tuple(differences), tuple(apart), one.moments)


class _Pair:
    """A bucket of two replicas."""

    def __init__(
        self, one: NumberedResults, other: NumberedResults, bucket: int, *there: range
    ) -> None:
        self._replicas = (one, other)
        self._bucket = bucket
        self._there = there

    def agree(self, number: int) -> bool:
        """Whether both have given the same up to a number."""
        ours, theirs = (
            replica.given(self._bucket, number, there)
            for replica, there in zip(self._replicas, self._there, strict=True)
        )
        return ours == theirs

    def first_difference(self, both: int) -> Difference:
        """Where the results first differ, of which so many are not all the same."""
        first = self.first_there()
        if not self.agree(first):
            return Difference(self._bucket, first)
        # Numbers up to which they agree come first, and both agree up to `number`.
        numbers = range(first + 1, both + 1)
        number = first + bisect_left(numbers, True, key=lambda each: not self.agree(each))
        found = [
            replica.pieces(self._bucket, number, number + 1, there)[0]
            for replica, there in zip(self._replicas, self._there, strict=True)
        ]
        one, other = (
            replica.logged(piece) for replica, piece in zip(self._replicas, found, strict=True)
        )
        batches = (found[0].batch, found[1].batch)
        return Difference(self._bucket, number, batches, (one, other))

    def first_there(self) -> int:
        """The first number that both still have."""
        starts = [
            replica.position(there.start, there)[self._bucket].rows
            for replica, there in zip(self._replicas, self._there, strict=True)
        ]
        return max(starts)
