"""The orders workload: item id, price; the average price of ten orders per item."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from trailmark.checkpoint.policy import Policy
from trailmark.engine import Bucket, OperatorLogs
from trailmark.log import LocalStorage, PortRows
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import AnyOperator
from trailmark.windows import functions as f
from trailmark.windows.spec import count_window

SCHEMA = pa.schema([("item_id", pa.int32()), ("item_price", pa.int32())])
WINDOW = 10


def now_us() -> float:
    return time.perf_counter() * 1e6


def aggregate(window: int = WINDOW) -> Aggregate:
    values = {"avg_price": f.avg("item_price")}
    return Aggregate(SCHEMA, by="item_id", window=count_window(window), values=values)


def orders(rng: np.random.Generator, items: int, tuples: int) -> pa.RecordBatch:
    """Orders of items chosen uniformly."""
    return priced(rng, rng.integers(0, items, tuples, dtype=np.int32))


def opening_orders(rng: np.random.Generator, items: int, tuples: int) -> list[pa.RecordBatch]:
    """Batches after which every item has an open window, filled as after a long run."""
    batches = []
    step = max(1, 2 * tuples // WINDOW)
    for first in range(0, items, step):
        ids = np.arange(first, min(items, first + step), dtype=np.int32)
        filled = np.repeat(ids, rng.integers(1, WINDOW, len(ids)))
        rng.shuffle(filled)
        batches.append(priced(rng, filled))
    return batches


def priced(
    rng: np.random.Generator, ids: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> pa.RecordBatch:
    """An order of each of these items."""
    prices = rng.integers(1, 1000, len(ids), dtype=np.int32)
    return pa.record_batch([ids, prices], schema=SCHEMA)


class Run:
    """One bucket over its own logs, fed batch by batch; of averages, if no other operator is
    given."""

    def __init__(
        self,
        root: Path,
        policy: Policy,
        clock: Callable[[], float] = now_us,
        operator: AnyOperator | None = None,
    ) -> None:
        self.root = root
        self.operator: AnyOperator = aggregate() if operator is None else operator
        self.logs = OperatorLogs(LocalStorage(str(root)), self.operator, buckets=1)
        self.bucket = Bucket(self.operator, self.logs, 0, policy, None, clock)
        self.batch = 0

    def feed(self, rows: pa.RecordBatch | PortRows) -> float:
        """Seconds that the next batch took."""
        started = time.perf_counter()
        self.report = self.bucket.run(self.batch, rows)
        self.batch += 1
        return time.perf_counter() - started
