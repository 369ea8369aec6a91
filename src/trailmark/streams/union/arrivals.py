"""How long what a union has seen has been waiting, by a clock that never goes back."""

from __future__ import annotations

from collections import deque

from trailmark.streams.times import LATEST


class Arrivals:
    """Times up to which rows, and boundaries, have been seen, and when.

    Parameters
    ----------
    grace_us
        How long rows wait at least once some stream is complete for them: where that is much later
        than they came, the others are about to be.
    """

    def __init__(self, grace_us: int) -> None:
        self._since_us: float | None = None
        self._grace_us = grace_us
        self._rows = _Seen()
        self._boundaries = _Seen()
        self._reached = _Seen()

    def saw(self, now_us: float, rows_end_us: int | None, boundary_us: int | None) -> None:
        """At this moment there are rows before one time, and some stream is complete up to
        another."""
        if rows_end_us is not None:
            self._rows.add(rows_end_us, now_us)
        if boundary_us is not None:
            self._boundaries.add(boundary_us, now_us)
            self._reached.add(boundary_us, now_us)

    def due_us(self, now_us: float, wait_us: int) -> int | None:
        """The time up to which nothing may wait any longer, if it may for so long; None if there is
        none. What may not once may not later.

        Rows of a time that no stream has reached may: others with it are still to come, or a clock
        is wrong.
        """
        since_us = now_us - wait_us
        if self._since_us is not None:
            since_us = max(since_us, self._since_us)
        self._since_us = since_us
        reached_us = self._reached.before(now_us - self._grace_us)
        rows_us = None if reached_us is None else self._rows.before(since_us, reached_us)
        boundary_us = self._boundaries.before(since_us)
        found = [each for each in (rows_us, boundary_us) if each is not None]
        return max(found, default=None)


class _Seen:
    """Times that only grow, each with the moment when it was first seen."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float]] = deque()
        self._latest_us: int | None = None
        self._ripe_us: int | None = None

    def add(self, time_us: int, now_us: float) -> None:
        if self._latest_us is None or time_us > self._latest_us:
            self._latest_us = time_us
            self._waiting.append((time_us, now_us))

    def before(self, moment_us: float, limit_us: int = LATEST) -> int | None:
        """The latest time up to a limit that was seen by a moment. Both only grow, too."""
        while self._waiting and self._waiting[0][1] <= moment_us:
            if self._waiting[0][0] > limit_us:
                break
            self._ripe_us = self._waiting.popleft()[0]
        return self._ripe_us
