"""Which of several replicas is followed, and what is said to all of them.

One is followed as long as it has something new. It is left at once when it has nothing and another
one has, and when it has been behind another one for some time. Results are the same on all of
them, so all that a switch could change is who is read. That they are the same is looked at with
each switch. Who reads tentative results, too, goes by more: see `answering`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from trailmark.errors import TrailmarkError, Unreachable
from trailmark.log import Clock, MonotonicClock, Storage, monotonic_us, wall_clock_us
from trailmark.log.meta import META_PATH
from trailmark.log.readers import acknowledge, register
from trailmark.records import Stream
from trailmark.streams.asking import Hands
from trailmark.streams.replicas.looking import BROKEN, Seen, differs
from trailmark.streams.replicas.numbered import NumberedResults
from trailmark.streams.replicas.place import Place
from trailmark.streams.replicas.positions import Position, earlier, is_ahead, results_at
from trailmark.streams.replicas.reading import Reading

_log = logging.getLogger("trailmark")

#: How long the replica that is followed may be behind another.
BEHIND_US = 2_000_000


class Replicas(Reading):
    """The replicas of an operator, and which of them is followed.

    Parameters
    ----------
    storages, hands, now_us, clock
        As of those that are opened.
    """

    #: Whether a named reader also needs what is tentative and stands.
    _reads_tentative = False

    def __init__(
        self,
        storages: Mapping[str, Storage],
        *,
        hands: Hands | None = None,
        now_us: MonotonicClock = monotonic_us,
        clock: Clock = wall_clock_us,
    ) -> None:
        super().__init__(storages, hands=hands, now_us=now_us, clock=clock)
        self._acknowledged: dict[str, tuple[Position, bool]] = {}
        #: The one that is followed, and the moment and position of another at which it was behind.
        self._followed: str | None = None
        self._behind: tuple[float, Position] | None = None
        #: The same as it was when it agreed: what is made anew at its path has to agree again.
        self._agreed: NumberedResults | None = None

    def choose(self, position: Position, seen: Mapping[str, Seen]) -> str | None:
        """The replica to read from for whoever stands at a position; None if none has anything
        new. Raises if all of them have come further, and none can be read from there."""
        ahead = {path: each for path, each in seen.items() if is_ahead(each.given, position)}
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
        if self._behind is not None and followed.results >= results_at(self._behind[1]):
            self._behind = None
        furthest = max(ahead.values(), key=lambda each: each.results)
        if furthest.results <= followed.results:
            return False
        if self._behind is None:
            self._behind = (self._now_us(), furthest.given)
        return self._now_us() - self._behind[0] >= BEHIND_US

    def _trouble(self, path: str, position: Position, seen: Seen) -> TrailmarkError | None:
        """Why nobody who stands at a position can go on with a replica; None if it has given the
        same results up to there, and still has the next ones."""
        replica = self._opened[path]
        try:
            for bucket, given in enumerate(position):
                if replica.given(bucket, given.rows, seen.there) != given:
                    raise differs(path, bucket, given.rows)
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
            why = "behind" if seen[left].is_stable else "in failure or behind"
            _log.info("replicas: follows %s instead of %s, which is %s.", path, left, why)
        else:
            _log.warning("replicas: follows %s instead of %s, which cannot be read.", path, left)

    def next(self, place: Place, seen: dict[str, Seen], most_rows: int | None) -> Place | None:
        """Where a reader comes next: as far as the replica has come that is followed, or as
        ``most_rows`` admit. None if none has anything new."""
        position = place.position
        while (path := self.choose(position, seen)) is not None:
            given = seen[path].given
            if most_rows is None:
                return replace(place, position=given, path=path)
            try:
                admitted = self.admitted(path, position, seen[path], most_rows)
                return replace(place, position=earlier(given, admitted), path=path)
            except BROKEN as error:
                self._tell_of_broken(path, error, self._refused)
                del seen[path]
        return None

    def admitted(self, path: str, start: Position, seen: Seen, most_rows: int) -> Position:
        """As far as batches of a replica go with so many results at most, but one batch at least
        that has any."""
        replica, there = self._opened[path], seen.there
        before = results_at(start)
        reached: Position | None = None
        for batch in range(replica.needs(start, there), there.stop):
            after = replica.position(batch + 1, there)
            rows = results_at(after) - before
            if reached is not None and rows > most_rows:
                break
            if rows > 0:
                reached = after
        return seen.given if reached is None else reached

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
            there = replica.there()
            needs = replica.needs(position, there)
            if self._reads_tentative and there:
                standing = replica.tentative.end(there[-1]).standing
                needs = needs if standing is None else min(needs, standing.stands_from)
            if path not in self._acknowledged:
                register(self._storages[path], reader, Stream.OUTPUT, needs)
            follows = path == self._followed
            acknowledge(self._storages[path], reader, Stream.OUTPUT, needs, follows=follows)
            self._acknowledged[path] = (position, follows)
        except Unreachable:
            raise
        except BROKEN as error:
            self._tell_of_broken(path, error, self._refused)
