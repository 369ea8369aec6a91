"""Which of several replicas is followed, and what is said to all of them.

One is followed as long as it has something new. It is left at once when it has nothing and another
one has, and when it has been behind another for some time. Results are the same on all of them, so
all that a switch could change is who is read. That they are the same is looked at with each switch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa

from trailmark import units
from trailmark.engine.numbers import NOTHING_GIVEN
from trailmark.errors import (
    DamagedSegment,
    DataLoss,
    MissingSegment,
    OtherQuery,
    StorageError,
    TrailmarkError,
    UnknownFormat,
    Unreachable,
)
from trailmark.log import (
    Clock,
    MonotonicClock,
    Storage,
    monotonic_us,
    read_meta,
    wall_clock_us,
)
from trailmark.log.json_text import text_of, whole
from trailmark.log.meta import META_PATH
from trailmark.log.readers import acknowledge, register
from trailmark.records import Fingerprint, Stream
from trailmark.streams.asking import Asking, Hands, InThreads, Unreached
from trailmark.streams.replicas.numbered import (
    NotThereYet,
    NumberedResults,
    Piece,
    Position,
    check_alike,
)
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")

#: What of a replica makes it one that cannot be read, while others can.
BROKEN = (DamagedSegment, MissingSegment, UnknownFormat, OtherQuery, StorageError)
#: How long the storage of a replica may take to answer before it is left out.
_PATIENCE_US = 1_000_000
#: How long the replica that is followed may be behind another.
_BEHIND_US = 2_000_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What a replica had when it was looked at: its batches, what it had given with the last, and
    whether nothing was tentative then."""

    there: range
    given: Position
    is_stable: bool

    @property
    def results(self) -> int:
        """How many results it has given."""
        return sum(each.rows for each in self.given)


@dataclass(frozen=True, slots=True)
class Whole:
    """A replica, and the results that it has: from one position to another."""

    path: str
    start: Position
    end: Position


