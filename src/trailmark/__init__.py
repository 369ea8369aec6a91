"""Stateful streaming that recovers in bounded time.

The names below are what a user writes: an operator on a DataFrame, windows, functions and policies.
The engine that carries them out is in :mod:`trailmark.engine`.
"""

import typing as _typing

from trailmark.errors import TrailmarkError
from trailmark.windows.functions import (
    UserFunction,
    approx_count_distinct,
    avg,
    collect_list,
    collect_set,
    count,
    count_distinct,
    first,
    last,
    max,
    min,
    percentile,
    stddev,
    sum,
    variance,
)
from trailmark.windows.interval import interval
from trailmark.windows.last_tuples import last_tuples
from trailmark.windows.lists import extend_lists
from trailmark.windows.session import session_window
from trailmark.windows.spec import count_window, time_window

if _typing.TYPE_CHECKING:
    from trailmark import testing
    from trailmark.checkpoint.policy import (
        Continuous,
        CostBenefit,
        Delta,
        FullSnapshot,
        Incremental,
        NoCheckpoint,
        Periodic,
        SlowWindows,
        UpstreamBackup,
    )
    from trailmark.drawing.shown import status
    from trailmark.spark.aggregate import aggregate
    from trailmark.spark.apply import apply
    from trailmark.spark.barrier import barrier
    from trailmark.spark.explain import explain, explanation
    from trailmark.spark.heartbeats import with_heartbeat
    from trailmark.spark.join import join
    from trailmark.spark.listener import listen
    from trailmark.spark.marks import stable
    from trailmark.spark.register import register
    from trailmark.spark.standby import standby
    from trailmark.spark.union import union
    from trailmark.streams.own_writer import stream_writer
    from trailmark.streams.table import read_table

    __version__: str

__all__ = [
    "Continuous",
    "CostBenefit",
    "Delta",
    "FullSnapshot",
    "Incremental",
    "NoCheckpoint",
    "Periodic",
    "SlowWindows",
    "TrailmarkError",
    "UpstreamBackup",
    "UserFunction",
    "aggregate",
    "apply",
    "approx_count_distinct",
    "avg",
    "barrier",
    "collect_list",
    "collect_set",
    "count",
    "count_distinct",
    "count_window",
    "explain",
    "explanation",
    "extend_lists",
    "first",
    "interval",
    "join",
    "last",
    "last_tuples",
    "listen",
    "max",
    "min",
    "percentile",
    "read_table",
    "register",
    "session_window",
    "stable",
    "standby",
    "status",
    "stddev",
    "stream_writer",
    "sum",
    "testing",
    "time_window",
    "union",
    "variance",
    "with_heartbeat",
]


_LATER = {
    **dict.fromkeys(
        (
            *("Continuous", "CostBenefit", "Delta", "FullSnapshot", "Incremental", "NoCheckpoint"),
            *("Periodic", "SlowWindows", "UpstreamBackup"),
        ),
        "trailmark.checkpoint.policy",
    ),
    "aggregate": "trailmark.spark.aggregate",
    "apply": "trailmark.spark.apply",
    "barrier": "trailmark.spark.barrier",
    **dict.fromkeys(("explain", "explanation"), "trailmark.spark.explain"),
    "join": "trailmark.spark.join",
    "listen": "trailmark.spark.listener",
    "read_table": "trailmark.streams.table",
    "register": "trailmark.spark.register",
    "stable": "trailmark.spark.marks",
    "standby": "trailmark.spark.standby",
    "status": "trailmark.drawing.shown",
    "stream_writer": "trailmark.streams.own_writer",
    "union": "trailmark.spark.union",
    "with_heartbeat": "trailmark.spark.heartbeats",
}


def __getattr__(name: str) -> _typing.Any:
    """What the driver uses is imported when it is used: workers that recover, or commit to a
    stream, do without it."""
    import importlib

    if name == "testing":
        return importlib.import_module("trailmark.testing")
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("trailmark")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
