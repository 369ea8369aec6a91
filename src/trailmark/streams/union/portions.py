"""How much a union releases at once: whole slices of time, with about as many rows as a batch may
have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from trailmark.log import MonotonicClock, TimeRange
from trailmark.streams.boundaries import is_later, later
from trailmark.streams.times import EARLIEST
from trailmark.streams.union.amounts import Amounts
from trailmark.streams.union.answering import Pace
from trailmark.streams.union.decision import Decision
from trailmark.streams.union.inputs import SeenBatch

#: What is seen of each stream.
Seen: TypeAlias = Mapping[str, Sequence[SeenBatch]]


class Portions:
    """Says where a batch ends.

    Parameters
    ----------
    interval_us
        Time is cut into slices of this length. None is split.
    most_rows
        About how many rows a batch has at most.
    pace
        How many it has while others wait for it; None if nobody ever does.
    now_us
        Measures how long batches take.
    """

    def __init__(
        self, interval_us: int, most_rows: int | None, pace: Pace | None, now_us: MonotonicClock
    ) -> None:
        self._interval_us = interval_us
        self._most_rows = most_rows
        self._pace = pace
        self._now_us = now_us

    def slice_of(self, time_us: int | None) -> int | None:
        """The beginning of the slice that a time is in; None for one before all times."""
        if time_us is None:
            return None
        found = self._slice_at(time_us)
        return None if found < EARLIEST else found

    def end_of_slice(self, time_us: int) -> int:
        """The end of the slice that a time is in."""
        return self._slice_at(time_us) + self._interval_us

    def _slice_at(self, time_us: int) -> int:
        return time_us // self._interval_us * self._interval_us

    @property
    def longest_us(self) -> float:
        """How long the longest of the last batches took that others waited for."""
        return 0.0 if self._pace is None else self._pace.longest_us

    def ended(self, number: int) -> None:
        """Whoever asks for what comes after a batch is through with it."""
        if self._pace is not None:
            self._pace.ended(number, self._now_us())

    def begin(self, start: Decision, found: Decision, seen: Seen) -> None:
        """A batch begins that goes from one decision to another."""
        if self._pace is not None:
            rows = _rows_between(seen, start.released_us, found.released_us)
            rows += _rows_between(seen, later(start.until_us, found.released_us), found.until_us)
            self._pace.begin(found.number, rows, self._now_us())

    def stable_end(self, start: Decision, complete_us: int, seen: Seen) -> int:
        """Up to which time a batch releases rows, of those that are complete up to a later one."""
        least_us = 0 if self._pace is None else self._pace.least_replaced_us
        return self._limited(start.released_us, complete_us, seen, start, least_us)

    def tentative_end(
        self, start: Decision, released_us: int | None, until_us: int, seen: Seen
    ) -> int:
        """Up to which time a batch gives out rows, of those that it might up to a later one."""
        least_us = 0 if self._pace is None else self._pace.least_new_us
        begin_us = later(start.until_us, released_us)
        return self._limited(begin_us, until_us, seen, start, least_us)

    def _limited(
        self, first_us: int | None, end_us: int, seen: Seen, start: Decision, least_us: int
    ) -> int:
        """The end of as many slices from a time on as a batch may have: about so many rows as the
        union was told; while others wait for it, few, but no less time than ``least_us``. At least
        one slice."""
        pace = None if start.ahead is None else self._pace
        if (pace is None and self._most_rows is None) or not is_later(end_us, first_us):
            return end_us
        amounts = _amounts(seen, first_us, end_us)
        begin_us = later(first_us, self._slice_at(amounts.first_us))
        assert begin_us is not None
        limits = [end_us]
        if self._most_rows is not None:
            limits.append(self._end_of(self._most_rows, amounts, begin_us, end_us))
        if pace is not None:
            paced_us = self._end_of(pace.rows, amounts, begin_us, end_us)
            limits.append(max(paced_us, self._slice_at(begin_us + least_us)))
        return min(limits)

    def _end_of(self, rows: int, amounts: Amounts, begin_us: int, end_us: int) -> int:
        """The end of as many slices as have about so many rows, and of one at least: a batch that
        releases no slice would be one for nothing."""
        at_us = amounts.time_of(rows)
        if at_us is None:
            return end_us
        return max(self._slice_at(at_us), begin_us + self._interval_us)


def meets(times: TimeRange | None, first_us: int | None, end_us: int) -> bool:
    """Whether some time of a range may be from one to before another."""
    if times is None:
        return False
    return times.min_us < end_us and (first_us is None or times.max_us >= first_us)


def _amounts(seen: Seen, first_us: int | None, end_us: int) -> Amounts:
    waiting = [
        (file.time_range, file.rows)
        for batches in seen.values()
        for batch in batches
        for file in batch.files
        if file.time_range is not None and meets(file.time_range, first_us, end_us)
    ]
    return Amounts(waiting, first_us, end_us)


def _rows_between(seen: Seen, first_us: int | None, end_us: int | None) -> float:
    if end_us is None or not is_later(end_us, first_us):
        return 0.0
    return _amounts(seen, first_us, end_us).total
