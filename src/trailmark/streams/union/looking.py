"""How a union looks at its streams, and what it says to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from trailmark.log import Clock, MonotonicClock
from trailmark.streams.asking import Asking, Hands, Unreached
from trailmark.streams.promises import has_ended
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.decision import Decision
from trailmark.streams.union.inputs import Look, UnionInput
from trailmark.streams.union.telling import TellOfStreams, tell_of_end, tell_of_far_ahead

#: A stream that says it is complete up to a time so far ahead of the clock is told of.
_FAR_AHEAD_US = 86_400_000_000


class Looking:
    """All that a union that runs asks of the storage of its streams.

    One that answers within a bound is told by a look all that a decision needs; one that waits
    for all streams reads manifests when there is something to release.

    Parameters
    ----------
    inputs
        The streams.
    answering
        The bound, if there is one.
    hands
        Who looks.
    now_us, clock
        A clock that never goes back, and the time of day.
    """

    def __init__(
        self,
        inputs: Sequence[UnionInput],
        answering: Answering | None,
        hands: Hands,
        now_us: MonotonicClock,
        clock: Clock,
    ) -> None:
        self._inputs = inputs
        self._is_thorough = answering is not None
        self._clock = clock
        patience_us = 0 if answering is None else answering.look_us
        self._asking = Asking(hands, patience_us, now_us, clock, TellOfStreams())
        self._last: dict[str, Look] | None = None
        self._told_ahead: set[str] = set()

    @property
    def unreachable(self) -> Mapping[str, Unreached]:
        """The streams that cannot be reached now."""
        return self._asking.unreachable

    def away_us(self, name: str) -> float:
        """How long a stream has not answered."""
        return self._asking.away_us(name)

    def end_with_next(self) -> None:
        """The next look is the last one, and waits for all streams."""
        self._asking.insists = True

    def looks(self, start: Decision) -> dict[str, Look]:
        """How far the streams have come that can be reached."""
        if self._last is not None:
            return self._last
        # Which rows are late depends on what is released.
        what = ("look", start.released_us)
        looks = self._asking.ask(
            what, {each.name: self._look(each, start) for each in self._inputs}
        )
        self._last = looks if self._asking.insists else None
        self._tell_of_far_ahead(looks)
        return looks

    def has_read(self, start: Decision, looks: Mapping[str, Look]) -> bool:
        """Whether all that a decision asks for could be read."""
        work = {
            each.name: partial(
                each.read,
                start.inputs.get(each.name, looks[each.name].at),
                looks[each.name].end,
                start.released_us,
            )
            for each in self._inputs
        }
        return len(self._asking.ask(("read", start.number), work)) == len(work)

    def acknowledge(self, decision: Decision) -> None:
        """Lets go, for a named reader, of what no batch after a decision can ask for again."""
        needs = {name: each.needs for name, each in decision.inputs.items()}
        work = {
            each.name: partial(each.acknowledge, needs[each.name])
            for each in self._inputs
            if each.name in needs and not self._asking.is_away(each.name)
            if not each.has_acknowledged(needs[each.name])
        }
        self._asking.ask(("acknowledge", decision.number), work)

    def end(self, names: Collection[str], start: Decision) -> None:
        """Ends streams for all who read them."""
        now_us = self._clock()
        work = {
            each.name: partial(_end, each, start, now_us)
            for each in self._inputs
            if each.name in names
        }
        self._asking.ask(("end", start.number), work)

    def _tell_of_far_ahead(self, looks: Mapping[str, Look]) -> None:
        """One row with a wrong time makes all that follow it late, and nobody would know why."""
        for name, look in looks.items():
            if look.boundary_us is None or name in self._told_ahead:
                continue
            by_us = look.boundary_us - self._clock()
            if by_us > _FAR_AHEAD_US and not has_ended(look.boundary_us):
                self._told_ahead.add(name)
                tell_of_far_ahead(name, look.boundary_us, by_us)

    def _look(self, each: UnionInput, start: Decision) -> Callable[[], Look]:
        at = start.inputs.get(each.name)
        if self._is_thorough:
            return partial(each.look_through, at, start.released_us)
        return partial(each.look, at)


def boundary_of(name: str, start: Decision, looks: Mapping[str, Look]) -> int | None:
    """Up to which time a stream is complete. What it has that is not released cannot be read while
    it does not answer, and then no more is complete."""
    if name in looks:
        return looks[name].boundary_us
    reached = start.inputs.get(name)
    if reached is None or reached.boundary_us is None:
        return None
    is_through = reached.needs == reached.end
    if is_through or start.released_us is None:
        return reached.boundary_us if is_through else None
    return min(reached.boundary_us, start.released_us)


def _end(each: UnionInput, start: Decision, now_us: int) -> None:
    tell_of_end(each.name, start, each.give_up(now_us))
