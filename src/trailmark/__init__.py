"""Stateful streaming that recovers in bounded time.

The names below are what a user writes: an operator on a DataFrame, windows, functions and policies.
The engine that carries them out is in :mod:`trailmark.engine`.
"""

import typing as _typing

from trailmark.checkpoint.policy import (
    Continuous,
    CostBenefit,
    Delta,
    FullSnapshot,
    NoCheckpoint,
    SlowWindows,
    UpstreamBackup,
)
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

if _typing.TYPE_CHECKING:
    from trailmark.spark.aggregate import aggregate
    from trailmark.spark.listener import listen

__all__ = [
    "Continuous",
    "CostBenefit",
    "Delta",
    "FullSnapshot",
    "NoCheckpoint",
    "SlowWindows",
    "TrailmarkError",
    "UpstreamBackup",
    "UserFunction",
    "aggregate",
    "avg",
    "count",
    "count_window",
    "first",
    "last",
    "listen",
    "max",
    "min",
    "stddev",
    "sum",
    "time_window",
    "variance",
]


def __getattr__(name: str) -> _typing.Any:
    """What the driver uses is imported when it is used: workers that recover do without it."""
    if name == "aggregate":
        from trailmark.spark.aggregate import aggregate

        return aggregate
    if name == "listen":
        from trailmark.spark.listener import listen

        return listen
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
