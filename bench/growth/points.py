"""What grows, and the sizes it is measured at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.experiment import Effort
from bench.growth.histogram import histogram
from bench.orders import SCHEMA, WINDOW
from trailmark.operators.aggregate import Aggregate
from trailmark.windows import functions as f
from trailmark.windows.spec import count_window

#: What grows, as the page names it.
UNITS = {
    "ids": "ids",
    "state": "bytes of state per window",
    "batch": "tuples per batch",
    "buckets": "buckets",
}

#: Tuples that a point is given in a turn, at least; and how many batches that may be at most.
_TUPLES_PER_TURN = 400_000
_MOST_BATCHES = 24
#: With wider states a batch moves hundreds of megabytes, and one is enough.
_WIDE_BYTES = 1 << 10


@dataclass(frozen=True, slots=True)
class Point:
    """One setting: ``size`` is what grows along ``axis``.

    ``histogram_bytes``: the state of a window is a histogram so wide; None: that of an average.
    """

    axis: str
    size: int
    ids: int = 100_000
    tuples: int = 100_000
    buckets: int = 1
    histogram_bytes: int | None = None

    @property
    def name(self) -> str:
        return f"{self.axis} {self.size}"

    @property
    def batches(self) -> int:
        """Batches of a turn."""
        if self.histogram_bytes is not None and self.histogram_bytes > _WIDE_BYTES:
            return 1
        return min(_MOST_BATCHES, max(1, _TUPLES_PER_TURN // self.tuples))

    def operator(self) -> Aggregate:
        value: f.AnyFunction = f.avg("item_price")
        if self.histogram_bytes is not None:
            value = histogram("item_price", self.histogram_bytes)
        window = count_window(WINDOW)
        return Aggregate(SCHEMA, by="item_id", window=window, values={"value": value})


@dataclass(frozen=True, slots=True)
class Axis:
    """Points that differ in one thing only."""

    name: str
    points: Sequence[Point]


def axes(effort: Effort) -> tuple[Axis, ...]:
    ids = [1_000, 10_000, 100_000, 1_000_000, *effort.pick([], [10_000_000])]
    widths = effort.pick([16, 128, 1_024, 16_384], [16, 64, 256, 1_024, 4_096, 16_384])
    tuples = [1_000, 10_000, 100_000, 1_000_000, *effort.pick([], [5_000_000])]
    return (
        Axis("ids", [Point("ids", n, ids=n) for n in ids]),
        Axis("state", [Point("state", n, ids=10_000, histogram_bytes=n) for n in widths]),
        Axis("batch", [Point("batch", n, tuples=n) for n in tuples]),
        Axis("buckets", [_in_buckets(n) for n in (1, 4, 16, 64)]),
    )


def _in_buckets(number: int) -> Point:
    return Point("buckets", number, tuples=1_000_000, buckets=number)
