"""What a Python worker does: one bucket and one batch through the engine.

Everything is in the log before the first row is handed to Spark. A sink may stop reading, evaluate
the batch twice, or lose the task half-way: whoever comes next is answered from the log.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext

from trailmark.checkpoint.policy import Policy
from trailmark.engine import Bucket, OperatorLogs
from trailmark.engine.commits import check_not_rolled_back
from trailmark.engine.refused import leave_refusal
from trailmark.engine.report import BatchReport
from trailmark.engine.tentative import InputsTold, Upstream
from trailmark.errors import InputDiffers, SettingError, TrailmarkError
from trailmark.kernel.columns import contiguous
from trailmark.log import PortRows, Storage, wall_clock_us
from trailmark.operators.order import in_order
from trailmark.operators.protocol import AnyOperator, BatchInput, Port
from trailmark.records import MARK, Loss
from trailmark.recovery import NoHistory
from trailmark.settings import LogSettings
from trailmark.spark.initial import StoredStates
from trailmark.spark.marked_by import MarkedBy
from trailmark.spark.parts import at_once
from trailmark.spark.received import ControlKeys, take_bucket
from trailmark.spark.sessions import record_where_told
from trailmark.spark.storages import storage_at
from trailmark.spark.united import United
from trailmark.state.cache import StateCache
from trailmark.state.memory import Memory
from trailmark.values import dataclass

if TYPE_CHECKING:
    from trailmark.streams.union.decision import Decision

_log = logging.getLogger("trailmark")


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a task has to know, sent with every task.

    ``name`` is what users call the operator, without ``tm.``. ``keys`` are the columns that decide
    about the bucket. ``policy`` is None for an operator
    without logs. ``at_end`` gives the results to add when a DataFrame that does not stream has
    ended. ``initial`` is where the states are that keys begin with. ``loss`` is what a recovery may
    lose. ``boundaries`` are the paths of the unions that inputs come from, if any does; ``marks``
    say whose tentative rows get to it, whatever lies in between. ``run_id`` is
    another one whenever the operator is defined.
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
    marks: tuple[MarkedBy, ...] = ()
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def inputs(self) -> United:
        """The inputs that come from Spark with every batch."""
        ports = tuple(port for port in self.operator.ports if port.is_stream)
        return United(ports, self.keys, bool(self.marks))


def run_batch(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of a bucket's rows in one pass, without logs: for DataFrames that do not
    stream."""
    _, rows, _ = take_rows(plan, batches)
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
        number, rows, tentative = take_rows(plan, batches)
        report = run_bucket(plan, storage, query_id, batch, number, rows, tentative)
    except TrailmarkError as error:
        _log.debug("bucket %s, batch %d", number, batch, exc_info=True)
        leave_refusal(storage, error, query_id, batch, number)
        # Without the way it came: Spark prints that first, and says what happened behind it.
        raise error.with_traceback(None) from None
    yield from for_spark(plan, report.results)
    if report.tentative is not None:
        yield from for_spark(plan, report.tentative, is_tentative=True)


def take_rows(
    plan: Plan, batches: Iterable[pa.RecordBatch]
) -> tuple[int, PortRows, PortRows | None]:
    """The bucket of a task, its rows, and those that are tentative where rows are marked."""
    inputs, where = plan.inputs, f"tm.{plan.name}"
    bucket, rows = take_bucket(batches, inputs.schema, plan.control, where=where)
    stable, tentative = inputs.part_marked(rows, where)
    return (
        bucket,
        _as_united(plan, stable),
        None if tentative is None else _as_united(plan, tentative),
    )


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


def run_bucket(
    plan: Plan,
    storage: Storage,
    query_id: str,
    batch: int,
    number: int,
    rows: PortRows,
    tentative: PortRows | None,
) -> BatchReport:
    check_not_rolled_back(storage)
    logs = OperatorLogs(
        storage,
        plan.operator,
        buckets=plan.buckets,
        query_id=query_id,
        ticks=plan.ticks,
        settings=plan.settings,
        told=partial(_told, plan) if plan.boundaries or plan.marks else None,
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
        is_first = batch == logs.first_batch
        taken = _with_initial(plan, logs, number, rows, is_first=is_first)
        if tentative is not None:
            tentative = _with_initial(plan, logs, number, tentative, is_first=False)
        return bucket.run(batch, taken, tentative)
    except InputDiffers as error:
        if batch > logs.first_batch or plan.initial is None:
            raise
        given = "Give the initial_state with which the batch was first tried: its rows count, too."
        fix = f"{given} If it is the same: {error.fix}"
        raise InputDiffers(error.what, where=error.where, fix=fix) from error
    finally:
        # The next batch of this bucket may run in any process; this one is used for others.
        bucket.close(lingers=True)


def _told(plan: Plan) -> InputsTold:
    """What has been decided for the batch that runs where its inputs come from."""
    from trailmark.streams.union.decisions import newest_decision  # few inputs come from one

    ports = plan.operator.ports
    paths = plan.boundaries or (None,) * len(ports)
    unions = {each.path for each in plan.marks if each.reader is None}
    unions |= {path for path in paths if path is not None}
    decided = {path: newest_decision(storage_at(path, plan.settings)) for path in unions}
    boundaries: list[int | None] = []
    ahead: list[int | None] = []
    for path, port in zip(paths, ports, strict=True):
        decision = None if path is None else decided[path]
        boundaries.append(None if decision is None else _inside(decision.released_us, port))
        ahead.append(None if decision is None else _inside(decision.until_us, port))
    return InputsTold(
        boundaries, ahead, tuple(_upstream(plan, each, decided) for each in plan.marks)
    )


def _upstream(plan: Plan, whose: MarkedBy, decided: Mapping[str, Decision]) -> Upstream:
    """What still stands of tentative rows."""
    if whose.reader is not None:
        from trailmark.streams.following import following_path, upstream_of

        path = following_path(whose.path, whose.reader)
        return upstream_of(storage_at(path, plan.settings), whose.reader)
    found = decided[whose.path]
    return Upstream(found.number, None if found.ahead is None else found.ahead.since, found.phase)


def _inside(boundary_us: int | None, port: Port) -> int | None:
    """A boundary as a watermark: rows at the boundary itself are still to come."""
    is_inside = boundary_us is not None and port.late_at_watermark
    return boundary_us - 1 if boundary_us is not None and is_inside else boundary_us


def _with_initial(
    plan: Plan, logs: OperatorLogs, number: int, rows: PortRows, *, is_first: bool
) -> PortRows:
    """The rows of a batch, and with the first one the states that keys begin with."""
    *_, last = plan.operator.ports
    if last.is_stream:
        return rows
    states = last.schema.empty_table()
    if is_first and plan.initial is not None:
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


def for_spark(
    plan: Plan, results: pa.RecordBatch, *, is_tentative: bool = False
) -> Iterator[pa.RecordBatch]:
    """Results a part at a time, as Spark has them."""
    results = plan.operator.show(results)
    if plan.marks:
        mark = pa.repeat(pa.scalar(is_tentative), results.num_rows)
        results = results.append_column(MARK, mark)
    yield from at_once(results)
