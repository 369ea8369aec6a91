"""The boundary of a union, for operators behind it: up to which time their input is complete.

What a union has released up to is known exactly, also while no rows come. The time column of its
result says in its metadata where the union keeps its decisions, and an operator whose event time
that column is goes by these instead of by the times of the rows.

Between the two there may be whatever looks at one row at a time. If rows of anything else are added
or held back on the way, the boundary says nothing about them, and the times of rows count as ever.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from trailmark.operators.protocol import Port
from trailmark.spark.internals import Source, source_row_by_row
from trailmark.spark.union_source import UnionSource

_KEY = "trailmark.boundary"


def boundary_at(path: str) -> dict[str, str]:
    """The metadata of the time column of a union."""
    return {_KEY: path}


def boundary_of(df: DataFrame, port: Port) -> str | None:
    """Where the boundary of an input is kept; None where it has none but the times of its rows."""
    union = None if port.event_time is None else union_of(df, port.event_time)
    return None if union is None else union.paths[0]


def union_of(df: DataFrame, time: str, *, in_order: bool = False) -> Source | None:
    """The union whose rows a DataFrame has one by one, with their times in this column, and with
    ``in_order`` in the order of the union; None if there is none."""
    if not df.isStreaming or time not in df.columns:
        return None
    path = df.schema[time].metadata.get(_KEY)
    source = source_row_by_row(df, _KEY, in_order=in_order) if isinstance(path, str) else None
    is_union = source is not None and (source.format, source.paths) == (UnionSource.name(), (path,))
    return source if is_union else None
