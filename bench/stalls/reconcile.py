"""A failure is over: three ways to a state that has taken in everything in its order.

``waits`` is the product's: the state took nothing that was tentative, so it goes on from where it
is. The other two are those of the paper, with what the engine has for them. There the state took
tentative tuples, and has to go back to where it was before the failure:

``checkpoint`` loads a copy of the state that was written when the failure began (`FullSnapshot`);
``undo`` makes it again from the tuples that it was made of, which are in the input log
(`UpstreamBackup`).

Both are recoveries of the bucket to the batch before the failure, in a process that has everything
imported. Then all three take in the same batches, and write no footprints, so that they differ in
nothing else. Nothing new arrives meanwhile, and disks are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

import trailmark as tm
from bench.stalls.chain import SCHEMA
from trailmark.checkpoint.policy import FullSnapshot, NoCheckpoint, Policy, UpstreamBackup
from trailmark.engine import BatchReport, Bucket, OperatorLogs
from trailmark.log import MonotonicClock, monotonic_us
from trailmark.operators.aggregate import Aggregate
from trailmark.recovery import RecoveryReport
from trailmark.testing.disk import SimulatedDisk

Way: TypeAlias = Literal["waits", "checkpoint", "undo"]
WAYS: tuple[Way, ...] = ("waits", "checkpoint", "undo")

#: Tuples of a batch, at most, before the failure and after it.
_BATCH = 100_000
_SECOND = 1_000_000
_START_US = 1_000 * _SECOND
_HOUR = 3_600 * _SECOND
_NONE, _COPY, _INPUT = NoCheckpoint(), FullSnapshot("1 hour"), UpstreamBackup()
_BEFORE: Mapping[Way, Policy] = {"waits": _NONE, "checkpoint": _COPY, "undo": _INPUT}
_AFTER: Mapping[Way, Policy] = {"waits": _NONE, "checkpoint": _NONE, "undo": _INPUT}


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What it took.

    Attributes
    ----------
    back_s
        To go back, with a batch that has no rows.
    redo_s
        To take in what came during the failure.
    copy_s
        To write the copy, with a batch that has no rows; 0 where there is none.
    recovery
        How the state was brought back, where it was.
    counts
        What the windows have come to in the end: items, and how many tuples each has had.
    """

    back_s: float
    redo_s: float
    copy_s: float
    recovery: RecoveryReport | None
    counts: dict[int, int]


def reconcile(
    way: Way, state: int, failure: int, now_us: MonotonicClock = monotonic_us
) -> Reconciled:
    """A state of so many windows, each with one tuple before the failure, and so many tuples since
    it began."""
    operator = Aggregate(
        SCHEMA, by=["item"], window=tm.time_window("at", "1 hour"), values={"n": tm.count()}
    )
    logs = OperatorLogs(SimulatedDisk().storage(), operator, buckets=1)
    clock = _Clock(now_us)
    bucket = Bucket(operator, logs, 0, _BEFORE[way], None, clock)
    number = 0
    for rows in _batches(_START_US, state, state):
        bucket.run(number, rows)
        number += 1
    copy_us = 0.0
    if way == "checkpoint":
        clock.jump(_HOUR)
        began_us = clock()
        copied = bucket.run(number, SCHEMA.empty_table())
        copy_us = clock() - began_us
        written = copied.footprints_opened + copied.footprints_checked
        assert written == state, "all of it, or it is no copy"
        number += 1
    if way != "waits":
        bucket.close()
        bucket = Bucket(operator, logs, 0, _AFTER[way], None, clock)
    began_us = clock()
    first = bucket.run(number, SCHEMA.empty_table())
    assert first.footprints_checked == 0, "nothing is written while it goes back"
    back_us = clock()
    for rows in _batches(_START_US + _SECOND, failure, state):
        number += 1
        bucket.run(number, rows)
    ended_us = clock()
    bucket.run(number + 1, _after_all(state))
    last = bucket.run(number + 2, SCHEMA.empty_table())
    bucket.close()
    return Reconciled(
        (back_us - began_us) / _SECOND,
        (ended_us - back_us) / _SECOND,
        copy_us / _SECOND,
        first.recovery,
        _counts(last),
    )


class _Clock:
    """Goes on by itself, and by jumps."""

    def __init__(self, now_us: MonotonicClock) -> None:
        self._now_us = now_us
        self._jumped_us = 0.0

    def __call__(self) -> float:
        return self._now_us() + self._jumped_us

    def jump(self, us: float) -> None:
        self._jumped_us += us


def _batches(first_us: int, tuples: int, items: int) -> Iterator[pa.Table]:
    """So many tuples within a second, of one item after the other."""
    for begin in range(0, tuples, _BATCH):
        places = np.arange(begin, min(begin + _BATCH, tuples))
        times = pa.array(first_us + places * _SECOND // tuples).cast(SCHEMA.field("at").type)
        yield pa.table([times, pa.array(places % items)], schema=SCHEMA)


def _after_all(items: int) -> pa.Table:
    """A tuple of another item, later than all windows that were opened."""
    time = pa.array([_START_US + 2 * _HOUR]).cast(SCHEMA.field("at").type)
    return pa.table([time, pa.array([items])], schema=SCHEMA)


def _counts(report: BatchReport) -> dict[int, int]:
    found = report.results.to_pydict()
    return dict(zip(found["item"], found["n"], strict=True))
