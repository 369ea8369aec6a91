"""Makes the decisions of a union: what is released next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trailmark.log import Clock, MonotonicClock, monotonic_us, wall_clock_us
from trailmark.streams.asking import Hands, InTurn
from trailmark.streams.boundaries import is_later, later
from trailmark.streams.promises import has_ended
from trailmark.streams.times import EARLIEST, LATEST
from trailmark.streams.union.ahead import Ahead, Phase, moved_on
from trailmark.streams.union.answering import Answering, Pace, Patience
from trailmark.streams.union.arrivals import Arrivals
from trailmark.streams.union.decision import Decision, Reached, Turn
from trailmark.streams.union.idle import Idleness
from trailmark.streams.union.inputs import Look, SeenBatch, UnionInput
from trailmark.streams.union.looking import Looking, boundary_of
from trailmark.streams.union.portions import Portions, Seen, meets
from trailmark.streams.union.rows import Piece
from trailmark.streams.union.telling import (
    tell_of_none_to_end,
    tell_of_phases,
    tell_of_timeless,
)
from trailmark.streams.union.turns import Turns

#: Single batches that are remembered beside those that follow one another.
_MOST_EARLY = 16


class Deciding:
    """A union over its inputs, in their order: of two rows with one time, that of the first counts
    first. ``looking`` is how it looks at them.

    Parameters
    ----------
    inputs
        The streams.
    interval_us
        Time is cut into slices of this length, and whole ones are released.
    most_rows
        About how many rows a batch has at most. A slice is not split.
    answering
        Within which bound it answers without streams that are missing; None waits for them.
    idle_after_us
        A stream that promises nothing, and has had nothing new for so long, is not waited for.
    now_us
        A clock that never goes back, by which rows wait.
    clock
        The time of day, for those who look.
    hands
        Who looks at the streams. Without any they are looked at one after another.
    turns
        Those that it takes with its replicas, so that they do not suspend answers at the same time.
    """

    def __init__(
        self,
        inputs: Sequence[UnionInput],
        interval_us: int,
        most_rows: int | None = None,
        answering: Answering | None = None,
        *,
        idle_after_us: int | None = None,
        now_us: MonotonicClock = monotonic_us,
        clock: Clock = wall_clock_us,
        hands: Hands | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._inputs = inputs
        self._answering = answering
        self._turns = turns
        self._now_us = now_us
        self._clock = clock
        self._ends = False
        self._arrivals = None if answering is None else Arrivals(answering.grace_us)
        #: A tentative part that is longer than this is not waited for.
        self._long_us = max(2 * interval_us, 0 if answering is None else answering.within_us)
        pace = None if answering is None else Pace(answering.batch_us)
        self._portions = Portions(interval_us, most_rows, pace, now_us)
        self._patience = Patience(None if answering is None else answering.give_up_us)
        self._idleness = Idleness(idle_after_us)
        self.looking = Looking(inputs, answering, hands or InTurn(), now_us, clock)

    def end_with_next_look(self) -> None:
        """What comes after the streams are looked at once more is not seen any more."""
        self._ends = True
        self.looking.end_with_next()

    def next(self, start: Decision) -> Decision:
        """The decision after another one, or the same if nothing more can be released."""
        self._portions.ended(start.number)
        asked_us = self._now_us()
        looks = self.looking.looks(start)
        self._idleness.saw(looks, self._now_us())
        away = [each.name for each in self._inputs if each.name not in looks]
        if away and self._answering is None:
            return start  # whoever waits for all of them waits for these, too
        standing = {name: start.inputs.get(name, look.at) for name, look in looks.items()}
        known = {each.name: boundary_of(each.name, start, looks) for each in self._inputs}
        own = {name: self._portions.slice_of(boundary_us) for name, boundary_us in known.items()}
        # Without another look nobody knows whether one is idle.
        idle = frozenset() if self._ends else self._idleness.idle(looks, own, asked_us)
        boundaries = own if self._ends else self._idleness.lifted(own)
        complete_us = _least(boundaries)
        turn = self._turn(start, complete_us)
        if turn is not None and not turn.is_own:
            complete_us = start.released_us  # it goes on answering as if they were not
        boundaries = {name: each for name, each in boundaries.items() if name not in idle}
        self._give_up(start, {name: known[name] for name in boundaries}, away)
        # How far one has come that has ended says nothing about others.
        going_on = [each for each in boundaries.values() if not has_ended(each)]
        due_us = self._due(looks, own, self._wait_us(start.ahead, complete_us))
        until_us = self._until(start, complete_us, going_on, due_us)
        is_new = is_later(complete_us, start.released_us) or is_later(until_us, start.until_us)
        if not is_new and not _begins_to_wait(turn, start):
            return start
        if self._answering is None and not self.looking.has_read(start, looks):
            return start
        there = [each for each in self._inputs if each.name in looks]
        seen = {
            each.name: each.batches(standing[each.name], looks[each.name].end) for each in there
        }
        released_us = self._released(start, complete_us, seen)
        is_through = not is_later(complete_us, released_us)
        if until_us is not None and (is_through or start.ahead is not None):
            until_us = self._portions.tentative_end(start, released_us, until_us, seen)
        else:
            until_us = None  # those that are complete come first
        ahead = self._ahead(start, released_us, until_us, complete_us, boundaries)
        if released_us == start.released_us and ahead == start.ahead:
            return start
        late = sum(
            each.count_late(batch, start.released_us)
            for each in there
            for batch in seen[each.name]
            if batch.batch >= standing[each.name].end
        )
        reached = dict(start.inputs)
        for name, look in looks.items():
            reached[name] = _reached(standing[name], look, seen[name], released_us)
        late_rows = start.late_rows + late
        resting = tuple(each.name for each in self._inputs if each.name in idle)
        if ahead is None and is_through:
            turn = None  # with this batch nothing waits any more
        found = Decision(
            start.number + 1, released_us, reached, late_rows, ahead, tuple(away), resting, turn
        )
        tell_of_phases(start, found)
        self._portions.begin(start, found, seen)
        return found

    def pieces(self, start: Decision, end: Decision) -> list[Piece]:
        """What has to be read for the rows that a decision releases."""
        for each in self._reached(end):
            before, reached = _before(start, end, each.name), end.inputs[each.name]
            new = [b for b in each.batches(before, reached.end) if b.batch >= before.end]
            tell_of_timeless(each.name, new)
        return self._pieces(start, end, start.released_us, end.released_us)

    def tentative_pieces(self, start: Decision, end: Decision) -> list[Piece]:
        """What has to be read for the rows that it gives out as tentative."""
        first_us, end_us = tentative_range(start, end)
        return self._pieces(start, end, first_us, end_us)

    def _pieces(
        self, start: Decision, end: Decision, first_us: int | None, end_us: int | None
    ) -> list[Piece]:
        found: list[Piece] = []
        if not is_later(end_us, first_us):
            return found
        assert end_us is not None
        there = self._reached(end)
        for place, each in enumerate(self._inputs):
            if each not in there:
                continue
            before = _before(start, end, each.name)
            batches = each.batches(before, end.inputs[each.name].end)
            found += [
                Piece(place, batch.batch, file, later(batch.late_before_us, first_us))
                for batch in batches
                for file in batch.files
                if meets(file.time_range, first_us, end_us)
            ]
        return found

    def _reached(self, end: Decision) -> list[UnionInput]:
        """The inputs that a decision reads."""
        return [each for each in self._inputs if each.name not in end.unreachable]

    def _turn(self, start: Decision, complete_us: int | None) -> Turn | None:
        """Whether it is its turn to correct, where there is something to correct."""
        if self._turns is None or self._ends:
            return None  # whoever goes on with what is there answers nobody meanwhile
        ahead = start.ahead
        if ahead is not None and complete_us is not None and complete_us >= ahead.until_us:
            return self._turns.ask()
        if ahead is None and start.turn is not None:
            return self._turns.keep()  # what has come during the correction still waits
        self._turns.give_back()  # all is done, or streams are missing, and new rows do not wait
        return None

    def _wait_us(self, ahead: Ahead | None, complete_us: int | None) -> int:
        """How long something waits."""
        if self._answering is None:
            return 0
        is_beside = ahead is not None and self._answering.choice(ahead, complete_us) == "delay"
        return self._answering.wait_us(self._portions.longest_us, is_beside=is_beside)

    def _due(
        self, looks: Mapping[str, Look], boundaries: Mapping[str, int | None], wait_us: int
    ) -> int | None:
        """What is before this time has waited as long as it may."""
        if self._arrivals is None:
            return None
        rows_end_us = {
            name: self._portions.end_of_slice(look.latest_us)
            for name, look in looks.items()
            if look.latest_us is not None
        }
        # One that has ended is complete for whatever it has.
        reached = [rows_end_us.get(n) if has_ended(b) else b for n, b in boundaries.items()]
        furthest_us = max((each for each in reached if each is not None), default=None)
        now_us = self._now_us()
        self._arrivals.saw(now_us, max(rows_end_us.values(), default=None), furthest_us)
        return self._arrivals.due_us(now_us, wait_us)

    def _give_up(
        self, start: Decision, boundaries: Mapping[str, int | None], away: Sequence[str]
    ) -> None:
        """Ends streams that have been missing for too long; the next look sees it."""
        if self._ends:
            return  # without another look nobody knows whether one has moved since
        missing = () if start.ahead is None else start.ahead.missing
        there = [name for name in missing if name in boundaries and name not in away]
        over = self._patience.is_over(there, boundaries, self._now_us())
        self.looking.end(over, start)
        away_us = {name: self.looking.away_us(name) for name in away}
        for name in self._patience.is_over_in_vain(away_us):
            tell_of_none_to_end(name)

    def _until(
        self,
        start: Decision,
        complete_us: int | None,
        boundaries: Sequence[int | None],
        due_us: int | None,
    ) -> int | None:
        """Up to which time rows are given out; None if that is only for complete ones."""
        if self._ends or self._answering is None:
            return None if start.ahead is None else start.ahead.until_us
        return self._answering.until_us(start.ahead, complete_us, boundaries, due_us)

    def _released(self, start: Decision, complete_us: int | None, seen: Seen) -> int | None:
        """Up to which time rows are released as stable ones."""
        if complete_us is None or not is_later(complete_us, start.released_us):
            return start.released_us
        wanted_us = self._portions.stable_end(start, complete_us, seen)
        if start.ahead is None:
            return wanted_us
        first = start.ahead.edges[0]
        first_us = first.time_us
        rest_us = start.ahead.rest_before(max(wanted_us, min(first_us, complete_us)))
        if rest_us is not None:
            return rest_us
        # No part ends by then. One that is long, because a stream was far ahead, is cut.
        is_long = start.released_us is None or first_us - start.released_us > self._long_us
        is_void = first.number < start.ahead.since
        return wanted_us if is_long or is_void else start.released_us

    def _ahead(
        self,
        start: Decision,
        released_us: int | None,
        until_us: int | None,
        complete_us: int | None,
        boundaries: Mapping[str, int | None],
    ) -> Ahead | None:
        """What is ahead of the released rows then."""
        until_us = later(until_us, None if start.ahead is None else start.ahead.until_us)
        if until_us is None or not is_later(until_us, released_us):
            return None
        missing = [name for name, each in boundaries.items() if is_later(until_us, each)]
        is_missing = complete_us is None or complete_us < until_us
        phase = Phase.UP_FAILURE if is_missing else Phase.STABILIZATION
        is_cut = (
            start.ahead is not None
            and released_us != start.released_us
            and all(released_us != edge.time_us for edge in start.ahead.edges)
        )
        return moved_on(
            start.ahead,
            released_us,
            until_us,
            start.number + 1,
            phase,
            missing,
            self._clock(),
            is_cut=is_cut,
        )


def tentative_range(start: Decision, end: Decision) -> tuple[int | None, int | None]:
    """From which time to before which a decision gives out tentative rows."""
    if end.ahead is None:
        return None, None
    first_us = end.released_us if start.ahead is None else start.ahead.until_us
    return later(first_us, end.released_us), end.ahead.until_us


def _begins_to_wait(turn: Turn | None, start: Decision) -> bool:
    """Whether it is another's turn, and nobody knows yet that this one waits for it."""
    return turn is not None and not turn.is_own and not start.waits_for_turn


