"""`tm.aggregate`: a streaming DataFrame in, a streaming DataFrame out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from trailmark.checkpoint.policy import Continuous, Policy
from trailmark.engine.logs import describe_logs, has_ticks
from trailmark.errors import SettingError
from trailmark.log import OperatorMeta, check_same_operator, open_storage, read_meta
from trailmark.operators.aggregate import Aggregate, Late
from trailmark.settings import Durability, LogSettings
from trailmark.spark import paths
from trailmark.spark.apart import check_apart
from trailmark.spark.control import control_rows, find_control_keys, named
from trailmark.spark.internals import driver_directory
from trailmark.spark.received import ControlKeys
from trailmark.spark.sessions import attend_queries
from trailmark.spark.task import Plan, run_batch, run_micro_batch
from trailmark.spark.ticks import no_rows_but_ticks
from trailmark.spark.types import arrow_type, spark_type
from trailmark.spark.workers import carried, check_workers
from trailmark.windows import functions
from trailmark.windows.functions import AnyFunction
from trailmark.windows.spec import TimeWindow, Window

_MOST_BUCKETS = 1_000
#: What is promised when nothing is asked for.
_DEFAULT_OBJECTIVE = "5 seconds"


def aggregate(
    df: DataFrame,
    *,
    by: str | Sequence[str],
    window: Window,
    values: Mapping[str, AnyFunction],
    path: str | os.PathLike[str],
    checkpoint: Policy | None = None,
    recover_within: str | timedelta | None = None,
    buckets: int | None = None,
    late: Late = "drop",
    order_by: str | Sequence[str] | None = None,
    flush: bool = False,
    retain_batches: int | None = 100,
    durability: Durability | Literal["synced", "unsynced"] = Durability.SYNCED,
    cache_dir: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Aggregate a stream over windows, with state that recovers in bounded time.

    The result is a DataFrame like any other: filter it, join it, aggregate it again, write it to
    any sink in append mode. It has the key columns, for time windows a ``window`` column with
    ``start`` and ``end``, and one column per value.

    Parameters
    ----------
    df
        A streaming DataFrame. A DataFrame that does not stream is aggregated as one batch, without
        logs.
    by
        Key column, or a list of them.
    window
        :func:`trailmark.count_window` or :func:`trailmark.time_window`.
    values
        Names of result columns and the functions that compute them.
    path
        Directory or ``s3://`` URL of this operator's logs; it belongs to one query. Executors on
        several hosts need a path that all of them reach.
    checkpoint
        Policy, such as ``tm.Continuous(q=200_000)``; never changes results, only costs.
    recover_within
        Instead of ``checkpoint``: how long the recovery of a bucket may take. Default 5 seconds.
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
    _check_dataframe(df)
    check_workers(df.sparkSession)
    policy = _policy(checkpoint, recover_within)
    if flush and df.isStreaming:
        raise SettingError(
            "flush is for DataFrames that do not stream: a stream has no end to flush at.",
            where="flush",
        )
    _check_retained(retain_batches)
    _check_buckets(buckets)
    operator = _operator(df, by, window, values, late, order_by)
    settings = LogSettings(durability=cast(Durability, durability))  # it takes the text, too
    location = _location(df, path)
    keys = [df.schema[f.name] for f in operator.layout.keys.fields]
    stored = _stored_logs(location, operator, buckets, settings) if df.isStreaming else None
    count, control = _control(df, keys, buckets if stored is None else stored.buckets)
    plan = Plan(
        operator,
        location,
        count,
        control,
        policy,
        settings,
        None if cache_dir is None else os.path.abspath(os.path.expanduser(cache_dir)),
        retain_batches,
        flush,
        df.isStreaming and _ticks(operator, stored),
    )
    if df.isStreaming:
        paths.remember(location)
        attend_queries(df.sparkSession)
    task = carried(run_micro_batch if df.isStreaming else run_batch, plan)
    return _shuffled(df, plan, keys).mapInArrow(task, _schema(plan, keys))


def _check_dataframe(df: DataFrame) -> None:
    if not isinstance(df, DataFrame):
        raise SettingError(f"df must be a DataFrame, got {type(df).__name__}.", where="df")
    if not isinstance(df, ClassicDataFrame):
        raise SettingError(
            "Spark Connect is not supported.",
            where="df",
            fix="Run the query in a session of its own driver.",
        )


def _location(df: DataFrame, path: str | os.PathLike[str]) -> str:
    """The full path of the logs, which has to be apart from what the query reads."""
    if not df.isStreaming:
        return paths.absolute(path)
    location = paths.absolute(path, driver_directory(df.sparkSession))
    check_apart(df, location)
    return location


def _policy(checkpoint: Policy | None, recover_within: str | timedelta | None) -> Policy:
    if checkpoint is not None and recover_within is not None:
        raise SettingError(
            "Give either a policy or an objective.", where="checkpoint, recover_within"
        )
    if checkpoint is None:
        return Continuous.within(_DEFAULT_OBJECTIVE if recover_within is None else recover_within)
    if not isinstance(checkpoint, Policy):
        raise SettingError(
            f"checkpoint must be a policy, got {checkpoint!r}.",
            where="checkpoint",
            fix="For example tm.Continuous(q=200_000), or recover_within='2 seconds'.",
        )
    return checkpoint


def _check_retained(batches: int | None) -> None:
    is_whole = isinstance(batches, int) and not isinstance(batches, bool)
    if batches is not None and (not is_whole or batches < 1):
        raise SettingError(
            f"retain_batches must be a number of batches or None, got {batches!r}.",
            where="retain_batches",
        )


def _operator(
    df: DataFrame,
    by: str | Sequence[str],
    window: Window,
    values: Mapping[str, AnyFunction],
    late: Late,
    order_by: str | Sequence[str] | None,
) -> Aggregate:
    """The operator for the columns of ``df``; what it cannot use is not looked at."""
    wanted = _wanted(by, window, values, order_by)
    fields = []
    for column in df.schema:
        if column.name in wanted:
            fields.append(pa.field(column.name, arrow_type(column, wanted[column.name])))
        else:
            fields.append(pa.field(column.name, pa.null()))
    operator = Aggregate(
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
            if isinstance(call, Column):
                raise _spark_function(name, call)
            wanted |= dict.fromkeys(_texts(getattr(call, "columns", ())), f"values[{name!r}]")
    if isinstance(window, TimeWindow):
        wanted[window.column] = "window"
    for argument, names in (("order_by", order_by), ("by", by)):
        wanted |= dict.fromkeys([names] if isinstance(names, str) else _texts(names), argument)
    return wanted


def _texts(names: Any) -> list[str]:
    return [name for name in names if isinstance(name, str)] if isinstance(names, Sequence) else []


def _spark_function(name: str, call: Column) -> SettingError:
    """What to write instead of a function of Spark's."""
    text = str(call).removeprefix("Column<'").removesuffix("'>")
    function, _, argument = text.removesuffix(")").partition("(")
    ours = function if function in functions.__all__ else "avg"
    argument = argument if argument.isidentifier() else "price"
    return SettingError(
        f"{name!r} is a column of Spark's, {text}, not a function of Trailmark's.",
        where=f"values[{name!r}]",
        fix=f"For example values={{{name!r}: tm.{ours}({argument!r})}}; compute other columns "
        "before, with df.withColumn.",
    )


