"""Replicas that count rows of a few keys by seconds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tests.support.cases import Case
from tests.support.replicas import Replica, Sliced
from trailmark.windows.functions import count
from trailmark.windows.functions import sum as total
from trailmark.windows.spec import time_window

SECOND = 1_000_000
COLUMNS = ["key", "n", "total"]
_SCHEMA = pa.schema([("time", pa.timestamp("us", "UTC")), ("key", pa.int32()), ("v", pa.int64())])


def sliced_seconds(first: int, last: int, keys: Sequence[int] = (0, 1)) -> Sliced:
    """A row of every key in every second, and windows of a second."""
    rows = [(second * SECOND + n, n, second + n) for second in range(first, last) for n in keys]
    arrays = [pa.array([row[0] for row in rows]).cast(_SCHEMA.field("time").type)]
    arrays += [pa.array([row[n] for row in rows], _SCHEMA.field(n).type) for n in (1, 2)]
    case = Case.of(
        _SCHEMA,
        by=["key"],
        window=time_window("time", "1 second"),
        values={"n": count(), "total": total("v")},
        batches=[],
    )
    return Sliced(case, "time", pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA), SECOND)


def replica_of_seconds(
    first: int, last: int, seed: int = 0, *, keys: Sequence[int] = (0, 1), buckets: int = 1
) -> Replica:
    """One that has taken in these seconds, cut into batches otherwise for every seed."""
    sliced = sliced_seconds(first, last, keys)
    return Replica(sliced, buckets, random.Random(seed), crash_chance=0.0).run()


def write_down(replica: Replica, root: Path) -> None:
    """Its files on a real disk."""
    disk = replica.query.disk
    for name in disk.files():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(disk.content(name))
