"""Puts an operator on Spark: a DataFrame in, or one for each input; a DataFrame out.

    needed columns + control rows + ticks -> repartition(buckets, keys) -> mapInArrow(task)

On several hosts the partitions are tied to those that have the states (see `placement`).
Nothing here knows what the operator computes: `tm.aggregate` and its like say that in an
`Operation`, and this module does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from trailmark.engine.logs import describe_logs, has_ticks
from trailmark.engine.losses import check_may_lose
from trailmark.engine.policies import check_policy
from trailmark.errors import SettingError
from trailmark.log import OperatorMeta, check_same_operator, open_storage, read_meta
from trailmark.operators.protocol import AnyOperator
from trailmark.records import MARK
from trailmark.spark import paths
from trailmark.spark.apart import check_apart
from trailmark.spark.arguments import CommonArguments
from trailmark.spark.boundary import boundary_of
from trailmark.spark.connect import check_full, is_connect, parallelism
from trailmark.spark.control import control_rows, find_control_keys, named, plainly_named
from trailmark.spark.initial import InitialState
from trailmark.spark.internals import driver_directory
from trailmark.spark.marked_by import MarkedBy
from trailmark.spark.marks import is_marked, marked_field, marks_of
from trailmark.spark.numbered import numbered
from trailmark.spark.placement import anchored, has_several_hosts
from trailmark.spark.plan_note import PlanNote
from trailmark.spark.received import ControlKeys
from trailmark.spark.sessions import attend_queries
from trailmark.spark.task import Plan, run_batch, run_micro_batch
from trailmark.spark.ticks import ticks_for, with_columns_of
from trailmark.spark.types import spark_type
from trailmark.spark.united import (
    HAS_NO_MARK,
    IS_TENTATIVE,
    MARKS,
    MOST_US,
    PORT,
    TENTATIVE,
    United,
)
from trailmark.spark.unlogged import check_unlogged, run_unlogged
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
    initial
        States that keys begin with.
    """

    name: str
    operator: AnyOperator
    keys: tuple[str, ...]
    results_from: str
    known_fields: tuple[spark.StructField, ...] = ()
    at_end: Callable[[Any], pa.RecordBatch] | None = None
    initial: InitialState | None = None


def operate(frames: Sequence[DataFrame], operation: Operation, given: CommonArguments) -> DataFrame:
    """The results of an operation on DataFrames that `check_dataframe` has let pass: one for each
    input, with keys of the same types, all of which stream or none."""
    df = frames[0]
    if given.numbered and df.isStreaming:
        operation = replace(operation, operator=numbered(df, operation.operator))
    keys = [df.schema[name] for name in operation.keys]
    marks = _marks(frames, operation, given)
    schema = _result_schema(operation, keys, marks)
    check_may_lose(operation.operator, given.loss)
    if given.policy is not None:
        check_policy(operation.operator, given.policy)
    if given.policy is None and df.isStreaming:
        check_unlogged(operation.operator)
    plan = _plan(frames, operation, keys, given, marks)
    if df.isStreaming and plan.policy is not None:
        paths.remember(plan.path, plan.cache_root)
        if not is_connect(df.sparkSession):
            attend_queries(df.sparkSession)
    run = _task(plan) if df.isStreaming else run_batch
    task = carried(run, plan, f"trailmark_{operation.name}")
    return _shuffled(frames, plan, keys).mapInArrow(task, schema)


def _task(plan: Plan) -> Callable[..., Any]:
    return run_micro_batch if plan.policy is not None else run_unlogged


def _plan(
    frames: Sequence[DataFrame],
    operation: Operation,
    keys: list[spark.StructField],
    given: CommonArguments,
    marks: tuple[MarkedBy, ...],
) -> Plan:
    """What every task is told."""
    df = frames[0]
    operator, has_logs = operation.operator, df.isStreaming and given.policy is not None
    path = _location(frames, given) if given.policy is not None else ""
    session = df.sparkSession
    stored = _stored_logs(session, path, operator, given) if has_logs else None
    buckets, control = _control(df, keys, given.buckets if stored is None else stored.buckets)
    initial = None
    if operation.initial is not None and has_logs:
        where = (path, given.log_settings, buckets, control)
        initial = operation.initial.stored(*where, stored)
    return Plan(
        operation.name,
        operator,
        operation.keys,
        path,
        buckets,
        control,
        given.policy,
        given.log_settings,
        given.cache_root,
        given.retain_batches,
        operation.at_end,
        has_logs and _ticks(session, operator, stored),
        initial,
        given.loss,
        _boundaries(frames, operator) if has_logs else (),
        marks,
    )


