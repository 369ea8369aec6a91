"""What workers do until they are killed. They import nothing that the tests alone need: a worker
that is started is to be at work at once."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tests.support.cases import Case
from tests.support.orders import orders, random_timed_orders, timed_orders
from tests.support.processes import Pipe, Place, stop_here
from trailmark.log import LocalStorage, Part
from trailmark.windows.spec import CountWindow

_STEP_US = 3_000_000


def rows_of(case: Case, batch: int) -> pa.RecordBatch:
    """The rows of any batch, the same in every process; some items come every time, some rarely."""
    rng = random.Random(batch)
    if isinstance(case.window, CountWindow):
        items = [int(60 * rng.random() ** 3) for _ in range(rng.randint(0, 60))]
        return orders([(item, rng.randrange(100)) for item in items])
    made = random_timed_orders(rng, batches=1, rows=50, items=25)[0]
    now = batch * _STEP_US
    return timed_orders(
        [(item, price, None if at is None else at + now) for item, price, at in made]
    )


def next_batch(place: Place) -> int:
    """As a query that is restarted asks: for the newest batch that some bucket may lack."""
    return max(0, min(place.logs().output(number).newest() for number in range(place.buckets)))


def run_on(pipe: Pipe, place: Place, seed: int, last: int | None) -> None:
    """Goes on from where the logs stand; announces every batch that it begins."""
    rng = random.Random(seed)
    buckets = [place.bucket(number) for number in range(place.buckets)]
    batch = next_batch(place)
    while last is None or batch <= last:
        parts = place.case.split(rows_of(place.case, batch), place.buckets)
        pipe.send(batch)
        for bucket, rows in zip(buckets, parts, strict=True):
            bucket.run(batch, rows)
            if rng.random() < 0.1:
                bucket.trim()
            if rng.random() < 0.1:
                bucket.close()
        batch += 1
    for bucket in buckets:
        bucket.close()


class _StopsAtSnapshot(LocalStorage):
    """Stops its process when a snapshot is to be published: before that, or right after."""

    def __init__(self, root: Path, batch: int, is_after: bool) -> None:
        super().__init__(root)
        self._name = f"{batch:020d}.seg"
        self._is_after = is_after

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        is_it = path.startswith("snap/") and path.endswith(self._name)
        if is_it and not self._is_after:
            stop_here()
        created = super().publish(path, parts, force_sync=force_sync)
        if is_it and self._is_after:
            stop_here()
        return created


def run_to_snapshot(pipe: Pipe, place: Place, batch: int, is_after: bool) -> None:
    """Runs from the first batch on, until a snapshot stops it."""
    bucket = place.bucket(storage=_StopsAtSnapshot(place.path, batch, is_after))
    for number in range(batch + 3):
        bucket.run(number, rows_of(place.case, number))
        while bucket._snapshots.is_busy and number % 4 == 0:
            time.sleep(0.001)
    pipe.send("it was not stopped")
