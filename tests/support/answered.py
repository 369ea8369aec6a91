"""Logs with tentative results, made by the engine without Spark, and what has to be read of them.

A script stands in for the union: with every batch it says which decision that is made of, and since
which one tentative rows stand. What stands is found out here by the script alone, and contents are
those that the engine reported when the batches ran.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from tests.support.cases import Case
from tests.support.orders import count_case
from tests.support.plain import batch_of
from tests.support.streams import SetClock
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import BatchReport, Bucket, OperatorLogs
from trailmark.engine.commits import mark_committed
from trailmark.engine.tentative import InputsTold, Upstream
from trailmark.log import PortRows, Storage
from trailmark.testing.processes import AtOnce, StepClock

Row = tuple[Any, ...]


class Step(NamedTuple):
    """A batch: stable rows, tentative ones, and the first batch whose tentative rows still stand;
    None if nothing is tentative."""

    rows: Sequence[Row]
    tentative: Sequence[Row] = ()
    since: int | None = None


class Change(NamedTuple):
    """A row of a change feed."""

    row: Row
    is_tentative: bool
    change: str
    batch: int


def random_since(
    rng: random.Random, batch: int, since: int | None, *, ends: float, is_corrected: float
) -> int | None:
    """Since when tentative rows stand, after a batch: a failure begins, goes on, and ends or is
    corrected in part as often as the shares say."""
    dice = rng.random()
    if since is None:
        return batch if dice < 0.5 else None
    if dice < ends:
        return None
    return rng.randint(since, batch) if dice < ends + is_corrected else since


def random_steps(rng: random.Random, batches: int = 10) -> list[Step]:
    """Failures that begin, go on, and are corrected in parts or at once."""
    steps: list[Step] = []
    since = None
    for batch in range(batches):
        since = random_since(rng, batch, since, ends=0.2, is_corrected=0.3)
        is_empty = since is None or rng.random() < 0.2
        steps.append(Step(_orders(rng), () if is_empty else _orders(rng), since))
    return steps


def _orders(rng: random.Random) -> list[Row]:
    """Few prices, so that the same results come again and again."""
    return [(rng.randrange(5), rng.randrange(2)) for _ in range(rng.randrange(9))]


@dataclass
class Answered:
    """An operator of two buckets behind a scripted union."""

    storage: Storage
    steps: Sequence[Step]
    case: Case = field(default_factory=lambda: count_case([], size=2))
    buckets: int = 2
    clock: SetClock = field(default_factory=SetClock)
    retain_batches: int | None = None
    reports: list[list[BatchReport]] = field(default_factory=list)

    def run(self, batches: int | None = None) -> Answered:
        """Runs the batches that are left, or so many of them."""
        operator = self.case.operator()
        logs = OperatorLogs(
            self.storage,
            operator,
            buckets=self.buckets,
            query_id="query",
            clock=self.clock,
            told=lambda: self._told(len(self.reports)),
        )
        open_buckets = [
            Bucket(
                operator,
                logs,
                number,
                Continuous(),
                None,
                StepClock(),
                retain_batches=self.retain_batches,
                beside=AtOnce(),
            )
            for number in range(self.buckets)
        ]
        end = len(self.steps) if batches is None else len(self.reports) + batches
        for batch in range(len(self.reports), end):
            self.clock.now_us += 1_000_000
            self.reports.append(list(self._run(open_buckets, batch)))
            mark_committed(self.storage, batch, "a run")
        for bucket in open_buckets:
            bucket.close()
        return self

    def _run(self, open_buckets: Sequence[Bucket], batch: int) -> Iterator[BatchReport]:
        step = self.steps[batch]
        stable, tentative = self._parts(step.rows), self._parts(step.tentative)
        for bucket, rows, others in zip(open_buckets, stable, tentative, strict=True):
            yield bucket.run(batch, rows, PortRows((others,)) if step.tentative else None)

    def _parts(self, rows: Sequence[Row]) -> list[pa.RecordBatch]:
        return self.case.split(batch_of(self.case.schema, rows), self.buckets)

    def _told(self, batch: int) -> InputsTold:
        since = self.steps[batch].since
        phase = "STABLE" if since is None else "UP_FAILURE"
        return InputsTold((None,), (None,), (Upstream(batch, since, phase),))

    # What has to be read

    def results(self, batch: int, bucket: int) -> list[Row]:
        """The stable results."""
        return _rows(self.reports[batch][bucket].results)

    def tentative(self, batch: int, bucket: int) -> list[Row]:
        """The tentative results."""
        found = self.reports[batch][bucket].tentative
        return [] if found is None else _rows(found)

    def standing(self, batch: int) -> list[int]:
        """The batches whose tentative results stand at the end of one."""
        since = self.steps[batch].since
        return [] if since is None else list(range(since, batch + 1))

    def everything(self, first: int = 0, last: int | None = None) -> list[tuple[Row, bool]]:
        """All results in their order."""
        end = len(self.reports) if last is None else last + 1
        return [
            (row, is_tentative)
            for batch in range(first, end)
            for bucket in range(self.buckets)
            for is_tentative, rows in (
                (False, self.results(batch, bucket)),
                (True, self.tentative(batch, bucket)),
            )
            for row in rows
        ]

    def current(self, last: int, first: int = 0) -> Counter[tuple[Row, bool]]:
        """Stable results, and tentative ones that stand at the end of the last batch."""
        found: Counter[tuple[Row, bool]] = Counter()
        for bucket in range(self.buckets):
            for batch in range(first, last + 1):
                found.update((row, False) for row in self.results(batch, bucket))
            for batch in self.standing(last):
                if batch >= first:
                    found.update((row, True) for row in self.tentative(batch, bucket))
        return found

    def changes(self, batch: int, first: int = 0) -> list[Change]:
        """What came and went with a batch, for whoever has seen all since another one."""
        stood = [] if batch == 0 else self.standing(batch - 1)
        void = [each for each in stood if each not in self.standing(batch) and each >= first]
        found = []
        for bucket in range(self.buckets):
            for each in void:
                gone = self.tentative(each, bucket)
                found += [Change(row, True, "delete", batch) for row in gone]
            stable, tentative = self.results(batch, bucket), self.tentative(batch, bucket)
            found += [Change(row, False, "insert", batch) for row in stable]
            found += [Change(row, True, "insert", batch) for row in tentative]
        return found


def apply_changes(changes: Sequence[Change]) -> Counter[tuple[Row, bool]]:
    """What is left of nothing; a delete of what is not there is an error."""
    found: Counter[tuple[Row, bool]] = Counter()
    for each in changes:
        key = (each.row, each.is_tentative)
        found[key] += 1 if each.change == "insert" else -1
        assert found[key] >= 0, each
        if not found[key]:
            del found[key]
    return found


#: A failure that is corrected in part, then at once; and a second one, which goes on.
SOME_STEPS = [
    Step([(1, 1), (2, 1), (1, 2)]),
    Step([(2, 2)], [(1, 3), (1, 4), (2, 5)], since=1),
    Step([(1, 3)], [(2, 6), (2, 7), (1, 8)], since=1),
    Step([(1, 4)], [(3, 1), (3, 1)], since=2),
    Step([(2, 5), (2, 6), (2, 7)], (), since=None),
    Step([(3, 1)], [(3, 2)], since=5),
    Step([], [(4, 1), (4, 1), (4, 2), (4, 3)], since=5),
]
RESULT_NAMES = ("item", "total", "number", "last")


def _rows(batch: pa.RecordBatch) -> list[Row]:
    return [tuple(row.values()) for row in batch.to_pylist()]
