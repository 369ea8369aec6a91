"""Unsynced logs after a power failure: batches are lost, and a snapshot of one of them is not."""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pytest

from tests.support.engine import Judge, Query
from tests.support.harm import segment_path
from tests.support.orders import count_case, random_orders
from trailmark.checkpoint.policy import FullSnapshot
from trailmark.engine import BatchReport
from trailmark.records import Stream
from trailmark.settings import Durability, LogSettings
from trailmark.testing.disk import ROOT, SimulatedDisk

_EVERY, _LOST, _LAST = 4, 8, 13


class _Interrupted:
    """A query that had got to batch 8, and has to do it again: its rows come in another order."""

    def __init__(self) -> None:
        rows = random_orders(random.Random(1), batches=_LOST + 1, rows=40, items=8)
        # From then on all windows but one stay as they are.
        self.case = count_case(rows + [[(0, 1)]] * (_LAST - _LOST), size=60)
        self.disk = SimulatedDisk()
        policy = FullSnapshot(_EVERY, asynchronous=True)
        settings = LogSettings(durability=Durability.UNSYNCED)
        self.query = Query(self.case, self.disk, policy, settings=settings)
        self.judge = Judge(self.case, 1)
        for batch in range(_LOST):
            self.judge.check(self.query, batch, [self.run(batch)])
        self.run(_LOST)
        self.query.stop()
        assert self.query.logs().snapshots(0).batches() == [0, 4, 8]

    def run(self, batch: int, *, is_reversed: bool = False) -> BatchReport:
        rows = self.case.batches[batch]
        if is_reversed:
            rows = rows.take(pa.array(range(rows.num_rows - 1, -1, -1), pa.int64()))
        (report,) = self.query.run(batch, [rows])
        (bucket,) = self.query.open()
        while bucket._snapshots.is_busy:
            time.sleep(0.001)
        return report

    def lose_batch(self) -> None:
        for stream in (Stream.OUTPUT, Stream.INPUT):
            self.disk.unlink(f"{ROOT}/{segment_path(stream, _LOST)}")

    def go_on(self) -> None:
        """Does the lost batch again and all that follow, with a restart before each."""
        for batch in range(_LOST, _LAST + 1):
            report = self.run(batch, is_reversed=batch == _LOST)
            self.judge.check(self.query, batch, [report])
            self.judge.check_state(self.query, f"after batch {batch}")
            if batch > _LOST:  # the snapshot of the lost batch is begun, and is found
                self.query.stop()


def test_a_snapshot_of_a_batch_that_was_lost_and_done_again_is_not_used() -> None:
    interrupted = _Interrupted()
    interrupted.lose_batch()
    interrupted.go_on()


@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_a_torn_snapshot_of_a_batch_that_was_lost_stops_nothing(part: float) -> None:
    interrupted = _Interrupted()
    interrupted.lose_batch()
    path = segment_path(Stream.SNAPSHOT, _LOST)
    interrupted.disk.truncate(path, int(part * len(interrupted.disk.content(path))))
    interrupted.go_on()
