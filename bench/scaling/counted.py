"""What a query asks of its storage, counted: its tasks and its driver do here, without Spark, what
they do there with every batch.

Tasks run one after another, so nobody loses a race to publish. On Spark those that begin together
may (see `requests.Shape.racing`).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.scaling.counting import CountedStorage, Tally
from bench.scaling.requests import Requests, Shape
from trailmark.checkpoint.policy import FullSnapshot
from trailmark.engine.commits import RunMarks
from trailmark.engine.progress import read_progress
from trailmark.engine.ticks import DueBatch
from trailmark.log import PortRows, Storage, read_meta
from trailmark.operators.aggregate import Aggregate
from trailmark.settings import LogSettings
from trailmark.spark.received import ControlKeys
from trailmark.spark.task import Plan, run_bucket
from trailmark.windows import functions as f
from trailmark.windows.spec import count_window, time_window

_QUERY = str(uuid.UUID(int=7))
_SCHEMA = pa.schema(
    [("item", pa.int32()), ("price", pa.int32()), ("time", pa.timestamp("us", tz="UTC"))]
)
_SECOND_US = 1_000_000
#: Batches between two rounds of footprints: what is before the last but one can be trimmed.
_ROUND = 8


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """Requests of a batch: of every bucket's task, and of the driver after it.

    ``in_turn`` are those of ``tasks`` that a task waits for one after another.
    """

    tasks: Sequence[Requests]
    in_turn: Sequence[Requests]
    listener: Requests
    ticks: Requests

    def everybody(self) -> Requests:
        return sum(self.tasks, Counter()) + self.listener + self.ticks


class CountedQuery:
    """An aggregate in windows of count, or of event time, over logs in a storage."""

    def __init__(
        self,
        storage: Storage,
        cache: Path,
        shape: Shape,
        retain_batches: int | None,
    ) -> None:
        self._tally = Tally()
        self._storage = CountedStorage(storage, self._tally)
        window = time_window("time", "10 seconds") if shape.has_event_time else count_window(10)
        operator = Aggregate(_SCHEMA, by="item", window=window, values={"mean": f.avg("price")})
        self._plan = Plan(
            "aggregate",
            operator,
            ("item",),
            path="counted",
            buckets=shape.buckets,
            control=ControlKeys("item", tuple(range(shape.buckets))),
            policy=FullSnapshot(_ROUND),
            settings=LogSettings(),
            cache_root=str(cache),
            retain_batches=retain_batches,
            at_end=None,
            ticks=shape.has_event_time,
        )
        self._marks: RunMarks | None = None
        self._due = DueBatch(self._storage) if shape.has_event_time else None
        self._rng = np.random.default_rng(1)
        self.batch = 0

    def step(self) -> BatchCounts:
        """Runs the next batch in all buckets."""
        counts = [self._task(bucket) for bucket in range(self._plan.buckets)]
        found = BatchCounts(
            [all_of for all_of, _ in counts],
            [in_turn for _, in_turn in counts],
            self._follow(),
            self._look(),
        )
        self.batch += 1
        return found

    def _task(self, bucket: int) -> tuple[Requests, Requests]:
        self._tally.take()
        rows = PortRows((pa.Table.from_batches([self._rows()]),), None)
        run_bucket(self._plan, self._storage, _QUERY, self.batch, bucket, rows, None)
        return self._tally.take()

    def _rows(self) -> pa.RecordBatch:
        items = self._rng.integers(0, 20, 50, dtype=np.int32)
        times = self.batch * _SECOND_US + np.arange(50)
        return pa.record_batch(
            [items, items, pa.array(times, pa.timestamp("us", tz="UTC"))], schema=_SCHEMA
        )

    def _follow(self) -> Requests:
        """As `trailmark.spark.listener` does once Spark has committed the batch."""
        if self._marks is None:
            self._marks = RunMarks(self._storage, "run")
        meta = read_meta(self._storage)
        assert meta is not None
        assert self._marks.commit(self.batch)
        read_progress(self._storage, meta, self.batch)
        return self._tally.take()[0]

    def _look(self) -> Requests:
        """As the source of ticks does when it is asked for the next batch."""
        if self._due is not None:
            self._due.look()
        return self._tally.take()[0]
