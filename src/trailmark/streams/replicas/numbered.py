"""The results of one replica, by their numbers.

A position is what each bucket has given: a count, which is the number of the next result, and a
digest of all results before it. Replicas cut their input into other batches, so a number lies in
another batch in each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import pyarrow as pa

from trailmark.engine.numbers import NOTHING_GIVEN, RESULTS_GIVEN, given_before, results_given
from trailmark.errors import MissingSegment, SettingError
from trailmark.inspection.logs import OperatorFiles
from trailmark.kernel.columns import contiguous
from trailmark.log import Footer, OperatorMeta, Origin, Segment, Storage
from trailmark.log.meta import operator_differences
from trailmark.operators.kinds import form_of
from trailmark.operators.slices import is_in_slices
from trailmark.records import Fingerprint, FrameKind, Stream
from trailmark.streams.committed import CommittedBatches
from trailmark.streams.operator_rows import rows_of_kind
from trailmark.streams.operator_view import row_bytes
from trailmark.streams.replicas.positions import Position
from trailmark.streams.replicas.tentative import TentativeResults
from trailmark.values import dataclass

#: Batches whose footers are remembered. They are looked for again and again.
_MOST_KNOWN = 10_000


class NotThereYet(MissingSegment):
    """A replica has not come as far as another one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Results of a bucket that a batch has: those from one number to before another.

    ``given`` is what the bucket has given with the last of them.
    """

    bucket: int
    batch: int
    first: int
    given: Fingerprint

    @property
    def end(self) -> int:
        """The number of the next result."""
        return self.given.rows

    @property
    def rows(self) -> int:
        """How many they are."""
        return self.end - self.first


class NumberedResults:
    """Opens the results of a replica.

    Parameters
    ----------
    storage
        Where its logs are.
    path
        What it is called in messages.
    """

    source_schema = None

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self.path = path
        self._files = OperatorFiles(storage)
        _check_numbered(self._files.meta, path)
        self._rows = rows_of_kind(self._files.meta, "results")
        self._form = form_of(self._files.meta)
        self.schema: pa.Schema = self._rows.schema
        self._logs = [self._files.log(Stream.OUTPUT, bucket) for bucket in self._files.buckets]
        self.tentative = TentativeResults(self._files.meta, self._logs)
        self._committed = CommittedBatches(self._files)
        self._known: dict[tuple[int, int], tuple[int, Fingerprint]] = {}
        self._end = 0

    @property
    def meta(self) -> OperatorMeta:
        """What the replica is."""
        return self._files.meta

    @property
    def log_id(self) -> str:
        """Tells it from what may be made anew in the same place."""
        return str(self.meta.log_id)

    @property
    def moments(self) -> frozenset[str]:
        """Columns of the logged results that are moments, though they are numbers."""
        return self._form.moments

    @property
    def row_bytes(self) -> int:
        """About how many bytes a result takes."""
        return row_bytes(self.schema)

    def there(self) -> range:
        """The batches that are there and committed: what comes first may be trimmed, and more may
        come, while they are read."""
        oldest = max([self.meta.first_batch, *(log.start() for log in self._logs)])
        end = max(oldest, self._committed.end())
        if end < self._end:
            self._known.clear()  # truncated: batches of these numbers will be others
            self.tentative.forget()
        self._end = end
        return range(oldest, end)

    def position(self, batch: int, there: range) -> Position:
        """What had been given before a batch: one of those that are there, or the next."""
        return tuple(self._before(bucket, batch, there) for bucket in self._files.buckets)

    def beginning(self, there: range) -> Position:
        """What had been given before the first batch that is there, which may be trimmed
        meanwhile."""
        while True:
            try:
                return self.position(there.start, there)
            except MissingSegment:
                first, there = there.start, self.there()
                if there.start == first:
                    raise

    def given(self, bucket: int, number: int, there: range) -> Fingerprint:
        """What a bucket had given when this was the number of its next result.

        Raises `MissingSegment` where that is not known any more, or not yet.
        """
        batch = self._batch_of(bucket, number, there)
        if batch == there.stop or number == self._footer(bucket, batch)[0]:
            return self._before(bucket, batch, there)
        first, after = self._footer(bucket, batch)
        return given_before(after, self._logged(bucket, batch).slice(number - first))

    def pieces(self, bucket: int, first: int, last: int, there: range) -> list[Piece]:
        """Where the results of a bucket lie from one number to before another.

        Raises `MissingSegment` where they are not all there.
        """
        found: list[Piece] = []
        if first >= last:
            return found
        self._batch_of(bucket, last, there)
        batch = self._batch_of(bucket, first, there)
        while first < last:
            _, given = self._footer(bucket, batch)
            if given.rows > last:
                given = self.given(bucket, last, there)
            until = given.rows
            if until > first:
                found.append(Piece(bucket, batch, first, given))
            first, batch = until, batch + 1
        return found

    def needs(self, position: Position, there: range) -> int:
        """The first batch that whoever goes on from a position still needs. Where the replica has
        not come that far, it is the next one."""
        return min(
            self._first_with_more(bucket, given.rows, there)
            for bucket, given in enumerate(position)
        )

    def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The results of a piece: these columns, in this order."""
        segment = self._logs[piece.bucket].read(piece.batch)
        first = self._first_of(piece, segment)
        for table in self._rows.tables(segment):
            rows = table.slice(piece.first - first, piece.rows)
            yield from rows.select(list(columns)).to_batches()

    def logged(self, piece: Piece) -> pa.RecordBatch:
        """The same as they are logged: every column, and what digests are of."""
        segment = self._logs[piece.bucket].read(piece.batch)
        first = self._first_of(piece, segment)
        return self._results_of(segment).slice(piece.first - first, piece.rows)

    def _first_of(self, piece: Piece, segment: Segment) -> int:
        """The number of the first result of a segment, which has to have those of a piece: logs
        that were truncated, or made anew, have others by now."""
        first, after = _numbers(segment.footer, segment.origin)
        if first <= piece.first and after.rows > piece.end:
            after = given_before(after, self._results_of(segment).slice(piece.end - first))
        if first > piece.first or after != piece.given:
            raise NotThereYet(
                f"Results {piece.first} to {piece.end - 1} of bucket {piece.bucket} are not in "
                f"batch {piece.batch} any more.",
                where=self.path,
            )
        return first

    def _before(self, bucket: int, batch: int, there: range) -> Fingerprint:
        """What a bucket had given before a batch."""
        if batch <= self.meta.first_batch:
            return NOTHING_GIVEN
        if batch > there.start:
            try:
                return self._footer(bucket, batch - 1)[1]
            except MissingSegment:
                if not self._is_trimmed(bucket, batch - 1):
                    raise
        if batch < there.stop:
            return given_before(self._footer(bucket, batch)[1], self._logged(bucket, batch))
        raise MissingSegment(
            "All batches are gone, and with them how many results there were.", where=self.path
        )

    def _batch_of(self, bucket: int, number: int, there: range) -> int:
        """The batch that has a result; for the result that comes next, the batch that comes."""
        found = self._first_with_more(bucket, number, there)
        if found < there.stop:
            if number < self._footer(bucket, found)[0]:
                raise MissingSegment(
                    f"Result {number} of bucket {bucket} was trimmed before batch {found}.",
                    where=self.path,
                )
        elif number != self._before(bucket, found, there).rows:
            raise NotThereYet(
                f"Result {number} of bucket {bucket} is not there yet.", where=self.path
            )
        return found

    def _first_with_more(self, bucket: int, number: int, there: range) -> int:
        """The first batch at whose end there are more results than so many; the next if none."""
        place = bisect_right(there, number, key=lambda batch: self._reached(bucket, batch))
        return there.start + place

    def _reached(self, bucket: int, batch: int) -> int:
        """How many results there were at the end of a batch; none if it was trimmed meanwhile, as
        the ones before it were then."""
        try:
            return self._footer(bucket, batch)[1].rows
        except MissingSegment:
            if not self._is_trimmed(bucket, batch):
                raise
            return -1

    def _is_trimmed(self, bucket: int, batch: int) -> bool:
        """Whether the log begins behind a batch by now."""
        return batch < self._logs[bucket].start()

    def _footer(self, bucket: int, batch: int) -> tuple[int, Fingerprint]:
        """The number of the first result of a batch, and what has been given with its last."""
        known = self._known.get((bucket, batch))
        if known is not None:
            return known
        log = self._logs[bucket]
        footer, _ = log.read_footer(batch)
        found = _numbers(footer, Origin(log.reader.segment_path(batch)))
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[bucket, batch] = found
        return found

    def _logged(self, bucket: int, batch: int) -> pa.RecordBatch:
        return self._results_of(self._logs[bucket].read(batch))

    def _results_of(self, segment: Segment) -> pa.RecordBatch:
        found = self._form.table(segment, FrameKind.RESULTS)
        if found is None:
            raise segment.origin.mismatch(0, "there are no results")
        return contiguous(found)


def _numbers(footer: Footer, origin: Origin) -> tuple[int, Fingerprint]:
    """The number of the first result of a batch, and what has been given with its last."""
    after = results_given(footer, origin)
    if after is None:
        raise origin.mismatch(0, f"{RESULTS_GIVEN!r} is missing")
    return after.rows - footer.rows.get(FrameKind.RESULTS, 0), after


def check_alike(one: NumberedResults, other: NumberedResults) -> None:
    """Refuses replicas of different operators."""
    found = list(operator_differences(one.meta, other.meta))
    if found:
        raise SettingError(
            f"{one.path} and {other.path} are no replicas of one another:\n    "
            + "\n    ".join(found),
            where="replicas",
            fix="Give paths of operators that are defined alike.",
        )


def _check_numbered(meta: OperatorMeta, path: str) -> None:
    if not is_in_slices(meta.operator):
        raise SettingError(
            "The results of this operator have no numbers, so no other can take its place.",
            where=path,
            fix="Define it with numbered=True (docs/high-availability.md), in a new path.",
        )
