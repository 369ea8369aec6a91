"""`tm.aggregate`: a streaming DataFrame in, a streaming DataFrame out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark

from trailmark.checkpoint.policy import Policy
from trailmark.engine.losses import LossText
from trailmark.errors import SettingError
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.aggregate.arguments import AnyWindow
from trailmark.operators.late import Late
from trailmark.operators.sessions import Sessions, windowed
from trailmark.settings import Durability
from trailmark.spark.arguments import CommonArguments, check_dataframe
from trailmark.spark.columns import own_functions
from trailmark.spark.operate import Operation, operate
from trailmark.spark.types import arrow_type, spark_type
from trailmark.windows.functions import AnyFunction
from trailmark.windows.session import SessionWindow
from trailmark.windows.spec import TimeWindow


def aggregate(
    df: DataFrame,
    *,
    by: str | Sequence[str],
    window: AnyWindow,
    values: Mapping[str, AnyFunction | Column],
    path: str | os.PathLike[str],
    checkpoint: Policy | None = None,
    recover_within: str | timedelta | None = None,
    loss: LossText = "none",
    buckets: int | None = None,
    late: Late = "drop",
    order_by: str | Sequence[str] | None = None,
    flush: bool = False,
    numbered: bool = False,
    retain_batches: int | None = 100,
    durability: Durability | Literal["synced", "unsynced"] = Durability.SYNCED,
    cache_dir: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Aggregate a stream over windows, with state that recovers in bounded time.

    The result is a DataFrame like any other: filter it, join it, aggregate it again, write it to
    any sink in append mode. It has the key columns, for time windows a ``window`` column with
    ``start`` and ``end`` and for sessions a ``session_window`` column with these, and one column
    per value.

    Parameters
    ----------
    df
        A streaming DataFrame. A DataFrame that does not stream is aggregated as one batch, without
        logs.
    by
        Key column, or a list of them. An empty list: windows over all rows, in one bucket, whose
        tuples one task takes.
    window
        :func:`trailmark.count_window`, :func:`trailmark.time_window` or
        :func:`trailmark.session_window`.
    values
        Names of result columns and the functions that compute them: Trailmark's, such as
        :func:`trailmark.avg`, or columns of Spark's that call one of the same functions, such as
        ``F.avg("price")``.
    path
        Directory or ``s3://`` URL of this operator's logs; it belongs to one query. Executors on
        several hosts need a path that all of them reach.
    checkpoint
        Policy, such as ``tm.Continuous(q=200_000)``; never changes results, only costs.
    recover_within
        Instead of ``checkpoint``: how long the recovery of a bucket may take. Default 5 seconds.
    loss
        ``"none"``: a recovery is exact. ``"bounded"``: it loads what was checkpointed and replays
        no input, which is not kept for it; what is lost is counted and reported. It may be another
        one at every start of the query.
    buckets
        Parts of the state, each with logs of its own; fixed once the logs exist. Default: as many
        as Spark runs tasks at a time.
    late
        What happens to tuples behind the watermark: ``"drop"``, or ``"keep"`` them in the log.
    order_by
        Column, or a list of them: within a batch, the tuples of a key are taken in this order,
        ascending, nulls first; equal ones as they come. Batches follow one another as they come.
        Without it, tuples of a batch that came from several partitions have no certain order,
        which matters to count windows and to :func:`trailmark.first` and :func:`trailmark.last`.
    flush
        For a DataFrame that does not stream: emit windows that are still open, too.
    numbered
        For replicas (docs/high-availability.md): results get numbers, which depend on the streams
        of the :func:`trailmark.union` before the operator alone, not on batches. Count
        windows need ``order_by`` with the union's time column first.
    retain_batches
        Results stay in the log for so many batches after everybody has them; None keeps them all.
    durability
        ``"synced"``, or ``"unsynced"`` to let a power failure take the newest batches.
    cache_dir
        Where the hosts keep state between batches. Default: shared memory.

    Examples
    --------
    >>> average = tm.aggregate(                                       # doctest: +SKIP
    ...     orders,
    ...     by="item_id",
    ...     window=tm.count_window(10),
    ...     values={"avg_price": tm.avg("item_price")},
    ...     path="/data/orders-average",
    ...     recover_within="2 seconds",
    ... )
    >>> average.writeStream.option("checkpointLocation", "ckpt").start("out")  # doctest: +SKIP
    """
    check_dataframe(df)
    common = CommonArguments.checked(
        path,
        checkpoint=checkpoint,
        recover_within=recover_within,
        loss=loss,
        numbered=numbered,
        buckets=buckets,
        retain_batches=retain_batches,
        durability=durability,
        cache_dir=cache_dir,
    )
    if flush and df.isStreaming:
        raise SettingError(
            "flush is for DataFrames that do not stream: a stream has no end to flush at.",
            where="flush",
        )
    operator = _operator(df, by, window, own_functions(values, df), late, order_by)
    keys = operator.layout.keys.names
    if not keys:
        common = common.in_one_bucket(
            "Without keys, a window takes the tuples of all", "name keys with by."
        )
    operation = Operation(
        "aggregate",
        operator,
        # Where all rows go to one bucket, any column will do to send them there.
        keys=keys or tuple(operator.input_schema.names[:1]),
        results_from="values",
        known_fields=_known_fields(operator),
        at_end=_at_end(operator) if flush else None,
    )
    return operate((df,), operation, common)


