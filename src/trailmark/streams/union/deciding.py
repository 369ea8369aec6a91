"""Makes the decisions of a union: what is released next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trailmark.log import TimeRange
from trailmark.streams.boundaries import later
from trailmark.streams.times import EARLIEST
from trailmark.streams.union.decision import Decision, Reached
from trailmark.streams.union.inputs import Look, SeenBatch, UnionInput
from trailmark.streams.union.rows import Piece


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

    def end_with_next_look(self) -> None:
        """What comes after the streams are looked at once more is not seen any more."""
        self._ends = True

    def next(self, start: Decision) -> Decision:
        """The decision after another one, or the same if nothing more can be released."""
        seen = self._look(start)
        boundaries = [look.boundary_us for look in seen.values()]
        known = [each for each in boundaries if each is not None]
        if len(known) < len(boundaries):
            return start
        released_us = self._slice_at(min(known))
        if released_us < EARLIEST or not _is_later(released_us, start.released_us):
            return start
        released_us = self._limited(start, released_us, seen)
        late = sum(
            each.count_late(batch, later(batch.late_before_us, start.released_us))
            for each in self._inputs
            for batch in _new(seen[each.name].batches, start.inputs.get(each.name))
        )
        reached = {
            name: _reached(look, start.inputs.get(name), released_us) for name, look in seen.items()
        }
        return Decision(start.number + 1, released_us, reached, start.late_rows + late)

    def pieces(self, start: Decision, end: Decision) -> list[Piece]:
        """What has to be read for the rows that a decision releases."""
        assert end.released_us is not None, "it releases something"
        return [
            Piece(place, batch.batch, file, later(batch.late_before_us, start.released_us))
            for place, each in enumerate(self._inputs)
            for batch in self._between(each, start, end)
            for file in batch.files
            if _meets(file.time_range, start.released_us, end.released_us)
        ]

    def _between(self, each: UnionInput, start: Decision, end: Decision) -> Sequence[SeenBatch]:
        return each.between(start.inputs.get(each.name), end.inputs[each.name].end)

    def _look(self, start: Decision) -> Mapping[str, Look]:
        if self._target is None:
            found = {each.name: each.look(start.inputs.get(each.name)) for each in self._inputs}
            self._target = found if self._ends else None
            return found
        return {
            each.name: Look(
                look.log,
                each.between(start.inputs.get(each.name), look.end),
                look.end,
                look.boundary_us,
            )
            for each, look in zip(self._inputs, self._target.values(), strict=True)
        }

    def _slice_at(self, time_us: int) -> int:
        """The beginning of the slice that a time is in."""
        return time_us // self._interval_us * self._interval_us

    def _limited(self, start: Decision, released_us: int, seen: Mapping[str, Look]) -> int:
        """The end of as many slices as have about the rows that are wanted; of one at least."""
        if self._most_rows is None:
            return released_us
        waiting = sorted(
            (file.time_range.min_us, file.rows)
            for look in seen.values()
            for batch in look.batches
            for file in batch.files
            if file.time_range is not None
            and _meets(file.time_range, start.released_us, released_us)
        )
        # A batch that releases no slice would be one for nothing.
        first_us = later(start.released_us, self._slice_at(waiting[0][0])) if waiting else None
        rows = 0
        for begins_us, count in waiting:
            at_us = self._slice_at(begins_us)
            if rows and rows + count > self._most_rows and _is_later(at_us, first_us):
                return min(at_us, released_us)
            rows += count
        return released_us


def _is_later(time_us: int, than_us: int | None) -> bool:
    return than_us is None or time_us > than_us


def _meets(times: TimeRange | None, first_us: int | None, end_us: int) -> bool:
    """Whether some time of a range may be from one to before another."""
    if times is None:
        return False
    return times.min_us < end_us and (first_us is None or times.max_us >= first_us)


def _new(batches: Sequence[SeenBatch], before: Reached | None) -> Sequence[SeenBatch]:
    """Those that were not looked at before."""
    return batches if before is None else [each for each in batches if each.batch >= before.end]


def _reached(look: Look, before: Reached | None, released_us: int) -> Reached:
    """How far a stream is through once everything before a time is released."""
    latest_us = None if before is None else before.latest_us
    for batch in look.batches:
        if not batch.is_over(released_us):
            return Reached(look.log, batch.batch, look.end, latest_us, look.boundary_us)
        latest_us = later(latest_us, batch.latest_us)
    return Reached(look.log, look.end, look.end, latest_us, look.boundary_us)
