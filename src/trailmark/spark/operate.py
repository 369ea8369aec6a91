"""Puts an operator on Spark: a DataFrame in, a DataFrame out.

    df.select(needed) + control rows + ticks -> repartition(buckets, keys) -> mapInArrow(task)

Nothing here knows what the operator computes: `tm.aggregate` and its like say that in an
`Operation`, and this module does the rest.

Operators with several ports will bring a DataFrame for each. Three places will have to know:
`operate`, which takes one; `_shuffled`, which has to unite their rows under a tag; and
`received.take_bucket`, which has to part them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from trailmark.engine.logs import describe_logs, has_ticks
from trailmark.errors import SettingError
from trailmark.log import OperatorMeta, check_same_operator, open_storage, read_meta
from trailmark.operators.protocol import AnyOperator
from trailmark.spark import paths
from trailmark.spark.apart import check_apart
from trailmark.spark.arguments import CommonArguments
from trailmark.spark.control import control_rows, find_control_keys, named
from trailmark.spark.internals import driver_directory
from trailmark.spark.received import ControlKeys
from trailmark.spark.sessions import attend_queries
from trailmark.spark.task import Plan, run_batch, run_micro_batch
from trailmark.spark.ticks import no_rows_but_ticks
from trailmark.spark.types import spark_type
from trailmark.spark.workers import carried
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """What is to be computed, and how it is told to Spark.

    Parameters
    ----------
    name
        What users call it, without ``tm.``: it is in messages, and in Spark's plans.
    operator
        What computes it.
    keys
        The key columns, as they are named in the input and in the results.
    results_from
        The argument that decides which columns the results have besides the keys.
    known_fields
        Columns of the results whose types on Spark do not follow from those of Arrow.
    at_end
        Results to add, from the last state, where a DataFrame does not stream and so has an end.
    """

    name: str
    operator: AnyOperator
    keys: tuple[str, ...]
    results_from: str
    known_fields: tuple[spark.StructField, ...] = ()
    at_end: Callable[[Any], pa.RecordBatch] | None = None


def operate(df: DataFrame, operation: Operation, given: CommonArguments) -> DataFrame:
    """The results of an operation on a DataFrame that `check_dataframe` has let pass."""
    keys = [df.schema[name] for name in operation.keys]
    schema = _result_schema(operation, keys)
    plan = _plan(df, operation, keys, given)
    if df.isStreaming:
        paths.remember(plan.path)
        attend_queries(df.sparkSession)
    run = run_micro_batch if df.isStreaming else run_batch
    task = carried(run, plan, f"trailmark_{operation.name}")
    return _shuffled(df, plan, keys).mapInArrow(task, schema)


def _plan(
    df: DataFrame, operation: Operation, keys: list[spark.StructField], given: CommonArguments
) -> Plan:
    """What every task is told."""
    operator = operation.operator
    path = _location(df, given)
    stored = _stored_logs(path, operator, given) if df.isStreaming else None
    buckets, control = _control(df, keys, given.buckets if stored is None else stored.buckets)
    return Plan(
        operation.name,
        operator,
        path,
        buckets,
        control,
        given.policy,
        given.log_settings,
        given.cache_root,
        given.retain_batches,
        operation.at_end,
        df.isStreaming and _ticks(operator, stored),
    )


def _location(df: DataFrame, given: CommonArguments) -> str:
    """The full path of the logs, which has to be apart from what the query reads."""
    if not df.isStreaming:
        return paths.absolute(given.path)
    location = paths.absolute(given.path, driver_directory(df.sparkSession))
    check_apart(df, location)
    return location


def _stored_logs(path: str, operator: AnyOperator, given: CommonArguments) -> OperatorMeta | None:
    """What existing logs say; refused here if they are not this operator's."""
    with paths.named_in_full(path):
        stored = read_meta(open_storage(path, given.log_settings))
        if stored is not None:
            ticks = _ticks(operator, stored)
            buckets = stored.buckets if given.buckets is None else given.buckets
            check_same_operator(stored, describe_logs(operator, buckets, ticks=ticks))
        return stored


def _ticks(operator: AnyOperator, stored: OperatorMeta | None) -> bool:
    """Whether the query has a source of ticks. Spark lets nobody add one to a query that has begun
    without."""
    has_event_time = any(port.event_time is not None for port in operator.ports)
    return has_event_time and (stored is None or has_ticks(stored))


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
    needed = df.select(*(named(name) for name in plan.port.schema.names))
    rows = needed.union(control_rows(needed, keys, plan.control))
    if plan.ticks:
        rows = rows.union(no_rows_but_ticks(needed, plan.path))
    return rows.repartition(plan.buckets, *(named(key.name) for key in keys))


def _result_schema(operation: Operation, keys: list[spark.StructField]) -> spark.StructType:
    """The columns that the operator shows, the keys among them as they came."""
    known = {key.name: spark.StructField(key.name, key.dataType, True) for key in keys}
    known |= {field.name: field for field in operation.known_fields}
    fields = [
        known[shown.name]
        if shown.name in known
        else spark.StructField(shown.name, spark_type(shown.type, operation.results_from), True)
        for shown in operation.operator.shown_schema
    ]
    return spark.StructType(fields)