class Replicas:
    """The replicas of an operator, by their paths.

    Parameters
    ----------
    storages
        Where the logs of each are.
    hands
        Who looks at them.
    now_us, clock
        A clock that never goes back, and the time of day.
    """

    def __init__(
        self,
        storages: Mapping[str, Storage],
        *,
        hands: Hands | None = None,
        now_us: MonotonicClock = monotonic_us,
        clock: Clock = wall_clock_us,
    ) -> None:
        self._storages = storages
        self._now_us = now_us
        self._asking = Asking(hands or InThreads(), _PATIENCE_US, now_us, clock, _TellOfReplicas())
        self._opened: dict[str, NumberedResults] = {}
        #: What was told of those that cannot be read, and of those that cannot be followed.
        self._broken: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._acknowledged: dict[str, tuple[Position, bool]] = {}
        #: The one that is followed, and the moment and position of another at which it was behind.
        self._followed: str | None = None
        self._behind: tuple[float, Position] | None = None
        #: The same as it was when it agreed: what is made anew at its path has to agree again.
        self._agreed: NumberedResults | None = None

    # Looking

    def first(self) -> NumberedResults | None:
        """Any of them that can be read; None as long as nobody has begun to write one."""
        for path in self._storages:
            if path in self._opened:
                return self._opened[path]
        self.look()
        return next(iter(self._opened.values()), None)

    def look(self) -> dict[str, Seen]:
        """What those have that can be read. If none answers in time, they are waited for."""
        work = {path: partial(self._look, path) for path in self._storages}
        answers = self._asking.ask("look", work)
        if not answers:
            self._asking.insists = True
            try:
                answers = self._asking.ask("look", work)
            finally:
                self._asking.insists = False
        opened = list(self._opened.values())  # who answers late may add to them meanwhile
        for one, other in pairwise(opened):
            check_alike(one, other)
        return {path: seen for path, seen in answers.items() if seen is not None}

    def _look(self, path: str) -> Seen | None:
        try:
            replica = self._open(path)
            if replica is None:
                return None
            there = replica.there()
            seen = Seen(there, replica.position(there.stop, there), replica.is_stable(there))
        except Unreachable:
            raise
        except BROKEN as error:
            self._tell_of_broken(path, error, self._broken)
            return None
        self._broken.pop(path, None)
        return seen

    def _open(self, path: str) -> NumberedResults | None:
        if path in self._opened:
            return self._opened[path]
        storage = self._storages[path]
        if read_meta(storage) is None:
            return None
        found = NumberedResults(storage, path)
        self._opened[path] = found
        return found

    def _tell_of_broken(self, path: str, error: TrailmarkError, told: dict[str, str]) -> None:
        self._opened.pop(path, None)  # it may be made anew
        text = f"{error.what} ({error.where})"
        if told.get(path) != text:
            told[path] = text
            _log.warning("replicas: %s cannot be followed: %s", path, text)

    # Choosing

    def choose(self, position: Position, seen: Mapping[str, Seen]) -> str | None:
        """The replica to read from for whoever stands at a position; None if none has anything
        new. Raises if all of them have come further, and none can be read from there."""
        ahead = {path: each for path, each in seen.items() if _is_ahead(each.given, position)}
        best = sorted(ahead, key=lambda path: (-ahead[path].results, not ahead[path].is_stable))
        followed = self._followed
        if followed in ahead and not self._is_left_behind(ahead[followed], ahead):
            best.sort(key=lambda path: path != followed)
        refused: list[TrailmarkError] = []
        for path in best:
            if path == followed and self._opened[path] is self._agreed:
                return path
            trouble = self._trouble(path, position, ahead[path])
            if trouble is None:
                self._follow(path, seen)
                return path
            if not isinstance(trouble, Unreachable):
                refused.append(trouble)
        if len(refused) == len(self._storages):
            raise self._unreadable(refused)  # none of them will ever have what comes next
        return None

    def _is_left_behind(self, followed: Seen, ahead: Mapping[str, Seen]) -> bool:
        """Whether another one has had for a while what the followed one does not have yet."""
        if self._behind is not None and followed.results >= sum(
            each.rows for each in self._behind[1]
        ):
            self._behind = None
        furthest = max(ahead.values(), key=lambda each: each.results)
        if furthest.results <= followed.results:
            return False
        if self._behind is None:
            self._behind = (self._now_us(), furthest.given)
        return self._now_us() - self._behind[0] >= _BEHIND_US

    def _trouble(self, path: str, position: Position, seen: Seen) -> TrailmarkError | None:
        """Why nobody who stands at a position can go on with a replica; None if it has given the
        same results up to there, and still has the next ones."""
        replica = self._opened[path]
        try:
            for bucket, given in enumerate(position):
                if replica.given(bucket, given.rows, seen.there) != given:
                    raise _differs(path, bucket, given.rows)
        except Unreachable as error:
            return error  # the next look finds that out, too
        except BROKEN as error:
            self._tell_of_broken(path, error, self._refused)
            return error
        self._refused.pop(path, None)
        return None

    def _follow(self, path: str, seen: Mapping[str, Seen]) -> None:
        left, self._followed = self._followed, path
        self._agreed, self._behind = self._opened[path], None
        if left == path:
            return  # it was opened again
        if left is None:
            _log.info("replicas: follows %s.", path)
        elif left in seen:
            _log.info("replicas: follows %s instead of %s, which is behind.", path, left)
        else:
            _log.warning("replicas: follows %s instead of %s, which cannot be read.", path, left)

    # Reading

    def beginning(self) -> Position | None:
        """The first results that are there; None as long as there are none."""
        found: Position | None = None
        for oldest in self._beginnings(self.look()).values():
            if found is None or _is_ahead(found, oldest):
                found = oldest
        return found

    def _beginnings(self, seen: Mapping[str, Seen]) -> dict[str, Position]:
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
        path = max(beginnings, key=lambda each: seen[each].results)
        return Whole(path, beginnings[path], seen[path].given)

    def next(
        self, position: Position, seen: dict[str, Seen], most_rows: int | None
    ) -> tuple[str, Position] | None:
        """The replica that is read next, and up to which position: as far as it has come, or as
        `admitted` says. None if none has anything new."""
        while (path := self.choose(position, seen)) is not None:
            given = seen[path].given
            if most_rows is None:
                return path, given
            try:
                return path, earlier(given, self.admitted(path, position, seen[path], most_rows))
            except BROKEN as error:
                self._tell_of_broken(path, error, self._refused)
                del seen[path]
        return None

    def admitted(self, path: str, start: Position, seen: Seen, most_rows: int) -> Position:
        """As far as batches of a replica go with so many results at most, but one batch at least
        that has any."""
        replica, there = self._opened[path], seen.there
        before = sum(each.rows for each in start)
        reached: Position | None = None
        for batch in range(replica.needs(start, there), there.stop):
            after = replica.position(batch + 1, there)
            rows = sum(each.rows for each in after) - before
            if reached is not None and rows > most_rows:
                break
            if rows > 0:
                reached = after
        return seen.given if reached is None else reached

    def plan(self, start: Position, end: Position, first: str | None) -> dict[str, list[Piece]]:
        """Where the results between two positions lie: in which replica, and there in which
        batches. ``first`` is asked first."""
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
                raise _differs(path, bucket, given.rows)
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
        replica = self._open(path)
        if replica is None:
            raise MissingSegment("Nobody has begun to write this replica.", where=path)
        pieces = [piece]
        if not is_planned:
            there = replica.there()
            if replica.given(piece.bucket, piece.end, there) != piece.given:
                raise _differs(path, piece.bucket, piece.end)
            pieces = replica.pieces(piece.bucket, piece.first, piece.end, there)
        for each in pieces:
            yield from replica.read(each, columns)

    def _unreadable(self, problems: Sequence[TrailmarkError]) -> TrailmarkError:
        told = "; ".join(f"{each.what.rstrip('.')} ({each.where})" for each in problems)
        what = f"No replica has the results that are asked for: {told or 'none can be read'}."
        is_lost = all(
            isinstance(each, MissingSegment) and not isinstance(each, NotThereYet)
            for each in problems
        )
        if is_lost and len(problems) == len(self._storages):
            return DataLoss(
                what,
                where=", ".join(self._storages),
                fix="Give the reader a name (option reader), for which they are kept.",
            )
        return StorageError(
            what,
            where=", ".join(self._storages),
            fix="Bring one of them back; the query goes on where it was.",
        )

    # Letting go

    def acknowledge(self, reader: str, position: Position) -> None:
        """Tells every replica that can be reached what a named reader still needs of it."""
        work = {
            path: partial(self._acknowledge, path, reader, position)
            for path in self._storages
            if not self._asking.is_away(path)
            if self._acknowledged.get(path) != (position, path == self._followed)
        }
        self._asking.ask(("acknowledge", position, self._followed), work)

    def _acknowledge(self, path: str, reader: str, position: Position) -> None:
        try:
            replica = self._open(path)
            if replica is None or not self._storages[path].exists(META_PATH):
                return  # it is not there any more: nothing is made in its place
            needs = replica.needs(position, replica.there())
            if path not in self._acknowledged:
                register(self._storages[path], reader, Stream.OUTPUT, needs)
            follows = path == self._followed
            acknowledge(self._storages[path], reader, Stream.OUTPUT, needs, follows=follows)
            self._acknowledged[path] = (position, follows)
        except Unreachable:
            raise
        except BROKEN as error:
            self._tell_of_broken(path, error, self._refused)


