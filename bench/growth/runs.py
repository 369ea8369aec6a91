"""An operator in one or many buckets: fed batch by batch, and recovered on the side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.growth.points import Point
from bench.orders import SCHEMA, now_us
from bench.recover_aside import Recovered, recover_once
from trailmark.checkpoint.policy import FullSnapshot, Policy
from trailmark.engine import Bucket, OperatorLogs
from trailmark.log import LocalStorage

#: Output that no recovery needs is removed after so many batches, as on Spark.
_RETAIN_BATCHES = 100
#: The first batch writes all windows; no later one does.
_ONCE = FullSnapshot(1_000_000)


class Run:
    """The buckets of a point over their own logs, one after another in this process."""

    def __init__(self, place: Path, point: Point, policy: Policy) -> None:
        operator = point.operator()
        logs = OperatorLogs(LocalStorage(place), operator, buckets=point.buckets)
        self._buckets = [
            Bucket(operator, logs, n, policy, None, now_us, retain_batches=_RETAIN_BATCHES)
            for n in range(point.buckets)
        ]
        self.batch = 0

    def feed(self, parts: Sequence[pa.RecordBatch]) -> float:
        """Seconds that all buckets took for the next batch."""
        started = time.perf_counter()
        for bucket, rows in zip(self._buckets, parts, strict=True):
            bucket.run(self.batch, rows)
        self.batch += 1
        return time.perf_counter() - started

    def close(self) -> None:
        for bucket in self._buckets:
            bucket.close()


def split(rows: pa.RecordBatch, buckets: int) -> list[pa.RecordBatch]:
    """The rows of each bucket, by a hash of the id."""
    if buckets == 1:
        return [rows]
    ids = rows.column("item_id").to_numpy().astype(np.uint64)
    bucket = (ids * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) % np.uint64(buckets)
    order = np.argsort(bucket, kind="stable")
    ends = np.cumsum(np.bincount(bucket.astype(np.int64), minlength=buckets))
    ordered = rows.take(pa.array(order))
    return [ordered.slice(a, b - a) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def write_crashed(place: Path, point: Point, rows: pa.RecordBatch) -> None:
    """Logs as a crash leaves them one batch after all windows were written: those of all ids, open
    since the first batch."""
    ids = np.arange(point.ids, dtype=np.int32)
    first = pa.record_batch([ids, np.ones_like(ids)], schema=SCHEMA)
    run = Run(place, point, _ONCE)
    run.feed(split(first, point.buckets))
    run.feed(split(rows, point.buckets))
    run.close()


def recover(place: Path, point: Point) -> list[Recovered]:
    """Recovers every bucket of what `write_crashed` left, one after another."""
    return [
        recover_once(place, 1, point.operator, bucket, point.buckets)
        for bucket in range(point.buckets)
    ]