def _operator(
    df: DataFrame,
    by: str | Sequence[str],
    window: AnyWindow,
    values: Mapping[str, AnyFunction],
    late: Late,
    order_by: str | Sequence[str] | None,
) -> Aggregate | Sessions:
    """The operator for the columns of ``df``; what it cannot use is not looked at."""
    wanted = _wanted(by, window, values, order_by)
    fields = []
    for column in df.schema:
        if column.name in wanted:
            fields.append(pa.field(column.name, arrow_type(column, wanted[column.name])))
        else:
            fields.append(pa.field(column.name, pa.null()))
    operator = windowed(
        pa.schema(fields), by=by, window=window, values=values, late=late, order_by=order_by
    )
    if operator.bounds is not None:
        taken = operator.bounds.field.name
        for argument, names in (("by", operator.layout.keys.names), ("values", values)):
            if taken in names:
                raise SettingError(
                    f"{taken!r} is the result column with the bounds of time windows.",
                    where=argument,
                    fix="Rename the column.",
                )
    return operator


def _wanted(by: Any, window: Any, values: Any, order_by: Any) -> dict[str, str]:
    """Columns that are asked for, and by which argument. Wrong arguments are refused later."""
    wanted: dict[str, str] = {}
    if isinstance(values, Mapping):
        for name, call in values.items():
            wanted |= dict.fromkeys(_texts(getattr(call, "columns", ())), f"values[{name!r}]")
    if isinstance(window, TimeWindow | SessionWindow):
        wanted[window.column] = "window"
    for argument, names in (("order_by", order_by), ("by", by)):
        wanted |= dict.fromkeys([names] if isinstance(names, str) else _texts(names), argument)
    return wanted


def _at_end(operator: Aggregate | Sessions) -> Callable[[Any], pa.RecordBatch]:
    """The results of windows that are open when there are no more rows."""
    return operator.finish if isinstance(operator, Sessions) else operator.unfinished


def _texts(names: Any) -> list[str]:
    return [name for name in names if isinstance(name, str)] if isinstance(names, Sequence) else []


def _known_fields(operator: Aggregate | Sessions) -> tuple[spark.StructField, ...]:
    """Columns of the results that are not simply as their Arrow types: the bounds of time windows
    are as Spark's own ``window()`` has them, never null. Without keys all of them, as values may
    have the name of the column that rows are sent by."""
    values: tuple[spark.StructField, ...] = ()
    if not operator.layout.keys.names:
        values = tuple(
            spark.StructField(shown.name, spark_type(shown.type, "values"), True)
            for shown in operator.shown_schema
            if operator.bounds is None or shown.name != operator.bounds.field.name
        )
    if operator.bounds is None:
        return values
    bounds = operator.bounds.field
    parts = [spark.StructField(f.name, spark_type(f.type, "window"), True) for f in bounds.type]
    return (spark.StructField(bounds.name, spark.StructType(parts), False), *values)
