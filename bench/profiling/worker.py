"""Traces Trailmark's task in the Python workers of Spark, without changing it.

The steps of a batch are methods and functions of Trailmark. Here they are wrapped, in the worker
and only when the benchmark asks for it, so that a tracer hears when each begins and ends.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

import trailmark.engine.bucket
import trailmark.log.stream_log
import trailmark.spark.task
from bench.profiling.parts import (
    ENCODE,
    FOOTPRINTS,
    JOIN,
    OPEN_LOGS,
    OTHER,
    PROCESS,
    ROWS_IN,
    ROWS_OUT,
    STATE,
    SYNC,
    TRIM,
    WAIT,
    WRITE,
)
from bench.profiling.spans import Tracer, explain_waits, totals
from trailmark.engine.bucket import Bucket, Ingested
from trailmark.engine.checkpoints import Checkpoints
from trailmark.engine.opening import StateKeeper
from trailmark.engine.state import BucketState
from trailmark.log import LocalStorage
from trailmark.log.storage.file_system import OperatingSystem
from trailmark.operators.aggregate import Aggregate
from trailmark.spark.task import Plan, run_micro_batch

#: What is traced, and the part it counts as.
TRACED: tuple[tuple[Any, str, str], ...] = (
    (trailmark.spark.task, "take_bucket", JOIN),
    (trailmark.engine.bucket, "select_columns", JOIN),
    (trailmark.engine.bucket, "fingerprint_of", JOIN),
    (trailmark.spark.task, "check_not_rolled_back", OPEN_LOGS),
    (trailmark.spark.task, "OperatorLogs", OPEN_LOGS),
    (Bucket, "__init__", OPEN_LOGS),
    (Bucket, "ingest", OPEN_LOGS),
    (Bucket, "close", OPEN_LOGS),
    (StateKeeper, "open", STATE),
    (StateKeeper, "drop", STATE),
    (BucketState, "begin_change", STATE),
    (Bucket, "_commit", STATE),
    (Aggregate, "process", PROCESS),
    (Checkpoints, "choose", FOOTPRINTS),
    (Checkpoints, "account", FOOTPRINTS),
    (Checkpoints, "learn", FOOTPRINTS),
    (Ingested, "settle", WAIT),
    (trailmark.log.stream_log, "encode_segment", ENCODE),
    (LocalStorage, "publish", WRITE),
    (OperatingSystem, "sync", SYNC),
    (OperatingSystem, "sync_directory", SYNC),
    (Bucket, "trim", TRIM),
)

_tracer: Tracer | None = None
_is_installed = False


def _install() -> None:
    """Wraps the parts, once in a process."""
    global _is_installed
    if _is_installed:
        return
    for owner, name, part in TRACED:
        setattr(owner, name, _traced(getattr(owner, name), part))
    _is_installed = True


def _traced(function: Callable[..., Any], part: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        if _tracer is None:
            return function(*arguments, **named)
        with _tracer.part(part):
            return function(*arguments, **named)

    return run


@dataclass(frozen=True, slots=True)
class TracedBatch:
    """Stands in for `run_micro_batch`, and leaves a file for every task."""

    directory: str

    def __call__(self, plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        global _tracer
        _install()
        began, started = time.time(), time.perf_counter()
        _tracer = tracer = Tracer()
        try:
            results = run_micro_batch(plan, _stepwise(tracer, batches, ROWS_IN))
            yield from _handed_over(tracer, results)
        finally:
            _tracer = None
        self._write(tracer, began, time.perf_counter() - started)

    def _write(self, tracer: Tracer, began: float, seconds: float) -> None:
        context = TaskContext.get()
        assert context is not None, "runs in a task"
        own, others = tracer.of_this_thread(), tracer.of_other_threads()
        parts = explain_waits(own, WAIT, others)
        parts[OTHER] = parts.get(OTHER, 0.0) + seconds - sum(totals(own).values())
        found = {
            "task": context.taskAttemptId(),
            "began": began,
            "seconds": seconds,
            "parts": parts,
            "in_background": totals(others),
        }
        path = Path(self.directory) / f"{context.taskAttemptId()}.json"
        path.write_text(json.dumps(found))


def _stepwise(tracer: Tracer, items: Iterable[Any], part: str) -> Iterator[Any]:
    """The items; the time until each is there counts as the part."""
    following = iter(items)
    while True:
        with tracer.part(part):
            try:
                item = next(following)
            except StopIteration:
                return
        yield item


def _handed_over(tracer: Tracer, items: Iterator[Any]) -> Iterator[Any]:
    """The items; the time until the next one is asked for counts as handing them over."""
    for item in _stepwise(tracer, items, OTHER):
        with tracer.part(ROWS_OUT):
            yield item
