"""What a Python worker does: one bucket and one batch through the engine.

Everything is in the log before the first row is handed to Spark. A sink may stop reading, evaluate
the batch twice, or lose the task half-way: whoever comes next is answered from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from trailmark.checkpoint.policy import Policy
from trailmark.engine import Bucket, OperatorLogs
from trailmark.engine.commits import check_not_rolled_back
from trailmark.errors import SettingError
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import BatchInput
from trailmark.settings import LogSettings
from trailmark.spark.received import ControlKeys, take_bucket
from trailmark.spark.storages import storage_at
from trailmark.state.cache import StateCache
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable
from trailmark.values import dataclass

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


def run_batch(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of a bucket's rows in one pass, without logs: for DataFrames that do not
    stream."""
    _, rows = take_bucket(batches, plan.operator.input_schema, plan.control)
    table = StateTable(plan.operator.layout, Memory())
    outcome = plan.operator.process(table, BatchInput(0, rows))
    yield from _for_spark(plan.operator.publish(outcome.results))
    if plan.flush:
        yield from _for_spark(plan.operator.publish(plan.operator.unfinished(table)))


def run_micro_batch(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of a bucket's rows of one micro-batch, once the log has them."""
    batch, query_id = _position()
    number, rows = take_bucket(batches, plan.operator.input_schema, plan.control)
    storage = storage_at(plan.path, plan.settings)
    check_not_rolled_back(storage)
    logs = OperatorLogs(
        storage, plan.operator, buckets=plan.buckets, query_id=query_id, settings=plan.settings
    )
    cache = StateCache(None if plan.cache_root is None else Path(plan.cache_root))
    bucket = Bucket(
        plan.operator,
        logs,
        number,
        plan.policy,
        cache,
        retain_batches=plan.retain_batches,
        answers_older=False,
    )
    try:
        report = bucket.run(batch, rows)
    finally:
        # The next batch of this bucket may run in any process; this one is used for others.
        bucket.close(lingers=True)
    yield from _for_spark(report.results)


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


def _for_spark(results: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Results a part at a time, with the bounds of time windows as a struct, as Spark has them."""
    names = results.schema.names
    if "window_start" in names:
        at = names.index("window_start")
        bounds = pa.StructArray.from_arrays(results.columns[at : at + 2], ["start", "end"])
        columns = [*results.columns[:at], bounds, *results.columns[at + 2 :]]
        results = pa.RecordBatch.from_arrays(columns, [*names[:at], "window", *names[at + 2 :]])
    for first in range(0, results.num_rows, _ROWS_AT_ONCE):
        yield results.slice(first, _ROWS_AT_ONCE)