def _marks(
    frames: Sequence[DataFrame], operation: Operation, given: CommonArguments
) -> tuple[MarkedBy, ...]:
    """Whose tentative rows get to the operator."""
    found = {whose for df in frames for whose in marks_of(df)}
    if not found:
        return ()
    operator = operation.operator
    if len(found) > 1 and any(each.reader is not None for each in found):
        raise _of_several()
    if given.policy is None:
        raise SettingError(
            "Rows may be tentative, and an operator without logs could not replace what it makes "
            "of them.",
            where="checkpoint",
            fix="Give a path and recover_within or checkpoint, or take the rows that stand: "
            "tm.stable(df).",
        )
    used = [name for port in operator.ports for name in port.schema.names if name == MARK]
    if used or MARK in operator.shown_schema.names:
        raise SettingError(
            f"The column {MARK!r} marks rows, and is none to compute with; nor may a result have "
            "that name.",
            where=operation.results_from,
            fix="Make a column of another name before the operator: "
            f"df.withColumn('...', F.col('{MARK}')).",
        )
    return tuple(sorted(found, key=lambda whose: whose.place))


def _of_several() -> SettingError:
    return SettingError(
        "Rows may be tentative by an operator of another query and by something else besides, and "
        "what of both stands cannot be told apart.",
        where="df",
        fix="Take the rows that stand of all but one: tm.stable(df). Or let one operator have all "
        "of them, in the query before.",
    )


def _boundaries(frames: Sequence[DataFrame], operator: AnyOperator) -> tuple[str | None, ...]:
    """Where the boundaries of inputs are kept; nothing if no input has one."""
    found = [boundary_of(df, port) for df, port in zip(frames, operator.ports, strict=False)]
    found += [None] * (len(operator.ports) - len(found))
    return tuple(found) if any(found) else ()


def _location(frames: Sequence[DataFrame], given: CommonArguments) -> str:
    """The full path of the logs, which has to be apart from what the query reads."""
    df = frames[0]
    if not df.isStreaming:
        return paths.absolute(given.path) if given.path else ""
    if is_connect(df.sparkSession):
        check_full(given.path)
    location = paths.absolute(given.path, driver_directory(df.sparkSession))
    for each in frames:
        check_apart(each, location)
    return location


def _stored_logs(
    session: SparkSession, path: str, operator: AnyOperator, given: CommonArguments
) -> OperatorMeta | None:
    """What existing logs say; refused here if they are not this operator's."""
    with paths.named_in_full(path):
        stored = read_meta(open_storage(path, given.log_settings))
        if stored is not None:
            ticks = _ticks(session, operator, stored)
            buckets = stored.buckets if given.buckets is None else given.buckets
            check_same_operator(stored, describe_logs(operator, buckets, ticks=ticks))
        return stored


def _ticks(session: SparkSession, operator: AnyOperator, stored: OperatorMeta | None) -> bool:
    """Whether the query has a source of ticks. Spark lets nobody add one to a query that has begun
    without."""
    if stored is None:
        return _wants_ticks(operator) or is_connect(session)
    if is_connect(session) and not has_ticks(stored):
        raise SettingError(
            "The query was begun in a session of its own driver, without a source that operators "
            "need on Spark Connect, and Spark lets nobody add one later.",
            where="path",
            fix="Go on in such a session, or start with a new path and a new checkpoint.",
        )
    return has_ticks(stored)


def _wants_ticks(operator: AnyOperator) -> bool:
    """Whether an operator has something to do when time passes and nothing comes."""
    return operator.uses_clock or any(port.event_time is not None for port in operator.ports)


def _control(
    df: DataFrame, keys: list[spark.StructField], buckets: int | None
) -> tuple[int, ControlKeys]:
    """How many buckets, and a control key for each."""
    session = df.sparkSession
    most = parallelism(session) if buckets is None else buckets
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