def _stored_logs(
    path: str, operator: Aggregate, buckets: int | None, settings: LogSettings
) -> OperatorMeta | None:
    """What existing logs say; refused here if they are not this operator's."""
    with paths.named_in_full(path):
        stored = read_meta(open_storage(path, settings))
        if stored is not None:
            ticks = _ticks(operator, stored)
            count = stored.buckets if buckets is None else buckets
            expected = describe_logs(operator, count, ticks=ticks)
            check_same_operator(stored, expected)
        return stored


def _ticks(operator: Aggregate, stored: OperatorMeta | None) -> bool:
    """Whether the query has a source of ticks. Spark lets nobody add one to a query that has begun
    without."""
    return operator.event_time is not None and (stored is None or has_ticks(stored))


def _check_buckets(buckets: int | None) -> None:
    is_whole = isinstance(buckets, int) and not isinstance(buckets, bool)
    if buckets is not None and not (is_whole and 1 <= buckets <= _MOST_BUCKETS):
        raise SettingError(
            f"buckets must be a number from 1 to {_MOST_BUCKETS:,}, got {buckets!r}.",
            where="buckets",
        )


def _control(
    df: DataFrame, keys: list[spark.StructField], buckets: int | None
) -> tuple[int, ControlKeys]:
    """How many buckets, and a control key for each."""
    session = df.sparkSession
    most = session.sparkContext.defaultParallelism if buckets is None else buckets
    for count in range(most, 0, -1):
        found = find_control_keys(session, keys, count)
        if found is not None:
            break
        if buckets is not None:
            raise SettingError(
                f"The keys are so few that {buckets} buckets could never all be used.",
                where="buckets",
                fix="Use fewer buckets, or leave the choice to Trailmark.",
            )
    assert found is not None, "one bucket can always be used"
    return count, found


def _shuffled(df: DataFrame, plan: Plan, keys: list[spark.StructField]) -> DataFrame:
    """The columns that are needed, with control rows, by bucket."""
    needed = df.select(*(named(name) for name in plan.operator.input_schema.names))
    rows = needed.union(control_rows(needed, keys, plan.control))
    if plan.ticks:
        rows = rows.union(no_rows_but_ticks(needed, plan.path))
    return rows.repartition(plan.buckets, *(named(key.name) for key in keys))


def _schema(plan: Plan, keys: list[spark.StructField]) -> spark.StructType:
    """Keys as they came, the window, and the values."""
    fields = [spark.StructField(key.name, key.dataType, True) for key in keys]
    rest = list(plan.operator.result_schema)[len(keys) :]
    bounds = plan.operator.bounds
    if bounds is not None:
        parts = [spark.StructField(f.name, spark_type(f.type), True) for f in bounds.field.type]
        fields.append(spark.StructField(bounds.field.name, spark.StructType(parts), False))
        rest = rest[len(bounds.fields) :]
    fields += [spark.StructField(f.name, spark_type(f.type), True) for f in rest]
    return spark.StructType(fields)
