"""The last hour of an operator, in memory: a point for every look."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from typing import NamedTuple

from trailmark.inspection import BucketStatus, OperatorStatus, Recovered
from trailmark.streams.status import StreamStatus
from trailmark.watch.pictures import Picture

#: How long figures are kept, and how many recoveries.
KEPT_US = 3_600_000_000
_RECOVERIES = 100
#: Tuples per second are those of the last looks that are this long apart together.
_RATE_US = 10_000_000


class Point(NamedTuple):
    """What one look has shown; None where it is not known.

    ``predicted_us`` is the longest recovery of any bucket, ``objective_us`` the shortest objective.
    """

    at_us: int
    predicted_us: int | None
    objective_us: int | None
    rate: float | None


class History:
    """Points of one path, the oldest first, and the recoveries that were seen."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque()
        self._buckets: deque[array[float]] = deque()
        self._totals: deque[tuple[int, int]] = deque()
        self._newest: dict[int, tuple[int, int]] = {}
        #: The last recoveries that were seen, the newest first.
        self.recoveries: tuple[Recovered, ...] = ()
        #: How many there were since the first look, also those that are not kept.
        self.recoveries_since = 0

    def add(self, picture: Picture) -> None:
        """Takes what a look has shown."""
        rate = self._rate(picture)
        if isinstance(picture, OperatorStatus):
            objectives = [b.objective_us for b in picture.buckets if b.objective_us is not None]
            least = min(objectives, default=None)
            self._points.append(Point(picture.looked_us, picture.predicted_us, least, rate))
            self._buckets.append(array("d", map(_predicted, picture.buckets)))
            self._remember(picture)
        else:
            self._points.append(Point(picture.looked_us, None, None, rate))
            self._buckets.append(array("d"))
        while self._points[0].at_us <= picture.looked_us - KEPT_US:
            self._points.popleft()
            self._buckets.popleft()

    def after(self, at_us: int) -> list[Point]:
        """The points after a moment."""
        first = bisect_right(self._points, at_us, key=lambda point: point.at_us)
        return [self._points[place] for place in range(first, len(self._points))]

    def of_bucket(self, bucket: int, at_us: int) -> list[tuple[int, int | None]]:
        """The predicted recovery of one bucket after a moment."""
        found: list[tuple[int, int | None]] = []
        for point, buckets in zip(self._points, self._buckets, strict=True):
            if point.at_us > at_us:
                known = bucket < len(buckets) and buckets[bucket] >= 0
                found.append((point.at_us, int(buckets[bucket]) if known else None))
        return found

    def _rate(self, picture: Picture) -> float | None:
        total = _total(picture)
        if total is None:
            return None
        totals = self._totals
        if totals and total < totals[-1][1]:
            totals.clear()  # the log was cut, or is another one
        totals.append((picture.looked_us, total))
        while len(totals) > 2 and totals[1][0] <= picture.looked_us - _RATE_US:
            totals.popleft()
        span = picture.looked_us - totals[0][0]
        return (total - totals[0][1]) * 1e6 / span if span > 0 else None

    def _remember(self, status: OperatorStatus) -> None:
        new = []
        for bucket in status.buckets:
            found = bucket.recovery
            if found is None:
                continue
            place = (found.batch, found.written_us)
            if self._newest.get(found.bucket) != place:
                self._newest[found.bucket] = place
                new.append(found)
        if not new:
            return
        if len(self._points) > 1:
            self.recoveries_since += len(new)
        kept = sorted([*new, *self.recoveries], key=lambda each: -each.written_us)
        self.recoveries = tuple(kept[:_RECOVERIES])


def _predicted(bucket: BucketStatus) -> float:
    return -1.0 if bucket.account is None else float(bucket.account.predicted_us)


def _total(picture: Picture) -> int | None:
    """Tuples taken in, or rows written, since the log began."""
    if isinstance(picture, OperatorStatus):
        return sum(account.inputs_total for account in picture.accounts)
    if isinstance(picture, StreamStatus):
        return None if picture.total is None else picture.total.rows
    return None
