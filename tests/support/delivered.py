"""Rows as they are delivered: in another order, and to buckets by their keys."""

from __future__ import annotations

import random
from collections.abc import Sequence
from zlib import crc32

import pyarrow as pa

from tests.support.plain import plain_rows


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
