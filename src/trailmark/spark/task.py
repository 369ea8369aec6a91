"""What a Python worker does: one bucket and one batch through the engine.

Everything is in the log before the first row is handed to Spark. A sink may stop reading, evaluate
the batch twice, or lose the task half-way: whoever comes next is answered from the log.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from trailmark.checkpoint.policy import Policy
from trailmark.engine import Bucket, OperatorLogs
from trailmark.engine.commits import check_not_rolled_back
from trailmark.engine.refused import leave_refusal
from trailmark.engine.report import BatchReport
from trailmark.errors import InputDiffers, SettingError, TrailmarkError
from trailmark.kernel.columns import contiguous
from trailmark.log import PortRows, Storage, wall_clock_us
from trailmark.operators.order import in_order
from trailmark.operators.protocol import AnyOperator, BatchInput
from trailmark.records import Loss
from trailmark.recovery import NoHistory
from trailmark.settings import LogSettings
from trailmark.spark.initial import StoredStates
from trailmark.spark.received import ControlKeys, take_bucket
from trailmark.spark.sessions import record_where_told
from trailmark.spark.storages import storage_at
from trailmark.spark.united import United
from trailmark.state.cache import StateCache
from trailmark.state.memory import Memory
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")

#: Rows handed to Spark at a time.
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a task has to know, sent with every task.

    ``name`` is what users call the operator, without ``tm.``. ``keys`` are the columns that decide
    about the bucket. ``policy`` is None for an operator
    without logs. ``at_end`` gives the results to add when a DataFrame that does not stream has
    ended. ``initial`` is where the states are that keys begin with. ``loss`` is what a recovery may
    lose. ``boundaries`` are the paths of the unions that inputs come from, if any does. ``run_id``
    is another one whenever the operator is defined.
    """

    name: str
    operator: AnyOperator
    keys: tuple[str, ...]
    path: str
    buckets: int
    control: ControlKeys
    policy: Policy | None
    settings: LogSettings
    cache_root: str | None
    retain_batches: int | None
    at_end: Callable[[Any], pa.RecordBatch] | None
    ticks: bool
    initial: StoredStates | None = None
    loss: Loss = Loss.NONE
    boundaries: tuple[str | None, ...] = ()
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def inputs(self) -> United:
        """The inputs that come from Spark with every batch."""
        return United(tuple(port for port in self.operator.ports if port.is_stream), self.keys)


