"""Which of several replicas is followed by whoever reads tentative results, too, and how far.

What such a reader has is always what one replica had at the end of one of its batches: all results
that stand, and behind them those that were tentative and stood. When another one is followed, all
that was tentative is void, and what stands there takes its place.

There is one exception. Where nobody is left but a replica in failure that has not come as far as
the reader, only what goes by later tuples than the reader's results is taken of it, and none of its
results that stand before they are new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trailmark.errors import TrailmarkError, Unreachable
from trailmark.log import Clock, MonotonicClock, Storage, monotonic_us, wall_clock_us
from trailmark.records import NO_BATCH
from trailmark.streams.asking import Hands
from trailmark.streams.following import Followed
from trailmark.streams.replicas.choosing import BEHIND_US, Replicas
from trailmark.streams.replicas.looking import BROKEN, Seen
from trailmark.streams.replicas.numbered import NumberedResults
from trailmark.streams.replicas.place import Place
from trailmark.streams.replicas.positions import Position, has_reached, is_ahead, results_at
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class _Pace:
    """The newest batch of a replica, since when it has been that, and whether there was another
    before."""

    newest: tuple[str, int]
    since_us: float
    has_moved: bool


class AnsweringReplicas(Replicas):
    """Replicas whose tentative results are read, too."""

    _reads_tentative = True

    def __init__(
        self,
        storages: Mapping[str, Storage],
        *,
        hands: Hands | None = None,
        now_us: MonotonicClock = monotonic_us,
        clock: Clock = wall_clock_us,
    ) -> None:
        super().__init__(storages, hands=hands, now_us=now_us, clock=clock)
        self._clock = clock
        self._paces: dict[str, _Pace] = {}

    def next(self, place: Place, seen: dict[str, Seen], most_rows: int | None) -> Place | None:
        self._notice(seen)
        if self._followed is None and place.path in seen:
            self._followed = place.path  # as the process before did
        refused: list[TrailmarkError] = []
        for path in self._in_order(place, seen):
            try:
                found = self._step_that_agrees(path, place, seen[path], most_rows)
            except Unreachable:
                continue  # the next look finds that out, too
            except BROKEN as error:
                self._tell_of_broken(path, error, self._refused)
                if is_ahead(seen[path].given, place.position):
                    refused.append(error)
                continue
            if found is not None:
                self._follow(path, seen)
                if not has_reached(seen[path].given, place.position):
                    self._agreed = None  # that is looked at when it has come as far
                return found
        if len(refused) == len(self._storages):
            raise self._unreadable(refused)
        return None

    # Whom to follow

    def _notice(self, seen: Mapping[str, Seen]) -> None:
        for path, each in seen.items():
            newest, known = (each.log, each.there.stop), self._paces.get(path)
            if known is None or known.newest != newest:
                self._paces[path] = _Pace(newest, self._now_us(), known is not None)

    def _in_order(self, place: Place, seen: Mapping[str, Seen]) -> list[str]:
        """The replicas that may be followed, the best first."""
        position, followed = place.position, self._followed
        level = {path: each for path, each in seen.items() if has_reached(each.given, position)}
        best = sorted(
            level,
            key=lambda path: (-level[path].results, -level[path].answers_until, path != followed),
        )
        best += self._behind_in_failure(place, seen)
        if followed is None or followed not in seen:
            return best
        others = [path for path in best if path != followed]
        ahead = [path for path in others if is_ahead(seen[path].given, position)]
        livelier = [path for path in others if self._is_livelier(path, followed, seen)]
        if followed not in level:
            lively = [path for path in others if path in level and self._paces[path].has_moved]
            return [*dict.fromkeys([*ahead, *lively, *livelier, followed])]
        if self._is_left_behind(seen[followed], level):
            return [*others, followed]
        if seen[followed].is_stable and not place.told.parts:
            return [*dict.fromkeys([*livelier, followed, *ahead])]
        # A switch takes back what is tentative: not for a moment's advantage.
        stable = [path for path in ahead if seen[path].is_stable]
        return [*dict.fromkeys([*stable, *livelier, followed])]

    def _behind_in_failure(self, place: Place, seen: Mapping[str, Seen]) -> list[str]:
        """Replicas that have not come as far as the reader, and answer all the same."""
        found = [
            path
            for path, each in seen.items()
            if not each.is_stable and not has_reached(each.given, place.position)
        ]
        return sorted(found, key=lambda path: -seen[path].answers_until)

    def _is_livelier(self, path: str, followed: str, seen: Mapping[str, Seen]) -> bool:
        """Whether one has had new batches for a while in which the followed one had none; or one
        batch that answers further, and that the followed one has not caught up with since."""
        one, other = self._paces[path], self._paces[followed]
        if not one.has_moved or one.since_us <= other.since_us:
            return False
        if one.since_us - other.since_us >= BEHIND_US:
            return True
        answers_further = seen[path].answers_until > seen[followed].answers_until
        return answers_further and self._now_us() - one.since_us >= BEHIND_US

    # How far

    def _step_that_agrees(
        self, path: str, place: Place, seen: Seen, most_rows: int | None
    ) -> Place | None:
        """The same as `_step`; raises if the replica has given other results than the reader
        has."""
        has_agreed = path == self._followed and self._opened.get(path) is self._agreed
        if has_reached(seen.given, place.position) and not has_agreed:
            trouble = self._trouble(path, place.position, seen)
            if trouble is not None:
                raise trouble
        return self._step(path, place, seen, most_rows)

    def _step(self, path: str, place: Place, seen: Seen, most_rows: int | None) -> Place | None:
        """Where a reader comes that goes on with a replica; None if that has nothing new."""
        replica, there, told = self._opened[path], seen.there, place.told
        if not there:
            return None
        is_same = told.number != NO_BATCH and told.log == seen.log and told.batch <= there.stop
        if is_same and told.batch == there.stop:
            return None
        first = told.batch if is_same else replica.needs(place.position, there)
        end = _admitted_end(replica, place.position, range(first, there.stop), there, most_rows)
        position = replica.position(end, there)
        until = _later(place.complete_until, replica.tentative.end(end - 1).complete_until)
        is_behind = not has_reached(position, place.position)
        if is_behind:
            position, until = place.position, place.complete_until
            now = _told_behind(replica, told, seen, until, is_same=is_same)
        else:
            now = _told(replica, told, seen, end, is_same=is_same)
        found = Place(position, path, now, until, self._clock())
        if replica.tentative.count(range(max(now.tentative_from, there.start), end)):
            return found
        if is_behind and not is_same:
            return None  # whoever has no answers either takes nobody's place
        return found if position != place.position or found.undoes(place) is not None else None


def _told(
    replica: NumberedResults, told: Followed, seen: Seen, end: int, *, is_same: bool
) -> Followed:
    """What a reader has of the tentative results of a replica that it has read up to before a
    batch: all that stand."""
    standing = replica.tentative.end(end - 1).standing
    begin = end if standing is None else max(standing.stands_from, seen.there.start)
    # While the replica was behind, some were left out.
    if is_same and (standing is None or begin >= told.begun):
        return told.next(seen.log, told.batch, end, standing)
    return replace(told, log="").next(seen.log, begin, end, standing)


def _told_behind(
    replica: NumberedResults, told: Followed, seen: Seen, until: int | None, *, is_same: bool
) -> Followed:
    """The same of one that has not come as far as the reader: those that go by later tuples than
    all results of the reader's."""
    end, standing = seen.there.stop, seen.standing
    begin = replica.tentative.first_behind(until, seen.tentative)
    if is_same and begin <= max(told.begun, seen.tentative.start):
        return told.next(seen.log, told.batch, end, standing)
    return replace(told, log="").next(seen.log, begin, end, standing if begin < end else None)


def _admitted_end(
    replica: NumberedResults,
    position: Position,
    batches: range,
    there: range,
    most_rows: int | None,
) -> int:
    """The batch before which as many rows end as are asked for at most, tentative ones included,
    but behind one batch at least that has any; the end of the batches if there is no limit."""
    if most_rows is None:
        return there.stop
    before, tentative, reached = results_at(position), 0, there.stop
    for batch in batches:
        tentative += replica.tentative.count(range(batch, batch + 1))
        after = replica.position(batch + 1, there)
        if not has_reached(after, position):
            continue
        rows = results_at(after) - before + tentative
        if reached != there.stop and rows > most_rows:
            break
        if rows:
            reached = batch + 1
    return reached


def _later(one: int | None, other: int | None) -> int | None:
    times = [each for each in (one, other) if each is not None]
    return max(times, default=None)
