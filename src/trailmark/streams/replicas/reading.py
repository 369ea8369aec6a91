"""Results of replicas between two positions, from whichever of them can be read.

What is planned with one is read from another one if that cannot be read any more, so planning and
reading look at digests: only who has given the same takes the other's place. For tentative results
nobody does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa

from trailmark.engine.numbers import NOTHING_GIVEN
from trailmark.errors import MissingSegment, TrailmarkError
from trailmark.streams.replicas.looking import BROKEN, Opened, Seen, differs
from trailmark.streams.replicas.numbered import NumberedResults, Piece
from trailmark.streams.replicas.positions import Position, is_ahead
from trailmark.streams.replicas.tentative import TentativePiece
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")


@dataclass(frozen=True, slots=True)
class Suffix:
    """Tentative results of a replica, all that stand or the last of them: those of some batches of
    the log that was there."""

    path: str
    log: str
    batches: range


@dataclass(frozen=True, slots=True)
class Whole:
    """A replica, and the results that it has: from one position to another, and behind them those
    that are tentative and stand."""

    path: str
    start: Position
    end: Position
    suffix: Suffix


class Reading(Opened):
    """Reads the results of replicas."""

    # What there is

    def beginning(self) -> Position | None:
        """The first results that are there; None as long as there are none."""
        found: Position | None = None
        for oldest in self._beginnings(self.look()).values():
            if found is None or is_ahead(found, oldest):
                found = oldest
        return found

    def _beginnings(self, seen: dict[str, Seen]) -> dict[str, Position]:
        """Where those begin of which that can be read. Raises if there are some, and all of them
        are broken."""
        found: dict[str, Position] = {}
        problems: list[TrailmarkError] = []
        for path, each in seen.items():
            try:
                found[path] = self._opened[path].beginning(each.there)
            except BROKEN as error:
                self._tell_of_broken(path, error, self._broken)
                problems.append(error)
        if problems and not found:
            raise self._unreadable(problems)
        return found

    @property
    def row_bytes(self) -> int:
        """About how many bytes a result takes."""
        found = self.first()
        return 1 if found is None else found.row_bytes

    def before_all(self) -> Position | None:
        """Where all results begin; None as long as nobody knows how many buckets there are."""
        found = self.first()
        return None if found is None else (NOTHING_GIVEN,) * found.meta.buckets

    def end(self) -> Position | None:
        """What the furthest of them has given."""
        found = max(self.look().values(), key=lambda each: each.results, default=None)
        return None if found is None else found.given

    def whole(self) -> Whole | None:
        """What the furthest of them has; None as long as there is nothing."""
        seen = self.look()
        beginnings = self._beginnings(seen)
        if not beginnings:
            return None
        path = max(
            beginnings,
            key=lambda each: (seen[each].results, seen[each].answers_until, seen[each].is_stable),
        )
        found = seen[path]
        suffix = Suffix(path, found.log, found.tentative)
        return Whole(path, beginnings[path], found.given, suffix)

    # Results that stand

    def plan(self, start: Position, end: Position, first: str | None) -> dict[str, list[Piece]]:
        """Where the results between two positions lie: in which replica, and there in which
        batches. ``first`` is asked first. Between equal ones there is nothing to be asked for."""
        if start == end:
            return {}
        seen = self.look()
        paths = sorted(seen, key=lambda path: path != first)
        problems: list[TrailmarkError] = []
        for path in paths:
            try:
                return {path: self._pieces(path, start, end, seen[path].there)}
            except BROKEN as error:
                self._tell_of_broken(path, error, self._refused)
                problems.append(error)
        raise self._unreadable(problems)

    def _pieces(self, path: str, start: Position, end: Position, there: range) -> list[Piece]:
        replica = self._opened[path]
        for bucket, given in enumerate(end):
            if replica.given(bucket, given.rows, there) != given:
                raise differs(path, bucket, given.rows)
        return [
            piece
            for bucket, (begun, ended) in enumerate(zip(start, end, strict=True))
            for piece in replica.pieces(bucket, begun.rows, ended.rows, there)
        ]

    def read(self, path: str, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The results of a piece that was planned with a replica: from another one if that cannot
        be read any more."""
        problems: list[TrailmarkError] = []
        for each in sorted(self._storages, key=lambda other: other != path):
            try:
                # All of a piece, so that none of it has been given out if another takes its place.
                found = list(self._read(each, piece, columns, is_planned=each == path))
            except BROKEN as error:
                self._opened.pop(each, None)
                problems.append(error)
                continue
            if each != path:
                _log.warning("replicas: read from %s instead of %s.", each, path)
            yield from found
            return
        raise self._unreadable(problems)

    def _read(
        self, path: str, piece: Piece, columns: Sequence[str], *, is_planned: bool
    ) -> Iterator[pa.RecordBatch]:
        replica = self._begun(path)
        pieces = [piece]
        if not is_planned:
            there = replica.there()
            if replica.given(piece.bucket, piece.end, there) != piece.given:
                raise differs(path, piece.bucket, piece.end)
            pieces = replica.pieces(piece.bucket, piece.first, piece.end, there)
        for each in pieces:
            yield from replica.read(each, columns)

    def _begun(self, path: str) -> NumberedResults:
        replica = self._open(path)
        if replica is None:
            raise MissingSegment("Nobody has begun to write this replica.", where=path)
        return replica

    # Tentative results

    def plan_suffix(self, suffix: Suffix) -> list[TentativePiece]:
        """Where tentative results lie; nowhere if their replica cannot be read any more. Whoever
        follows then goes on with another one, and all of them are void."""
        if not suffix.batches:
            return []
        try:
            replica = self._of_suffix(suffix)
            # Of what stands, trims may have taken the beginning: it will come back no more.
            first = max(suffix.batches.start, replica.there().start)
            return replica.tentative.pieces(range(first, suffix.batches.stop))
        except BROKEN as error:
            self._leave_out(suffix.path, error)
            return []

    def read_suffix(
        self, suffix: Suffix, piece: TentativePiece, columns: Sequence[str]
    ) -> list[pa.RecordBatch]:
        """The tentative results of a piece; none of them if that cannot be read any more."""
        try:
            return list(self._of_suffix(suffix).tentative.read(piece, columns))
        except BROKEN as error:
            self._leave_out(suffix.path, error)
            return []

    def _of_suffix(self, suffix: Suffix) -> NumberedResults:
        replica = self._begun(suffix.path)
        if replica.log_id != suffix.log:
            raise MissingSegment("It was made anew.", where=suffix.path)
        return replica

    def _leave_out(self, path: str, error: TrailmarkError) -> None:
        self._opened.pop(path, None)
        _log.warning(
            "replicas: tentative results of %s are left out, as they cannot be read: %s (%s)",
            path,
            error.what,
            error.where,
        )
