"""Makes the decisions of a union: what is released next."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from trailmark.log import TimeRange
from trailmark.streams.boundaries import later
from trailmark.streams.times import EARLIEST, LATEST
from trailmark.streams.union.amounts import Amounts
from trailmark.streams.union.decision import Decision, Reached
from trailmark.streams.union.inputs import Look, SeenBatch, UnionInput
from trailmark.streams.union.rows import Piece

_log = logging.getLogger("trailmark")

#: Single batches that are remembered beside those that follow one another.
_MOST_EARLY = 16


class Deciding:
    """A union over its inputs, in their order: of two rows with one time, that of the first counts
    first.

    Parameters
    ----------
    inputs
        The streams.
    interval_us
        Time is cut into slices of this length, and whole ones are released.
    most_rows
        About how many rows a batch has at most. A slice is not split.
    """

    def __init__(
        self, inputs: Sequence[UnionInput], interval_us: int, most_rows: int | None = None
    ) -> None:
        self._inputs = inputs
        self._interval_us = interval_us
        self._most_rows = most_rows
        self._ends = False
        self._target: Mapping[str, Look] | None = None
        self._begun: dict[str, Reached] = {}

    def end_with_next_look(self) -> None:
        """What comes after the streams are looked at once more is not seen any more."""
        self._ends = True

    def next(self, start: Decision) -> Decision:
        """The decision after another one, or the same if nothing more can be released."""
        standing = {each.name: self.standing(start, each) for each in self._inputs}
        looks = self._target
        if looks is None:
            looks = {each.name: each.look(standing[each.name]) for each in self._inputs}
            self._target = looks if self._ends else None
        boundaries = [look.boundary_us for look in looks.values()]
        known = [each for each in boundaries if each is not None]
        if len(known) < len(boundaries):
            return start
        released_us = self._slice_at(min(known))
        if released_us < EARLIEST or not _is_later(released_us, start.released_us):
            return start
        seen = {
            each.name: each.batches(standing[each.name], looks[each.name].end)
            for each in self._inputs
        }
        released_us = self._limited(start, released_us, seen)
        late = sum(
            each.count_late(batch, later(batch.late_before_us, start.released_us))
            for each in self._inputs
            for batch in seen[each.name]
            if batch.batch >= standing[each.name].end
        )
        reached = {
            name: _reached(standing[name], look, seen[name], released_us)
            for name, look in looks.items()
        }
        return Decision(start.number + 1, released_us, reached, start.late_rows + late)

    def standing(self, start: Decision, each: UnionInput) -> Reached:
        """Where a stream stands; as long as nothing is decided, where it began when it was first
        looked at."""
        if each.name in start.inputs:
            return start.inputs[each.name]
        if each.name not in self._begun:
            self._begun[each.name] = each.begin()
        return self._begun[each.name]

    def pieces(self, start: Decision, end: Decision) -> list[Piece]:
        """What has to be read for the rows that a decision releases."""
        assert end.released_us is not None, "it releases something"
        found = []
        for place, each in enumerate(self._inputs):
            before = _before(start, end, each.name)
            batches = each.batches(before, end.inputs[each.name].end)
            _tell_of_timeless(each.name, [batch for batch in batches if batch.batch >= before.end])
            found += [
                Piece(place, batch.batch, file, later(batch.late_before_us, start.released_us))
                for batch in batches
                for file in batch.files
                if _meets(file.time_range, start.released_us, end.released_us)
            ]
        return found

    def _slice_at(self, time_us: int) -> int:
        """The beginning of the slice that a time is in."""
        return time_us // self._interval_us * self._interval_us

    def _limited(
        self, start: Decision, released_us: int, seen: Mapping[str, Sequence[SeenBatch]]
    ) -> int:
        """The end of as many slices as have about the rows that are wanted; of one at least."""
        if self._most_rows is None:
            return released_us
        waiting = [
            (file.time_range, file.rows)
            for batches in seen.values()
            for batch in batches
            for file in batch.files
            if file.time_range is not None
            and _meets(file.time_range, start.released_us, released_us)
        ]
        amounts = Amounts(waiting, start.released_us, released_us)
        at_us = amounts.time_of(self._most_rows)
        if at_us is None:
            return released_us
        first_us = later(start.released_us, self._slice_at(amounts.first_us))
        assert first_us is not None
        # A batch that releases no slice would be one for nothing.
        return min(max(self._slice_at(at_us), first_us + self._interval_us), released_us)


def _tell_of_timeless(name: str, batches: Sequence[SeenBatch]) -> None:
    """Files of which no row has a time are in no piece, so nobody else would."""
    for batch in batches:
        rows = sum(file.rows for file in batch.files if file.time_range is None)
        if rows:
            _log.warning(
                "input %s: %d rows of batch %d have no time, so no place in the order; they are "
                "left out.",
                name,
                rows,
                batch.batch,
            )


def _is_later(time_us: int, than_us: int | None) -> bool:
    return than_us is None or time_us > than_us


def _meets(times: TimeRange | None, first_us: int | None, end_us: int) -> bool:
    """Whether some time of a range may be from one to before another."""
    if times is None:
        return False
    return times.min_us < end_us and (first_us is None or times.max_us >= first_us)


def _before(start: Decision, end: Decision, name: str) -> Reached:
    """Where a stream stood before a decision."""
    if name in start.inputs:
        return start.inputs[name]
    reached = end.inputs[name]
    return Reached(reached.log, reached.begun, reached.begun, reached.begun, None, None)


def _reached(
    before: Reached, look: Look, batches: Sequence[SeenBatch], released_us: int
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
    return Reached(look.log, before.begun, first, look.end, latest_us, boundary_us, tuple(early))