def _least(boundaries: Mapping[str, int | None]) -> int | None:
    """Up to which time all streams are complete; None if that is not known of one."""
    known = [each for each in boundaries.values() if each is not None]
    return min(known) if len(known) == len(boundaries) else None


def _before(start: Decision, end: Decision, name: str) -> Reached:
    """Where a stream stood before a decision."""
    if name in start.inputs:
        return start.inputs[name]
    reached = end.inputs[name]
    return Reached(reached.log, reached.begun, reached.begun, reached.begun, None, None)


def _reached(
    before: Reached, look: Look, batches: Sequence[SeenBatch], released_us: int | None
) -> Reached:
    """How far a stream is through once everything before a time is released."""
    latest_us = before.latest_us
    for batch in batches:
        if batch.batch >= before.end and batch.times is not None:
            latest_us = later(latest_us, min(batch.times.max_us, LATEST))
    firsts = [*(each.batch for each in batches if not each.is_over(released_us)), look.end]
    # As many single ones, and then a range, as have the fewest batches together.
    count = min(range(min(len(firsts), _MOST_EARLY + 1)), key=lambda n: n - firsts[n])
    early, first = firsts[:count], firsts[count]
    boundary_us = None if look.boundary_us is None else max(EARLIEST, look.boundary_us)
    return Reached(before.log, before.begun, first, look.end, latest_us, boundary_us, tuple(early))
