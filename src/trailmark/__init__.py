"""Stateful streaming that recovers in bounded time.

The names below are what a user writes: windows, functions and policies. The engine that carries
them out is in :mod:`trailmark.engine`.
"""

from trailmark.checkpoint.policy import Continuous, NoCheckpoint
from trailmark.errors import TrailmarkError
from trailmark.windows.functions import (
    UserFunction,
    avg,
    count,
    first,
    last,
    max,
    min,
    stddev,
    sum,
    variance,
)
from trailmark.windows.spec import count_window, time_window

__all__ = [
    "Continuous",
    "NoCheckpoint",
    "TrailmarkError",
    "UserFunction",
    "avg",
    "count",
    "count_window",
    "first",
    "last",
    "max",
    "min",
    "stddev",
    "sum",
    "time_window",
    "variance",
]
