"""Rows as they are delivered: in another order, and to buckets by their keys; of one input or of
several."""

from __future__ import annotations

import random
from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pyarrow as pa

from tests.support.plain import plain_rows
from trailmark.log import PortRows


def shuffled(rows: pa.RecordBatch, rng: random.Random) -> pa.RecordBatch:
    """The rows of a batch in another order, as they come after a crash."""
    places = list(range(rows.num_rows))
    rng.shuffle(places)
    return rows.take(pa.array(places, pa.int64()))


def split(rows: pa.RecordBatch, by: Sequence[str], buckets: int) -> list[pa.RecordBatch]:
    """Rows by bucket: equal keys go to the same one, in the order they came."""
    if buckets == 1:
        return [rows]
    keys = [tuple(row[name] for name in by) for row in plain_rows(rows)]
    numbers = [crc32(repr(key).encode()) % buckets for key in keys]
    return [
        rows.take(pa.array([i for i, n in enumerate(numbers) if n == b], pa.int64()))
        for b in range(buckets)
    ]


def shuffled_ports(rows: PortRows, rng: random.Random) -> PortRows:
    """The rows of all inputs in another order."""
    assert rows.order is not None
    order = rows.order.tolist()
    rng.shuffle(order)
    tables = tuple(shuffled(table, rng) for table in rows.tables)
    return PortRows(tables, np.array(order, dtype=np.uint8))


def split_ports(rows: PortRows, by: Sequence[str], buckets: int) -> list[PortRows]:
    """The rows of all inputs by bucket, in the order they came."""
    if buckets == 1:
        return [rows]
    assert rows.order is not None
    of_ports = [
        [crc32(repr([row[name] for name in by]).encode()) % buckets for row in plain]
        for plain in map(plain_rows, rows.tables)
    ]
    ports = [iter(numbers) for numbers in of_ports]
    of_order = [next(ports[port]) for port in rows.order.tolist()]
    parts = []
    for bucket in range(buckets):
        tables = tuple(
            table.take(pa.array([i for i, n in enumerate(numbers) if n == bucket], pa.int64()))
            for table, numbers in zip(rows.tables, of_ports, strict=True)
        )
        order = [p for p, n in zip(rows.order.tolist(), of_order, strict=True) if n == bucket]
        parts.append(PortRows(tables, np.array(order, dtype=np.uint8)))
    return parts