def run_batch(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of a bucket's rows in one pass, without logs: for DataFrames that do not
    stream."""
    _, rows = take_rows(plan, batches)
    operator = plan.operator
    state = operator.open(Memory(), NoHistory())
    arranged = operator.arrange(rows)
    now_us = wall_clock_us() if operator.uses_clock else None
    outcome = operator.process(state, BatchInput.of(0, arranged, None, None, now_us))
    yield from for_spark(plan, operator.publish(outcome.results))
    if plan.at_end is not None:
        yield from for_spark(plan, operator.publish(plan.at_end(state)))


def run_micro_batch(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of a bucket's rows of one micro-batch, once the log has them."""
    batch, query_id = position(plan)
    storage = storage_at(plan.path, plan.settings)
    number: int | None = None
    try:
        number, rows = take_rows(plan, batches)
        report = _run_bucket(plan, storage, query_id, batch, number, rows)
    except TrailmarkError as error:
        _log.debug("bucket %s, batch %d", number, batch, exc_info=True)
        leave_refusal(storage, error, query_id, batch, number)
        # Without the way it came: Spark prints that first, and says what happened behind it.
        raise error.with_traceback(None) from None
    yield from for_spark(plan, report.results)


def take_rows(plan: Plan, batches: Iterable[pa.RecordBatch]) -> tuple[int, PortRows]:
    """The bucket of a task, and its rows."""
    inputs = plan.inputs
    bucket, rows = take_bucket(batches, inputs.schema, plan.control, where=f"tm.{plan.name}")
    return bucket, _as_united(plan, inputs.part(rows))


def _as_united(plan: Plan, rows: PortRows) -> PortRows:
    """Rows of a union in its order again, which a shuffle does not keep among those that several
    tasks have read. Rows with one time were read by one task, and stay as they came."""
    if not plan.boundaries:
        return rows
    tables = [
        table if path is None or port.event_time is None else in_order(table, [port.event_time])
        for table, path, port in zip(
            rows.tables, plan.boundaries, plan.operator.ports, strict=False
        )
    ]
    return PortRows(tuple(tables), rows.order)


def _run_bucket(
    plan: Plan, storage: Storage, query_id: str, batch: int, number: int, rows: PortRows
) -> BatchReport:
    check_not_rolled_back(storage)
    logs = OperatorLogs(
        storage,
        plan.operator,
        buckets=plan.buckets,
        query_id=query_id,
        ticks=plan.ticks,
        settings=plan.settings,
        told=partial(_told, plan) if plan.boundaries else None,
    )
    record_where_told(storage, plan.path, query_id)
    cache = StateCache(None if plan.cache_root is None else Path(plan.cache_root))
    assert plan.policy is not None
    bucket = Bucket(
        plan.operator,
        logs,
        number,
        plan.policy,
        cache,
        retain_batches=plan.retain_batches,
        answers_older=False,
        in_step=True,
        loss=plan.loss,
    )
    try:
        return bucket.run(batch, _with_initial(plan, logs, batch, number, rows))
    except InputDiffers as error:
        if batch > logs.first_batch or plan.initial is None:
            raise
        given = "Give the initial_state with which the batch was first tried: its rows count, too."
        fix = f"{given} If it is the same: {error.fix}"
        raise InputDiffers(error.what, where=error.where, fix=fix) from error
    finally:
        # The next batch of this bucket may run in any process; this one is used for others.
        bucket.close(lingers=True)


def _told(plan: Plan) -> list[int | None]:
    """The watermark of each input with the batch that runs, where a union says how far it is."""
    from trailmark.streams.union.decisions import newest_decision  # few inputs come from one

    marks: list[int | None] = []
    for path, port in zip(plan.boundaries, plan.operator.ports, strict=True):
        decided = None if path is None else newest_decision(storage_at(path, plan.settings))
        released_us = None if decided is None else decided.released_us
        # Rows at the boundary itself are still to come.
        is_inside = released_us is not None and port.late_at_watermark
        marks.append(released_us - 1 if released_us is not None and is_inside else released_us)
    return marks


def _with_initial(
    plan: Plan, logs: OperatorLogs, batch: int, number: int, rows: PortRows
) -> PortRows:
    """The rows of a batch, and with the first one the states that keys begin with."""
    *_, last = plan.operator.ports
    if last.is_stream:
        return rows
    states = last.schema.empty_table()
    if batch == logs.first_batch and plan.initial is not None:
        states = plan.initial.read(logs.storage, number)
    return PortRows((*rows.tables, contiguous(states)))


def position(plan: Plan) -> tuple[int, str]:
    """Batch and query of the running task."""
    context = TaskContext.get()
    assert context is not None, "runs in a task"
    batch = context.getLocalProperty("streaming.sql.batchId")
    query_id = context.getLocalProperty("sql.streaming.queryId")
    if batch is None or query_id is None:
        raise SettingError(
            f"A streaming {plan.name} ran outside of a micro-batch.",
            where="trigger",
            fix="Use a micro-batch trigger (processingTime, availableNow); continuous processing "
            "and real-time mode are not supported.",
        )
    return int(batch), query_id


def for_spark(plan: Plan, results: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Results a part at a time, as Spark has them."""
    results = plan.operator.show(results)
    for first in range(0, results.num_rows, _ROWS_AT_ONCE):
        yield results.slice(first, _ROWS_AT_ONCE)
