"""`tm.apply`: a user's own operator on a DataFrame, with state that recovers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from trailmark.checkpoint.policy import Periodic, Policy
from trailmark.engine.losses import LossText
from trailmark.errors import SettingError, UnsupportedType
from trailmark.operators.keyed import Keyed
from trailmark.operators.late import Late
from trailmark.operators.user_code import is_keyed
from trailmark.operators.whole import Whole
from trailmark.settings import Durability
from trailmark.spark.apply_arguments import (
    check_columns,
    check_form,
    key_columns,
    result_schemas,
)
from trailmark.spark.arguments import CommonArguments, check_dataframe
from trailmark.spark.initial import InitialState
from trailmark.spark.marks import unmarked
from trailmark.spark.operate import Operation, operate
from trailmark.spark.schemas import arrow_schema
from trailmark.spark.types import arrow_type, spreads_rows
from trailmark.spark.workers import check_sendable

#: What protects an operator of which nothing else is said.
_DEFAULT = Periodic("10 seconds")


def apply(
    df: DataFrame,
    operator: Any,
    *,
    schema: str | spark.StructType | pa.Schema,
    by: str | Sequence[str] | None = None,
    path: str | os.PathLike[str] | None = None,
    checkpoint: Policy | None = _DEFAULT,
    recover_within: str | timedelta | None = None,
    loss: LossText = "none",
    time: str | None = None,
    delay: str | timedelta = "0 seconds",
    late: Late = "drop",
    order_by: str | Sequence[str] | None = None,
    initial_state: DataFrame | None = None,
    flush: bool = False,
    numbered: bool = False,
    buckets: int | None = None,
    retain_batches: int | None = 100,
    durability: Durability | Literal["synced", "unsynced"] = Durability.SYNCED,
    cache_dir: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Run an operator of your own over a stream, with state that recovers in bounded time.

    An operator is a class. In the *keyed* form it declares a state, which is a table with one row
    for each key, and is called once per batch with all keys of the batch. In the *whole* form it
    is an object of any kind that takes Arrow batches in, with two methods to get its state out and
    put it back. docs/user-operators.md describes both.

    Parameters
    ----------
    df
        A streaming DataFrame. A DataFrame that does not stream is one batch, without logs.
    operator
        The class, or an instance of it; for an operator without state also a function from a
        record batch to a record batch.
    schema
        The columns of the result: a DDL string such as ``"item long, n long"``, a ``StructType``
        or an Arrow schema.
    by
        Key column, or a list of them. The keyed form needs them. In the whole form all rows of a
        key go to the same object; without keys, rows are spread over the objects.
    path
        Directory or ``s3://`` URL of this operator's logs; it belongs to one query.
    checkpoint
        Policy, such as ``tm.Periodic("10 seconds")``. None: the operator has no logs and costs
        nothing but its own work, and its state is lost when the query stops.
    recover_within
        Instead of ``checkpoint``: how long the recovery of a bucket may take.
    loss
        ``"none"``: a recovery is exact. ``"bounded"``: it loads what was checkpointed and replays
        no input, which is not kept for it; what is lost is counted and reported. It may be another
        one at every start of the query.
    time, delay
        The column with event times, which timers and times to live go by, and how far the
        watermark stays behind the greatest of them. Keyed form only.
    late
        What happens to rows behind the watermark: ``"drop"``, or ``"keep"`` them in the log.
    order_by
        Column, or a list of them: the rows of a batch are taken in this order.
    initial_state
        A DataFrame that does not stream, with the key columns and those of the state: what keys
        begin with. Keyed form only.
    flush
        For a DataFrame that does not stream: call the event-time timers that are left at its end.
    numbered
        For replicas (docs/high-availability.md): results get numbers, which depend on the streams
        of the :func:`trailmark.union` before the operator alone, not on batches. Your code
        is called once for each slice of the union. It needs ``time``, or ``order_by`` with the
        union's time column first, and no clock.
    buckets, retain_batches, durability, cache_dir
        As in :func:`trailmark.aggregate`.

    Examples
    --------
    >>> class Count:
    ...     state = {"n": pa.int64()}
    ...
    ...     def process(self, keys, rows, state):
    ...         state["n"] += keys.counts()
    ...         return keys.table(n=state["n"])
    >>> counted = tm.apply(                                           # doctest: +SKIP
    ...     orders, Count, by="item_id", schema="item_id long, n long", path="/data/counts"
    ... )
    """
    check_dataframe(df)
    check_columns(df)
    keys = key_columns(by)
    check_form(operator, by=keys, time=time, delay=delay, late=late, initial_state=initial_state)
    output, spark_output = result_schemas(schema)
    has_initial = initial_state is not None and df.isStreaming
    made = _made(df, operator, output, keys, time, delay, late, order_by, has_initial)
    check_sendable(made.user, made.describe()["about"]["name"])
    if flush and (df.isStreaming or not isinstance(made, Keyed)):
        raise SettingError(
            "flush is for the timers of a keyed operator on a DataFrame that does not stream.",
            where="flush",
        )
    operation = Operation(
        "apply",
        made,
        keys=made.keys if isinstance(made, Keyed) else _spread_by(df, keys),
        results_from="schema",
        known_fields=tuple(spark_output),
        at_end=made.finish if isinstance(made, Keyed) and flush else None,
        initial=_initial(initial_state, df, made),
    )
    is_objective = recover_within is not None and checkpoint is _DEFAULT
    common = CommonArguments.checked(
        "" if path is None and not df.isStreaming else path,
        checkpoint=None if is_objective else checkpoint,
        recover_within=recover_within,
        loss=loss,
        numbered=numbered,
        buckets=buckets,
        retain_batches=retain_batches,
        durability=durability,
        cache_dir=cache_dir,
        may_be_unlogged=True,
    )
    return operate((df,), operation, common)


