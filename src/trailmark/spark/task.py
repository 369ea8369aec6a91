"""What a Python worker does: one bucket and one batch through the engine.

Everything is in the log before the first row is handed to Spark. A sink may stop reading, evaluate
the batch twice, or lose the task half-way: whoever comes next is answered from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from trailmark.checkpoint.policy import Policy
from trailmark.engine import Bucket, OperatorLogs
from trailmark.engine.commits import check_not_rolled_back
from trailmark.engine.refused import leave_refusal
from trailmark.engine.report import BatchReport
from trailmark.errors import SettingError, TrailmarkError
from trailmark.log import Storage
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import BatchInput
from trailmark.settings import LogSettings
from trailmark.spark.received import ControlKeys, take_bucket
from trailmark.spark.sessions import record_where_told
from trailmark.spark.storages import storage_at
from trailmark.state.cache import StateCache
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")

#: Rows handed to Spark at a time.
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a task has to know, sent with every task."""

    operator: Aggregate
    path: str
    buckets: int
    control: ControlKeys
    policy: Policy
    settings: LogSettings
    cache_root: str | None
    retain_batches: int | None
    flush: bool
    ticks: bool


def run_batch(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of a bucket's rows in one pass, without logs: for DataFrames that do not
    stream."""
    _, rows = take_bucket(batches, plan.operator.input_schema, plan.control)
    table = StateTable(plan.operator.layout, Memory())
    outcome = plan.operator.process(table, BatchInput(0, plan.operator.arrange(rows)))
    yield from _for_spark(plan, plan.operator.publish(outcome.results))
    if plan.flush:
        yield from _for_spark(plan, plan.operator.publish(plan.operator.unfinished(table)))


def run_micro_batch(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of a bucket's rows of one micro-batch, once the log has them."""
    batch, query_id = _position()
    storage = storage_at(plan.path, plan.settings)
    number: int | None = None
    try:
        number, rows = take_bucket(batches, plan.operator.input_schema, plan.control)
        report = _run_bucket(plan, storage, query_id, batch, number, rows)
    except TrailmarkError as error:
        _log.debug("bucket %s, batch %d", number, batch, exc_info=True)
        leave_refusal(storage, error, query_id, batch, number)
        # Without the way it came: Spark prints that first, and says what happened behind it.
        raise error.with_traceback(None) from None
    yield from _for_spark(plan, report.results)


def _run_bucket(
    plan: Plan, storage: Storage, query_id: str, batch: int, number: int, rows: pa.RecordBatch
) -> BatchReport:
    check_not_rolled_back(storage)
    logs = OperatorLogs(
        storage,
        plan.operator,
        buckets=plan.buckets,
        query_id=query_id,
        ticks=plan.ticks,
        settings=plan.settings,
    )
    record_where_told(storage, plan.path, query_id)
    cache = StateCache(None if plan.cache_root is None else Path(plan.cache_root))
    bucket = Bucket(
        plan.operator,
        logs,
        number,
        plan.policy,
        cache,
        retain_batches=plan.retain_batches,
        answers_older=False,
        in_step=True,
    )
    try:
        return bucket.run(batch, rows)
    finally:
        # The next batch of this bucket may run in any process; this one is used for others.
        bucket.close(lingers=True)


def _position() -> tuple[int, str]:
    """Batch and query of the running task."""
    context = TaskContext.get()
    assert context is not None, "runs in a task"
    batch = context.getLocalProperty("streaming.sql.batchId")
    query_id = context.getLocalProperty("sql.streaming.queryId")
    if batch is None or query_id is None:
        raise SettingError(
            "A streaming aggregate ran outside of a micro-batch.",
            where="trigger",
            fix="Use a micro-batch trigger (processingTime, availableNow); continuous processing "
            "and real-time mode are not supported.",
        )
    return int(batch), query_id


def _for_spark(plan: Plan, results: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Results a part at a time, with the bounds of time windows as a struct, as Spark has them."""
    if plan.operator.bounds is not None:
        results = plan.operator.bounds.joined(results)
    for first in range(0, results.num_rows, _ROWS_AT_ONCE):
        yield results.slice(first, _ROWS_AT_ONCE)
