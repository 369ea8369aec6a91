"""Where a log's times come from: an argument, so that a test decides what time it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

#: Microseconds since 1970-01-01 UTC.
Clock: TypeAlias = Callable[[], int]


#: Microseconds since some moment; never goes back, and is the same for all processes of a host.
MonotonicClock: TypeAlias = Callable[[], float]


def monotonic_us() -> float:
    """A clock to measure work with."""
    return time.monotonic_ns() / 1_000


def wall_clock_us() -> int:
    """The machine's own time."""
    return time.time_ns() // 1_000