def _made(
    df: DataFrame,
    operator: Any,
    output: pa.Schema,
    keys: list[str] | None,
    time: str | None,
    delay: str | timedelta,
    late: Late,
    order_by: str | Sequence[str] | None,
    has_initial: bool,
) -> Keyed | Whole:
    """The operator for the columns of the DataFrame."""
    columns = arrow_schema(unmarked(df.schema).toNullable(), "df", "a log")
    if not is_keyed(operator):
        return Whole(columns, operator, output=output, by=keys or [], order_by=order_by)
    assert keys is not None
    for name in keys:
        if name in df.columns:
            arrow_type(df.schema[name], "by")  # refuses what cannot be a key on Spark
    return Keyed(
        columns,
        operator,
        by=keys,
        output=output,
        time=time,
        delay=delay,
        late=late,
        order_by=order_by,
        has_initial=has_initial,
    )


def _initial(states: DataFrame | None, df: DataFrame, made: Keyed | Whole) -> InitialState | None:
    if states is None:
        return None
    if not df.isStreaming:
        raise SettingError(
            "initial_state is for streams: a DataFrame that does not stream is one batch.",
            where="initial_state",
        )
    assert isinstance(made, Keyed)
    return InitialState.of(states, df, made)


def _spread_by(df: DataFrame, keys: list[str] | None) -> tuple[str, ...]:
    """The columns by which rows are spread over objects: a row has to come to the same one when its
    batch is done again."""
    if keys is not None:
        for name in keys:
            if not spreads_rows(df.schema[name].dataType):
                raise UnsupportedType(
                    f"Rows cannot be spread by {name!r}, of type "
                    f"{df.schema[name].dataType.simpleString()}.",
                    where="by",
                    fix="Use numbers, strings, booleans, dates, timestamps or decimals.",
                )
        return tuple(keys)
    names = tuple(field.name for field in unmarked(df.schema) if spreads_rows(field.dataType))
    if not names:
        raise SettingError(
            "No column is of a type by which rows could be spread over the buckets.",
            where="df",
            fix="Add one, such as a number, or select one out of a struct.",
        )
    return names