class _TellOfReplicas:
    """Implements ``Told``."""

    def gone(self, name: str, unreached: Unreached) -> None:
        _log.warning("replicas: %s cannot be reached: %s.", name, unreached.why)

    def back(self, name: str, after_us: float) -> None:
        _log.warning("replicas: %s can be reached again, after %s.", name, units.duration(after_us))


def earlier(one: Position, other: Position) -> Position:
    """The one of two positions that the other goes on from."""
    return one if _is_ahead(other, one) else other


def position_to_json(position: Position) -> list[list[Any]]:
    """As it is kept in an offset. Digests are text: not every reader of JSON has 64 bits."""
    return [[each.rows, f"{each.digest:016x}"] for each in position]


def position_from_json(stored: object) -> Position:
    """From what is kept; raises ``TypeError`` or ``ValueError``."""
    if not isinstance(stored, list):
        raise ValueError("no positions")
    return tuple(
        Fingerprint(whole(rows, 0, 2**62), int(text_of(digest), 16)) for rows, digest in stored
    )


def _is_ahead(given: Position, position: Position) -> bool:
    """Whether all that leads to a position has been given, and something more. Replicas give whole
    slices of time, so what one of them has in any bucket the other has when it has as much."""
    pairs = list(zip(given, position, strict=True))
    return all(ours.rows >= theirs.rows for ours, theirs in pairs) and any(
        ours.rows > theirs.rows for ours, theirs in pairs
    )


def _differs(path: str, bucket: int, number: int) -> OtherQuery:
    return OtherQuery(
        f"Up to number {number}, bucket {bucket} has given other results than were read from "
        "another replica.",
        where=path,
        fix="trailmark compare says where they first differ. Make this one anew: with an empty "
        "path and checkpoint.",
    )