def _shuffled(frames: Sequence[DataFrame], plan: Plan, keys: list[spark.StructField]) -> DataFrame:
    """The columns that are needed, with control rows, by bucket."""
    rows = _with_control_rows(_united(frames, plan.inputs), plan, keys)
    rows = rows.repartition(plan.buckets, *(named(key.name) for key in keys))
    # A single partition would be shuffled again before a join, unless Spark knows it to be small.
    if plan.buckets > 1 and rows.isStreaming and has_several_hosts(rows.sparkSession):
        rows = anchored(rows, keys, plan.control, may_move=plan.policy is not None)
    return plainly_named(rows)


def _with_control_rows(rows: DataFrame, plan: Plan, keys: list[spark.StructField]) -> DataFrame:
    """Rows with those that tell each task its bucket, and ticks, in every batch."""
    session, is_streaming = rows.sparkSession, rows.isStreaming
    note = PlanNote.of(plan, is_streaming=is_streaming).to_metadata()
    is_made_by_tasks = is_streaming and is_connect(session)
    if not plan.ticks and not is_made_by_tasks:
        return rows.union(control_rows(rows, keys, plan.control, note))
    is_asked = plan.ticks and _wants_ticks(plan.operator)
    ticks = ticks_for(session, plan.path, is_asked=is_asked)
    if is_made_by_tasks:
        return rows.union(control_rows(rows, keys, plan.control, note, ticks))
    control = control_rows(rows, keys, plan.control, note)
    return rows.union(control).union(with_columns_of(ticks, rows))


def _united(frames: Sequence[DataFrame], inputs: United) -> DataFrame:
    """The rows of all inputs, with the columns of ``inputs.schema``."""
    if len(frames) == 1:
        marked = inputs.marked_time
        own = [
            named(name) if name != marked else _marked_time(frames[0], name)
            for name in inputs.columns.names
        ]
        return frames[0].select(*own, *_mark(frames[0], inputs))
    sent = [
        (place, name, inputs.sent_name(place, name))
        for place in range(len(frames))
        for name in inputs.own_columns(place)
    ]
    parts = []
    for place, frame in enumerate(frames):
        own = [
            (
                named(name) if of == place else F.lit(None).cast(frames[of].schema[name].dataType)
            ).alias(as_name)
            for of, name, as_name in sent
        ]
        shared = [named(key) for key in inputs.keys]
        tag = F.lit(place).cast("tinyint").alias(PORT)
        parts.append(frame.select(tag, *shared, *own, *_mark(frame, inputs)))
    return reduce(DataFrame.union, parts)


def _mark(frame: DataFrame, inputs: United) -> list[Column]:
    """The column that tells which rows of an input are tentative, where any may be."""
    if not inputs.is_marked or inputs.marked_time is not None:
        return []
    return [(named(MARK) if is_marked(frame) else F.lit(False)).alias(TENTATIVE)]


def _marked_time(frame: DataFrame, name: str) -> Column:
    """A column of times with the mark of tentative rows in it: see `united`."""
    mark = named(MARK) if is_marked(frame) else F.lit(False)
    number = F.when(mark.isNull(), HAS_NO_MARK).when(mark, IS_TENTATIVE).otherwise(0).cast("bigint")
    instant = F.unix_micros(named(name))
    far = F.raise_error(F.lit(f"Column {name}: a time beyond the year 70,000 cannot be marked."))
    sent = (
        F.when(instant.isNull(), F.lit(-MOST_US * MARKS))
        .when(instant.between(1 - MOST_US, MOST_US - 1), instant * MARKS)
        .otherwise(far.cast("bigint"))
    )
    return (sent + number).alias(name)


def _result_schema(
    operation: Operation, keys: list[spark.StructField], marks: tuple[MarkedBy, ...]
) -> spark.StructType:
    """The columns that the operator shows, the keys among them as they came, and the mark where
    results may be tentative."""
    known = {key.name: spark.StructField(key.name, key.dataType, True) for key in keys}
    known |= {field.name: field for field in operation.known_fields}
    fields = [
        known[shown.name]
        if shown.name in known
        else spark.StructField(shown.name, spark_type(shown.type, operation.results_from), True)
        for shown in operation.operator.shown_schema
    ]
    return spark.StructType([*fields, marked_field(marks)] if marks else fields)
