"""What the experiment on growth gives its buckets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench.growth.points import Point
from bench.growth.runs import recover, split, write_crashed
from bench.orders import SCHEMA, WINDOW, orders
from trailmark.operators.protocol import BatchInput
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable


def test_a_split_keeps_every_row_and_the_order_of_each_id() -> None:
    rows = orders(np.random.default_rng(1), items=50, tuples=1_000)
    parts = split(rows, 4)
    ids = [set(part.column("item_id").to_pylist()) for part in parts]
    assert sum(map(len, ids)) == 50  # an id is in one bucket only
    assert all(len(found) > 5 for found in ids)
    assert _prices(parts) == _prices([rows])


def _prices(parts: list[pa.RecordBatch]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for part in parts:
        for row in part.to_pylist():
            found.setdefault(row["item_id"], []).append(row["item_price"])
    return found


@pytest.mark.parametrize("width", [16, 256])
def test_the_histogram_is_as_wide_as_asked_and_counts(width: int) -> None:
    operator = Point("state", width, histogram_bytes=width).operator()
    assert operator.layout.state.itemsize == width
    prices = np.random.default_rng(2).integers(1, 1_000, WINDOW, dtype=np.int32)
    table = StateTable(operator.layout, Memory())
    results = []
    for batch, some in enumerate(np.array_split(prices, 3)):
        rows = pa.record_batch([np.zeros_like(some), some], schema=SCHEMA)
        results += operator.process(table, BatchInput(batch, rows)).results.to_pylist()
    counts = Counter((prices % (width // 8)).tolist())
    fullest = min(bin for bin in counts if counts[bin] == max(counts.values()))
    assert results == [{"item_id": 0, "value": fullest}]


@pytest.mark.parametrize("buckets", [1, 3])
def test_a_recovery_loads_the_windows_of_all_ids_and_replays_one_batch(
    tmp_path: Path, buckets: int
) -> None:
    point = Point("ids", 200, ids=200, tuples=500, buckets=buckets)
    write_crashed(tmp_path, point, orders(np.random.default_rng(3), point.ids, point.tuples))
    found = recover(tmp_path, point)
    assert len(found) == buckets
    assert sum(recovered.work.records for recovered in found) == 200
    assert sum(recovered.work.tuples for recovered in found) == 500
