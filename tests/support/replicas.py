"""Replicas of an operator behind a union, on simulated disks: the same slices of time, cut into
batches otherwise, each with crashes of its own.

The judge is the oracle of the operator, which takes every slice as a batch, those without rows too.
What it cannot say is the order of results within a slice: that has to be the same for all replicas.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tests.support.cases import Case
from tests.support.compare import assert_same_rows, assert_same_states
from tests.support.engine import CrashCase, Query
from tests.support.keyed import random_keyed
from tests.support.oracle import Row
from tests.support.policies import policy_for
from tests.support.sessions import random_sessions
from tests.support.strategies import random_case
from trailmark.engine import BatchReport, Bucket
from trailmark.engine.numbers import NOTHING_GIVEN, given_after, given_before, results_given
from trailmark.engine.tentative import InputsTold
from trailmark.engine.tentative import Told as AsksTold
from trailmark.kernel.columns import contiguous
from trailmark.kernel.fingerprints import row_digests
from trailmark.log import Segment, read_ports
from trailmark.log.readers import read_reader
from trailmark.operators.protocol import AnyOperator
from trailmark.operators.slices import in_slices
from trailmark.records import Fingerprint, FrameKind
from trailmark.testing.disk import Crashed, SimulatedDisk
from trailmark.windows.spec import CountWindow, TimeWindow, event_times

#: The name under which results are read while they come.
READER = "follower"
_SLICES = (1, 4, 25)


@dataclass(frozen=True)
class Sliced:
    """A case whose rows a union gives out slice by slice.

    Parameters
    ----------
    case
        The operator and its oracle.
    time
        The column that says when a row was.
    rows
        All rows, in order.
    slice_us
        How long a slice is.
    """

    case: Any
    time: str
    rows: pa.RecordBatch
    slice_us: int

    def operator(self) -> AnyOperator:
        return in_slices(self.case.operator(), self.time, self.slice_us)

    @property
    def first_us(self) -> int:
        """Where the first slice begins."""
        return int(self.times[0]) // self.slice_us * self.slice_us

    @property
    def times(self) -> Any:
        return event_times(self.rows.column(self.time))

    def boundaries(self, rng: random.Random) -> list[int]:
        """How far the union is with each batch: several slices, one, or none, also behind the last
        row."""
        last = int(self.times[-1])
        found = [self.first_us + self.slice_us * rng.choice((0, 0, 1, 2))]
        most = rng.choice((1, 2, 9))
        while found[-1] <= last or rng.random() < 0.6:
            found.append(found[-1] + self.slice_us * rng.randint(0, most))
        return found


def random_sliced(rng: random.Random) -> Sliced:
    """Aggregates over windows of time or of tuples, sessions, and keyed operators."""
    while True:
        case, time = rng.choice((_aggregate, _counting, _sessions, _keyed))(rng)
        batches = [each for each in case.batches if each.num_rows]
        if not batches:
            continue
        rows = contiguous(pa.Table.from_batches(batches))
        rows = rows.filter(rows.column(time).is_valid())
        if not rows.num_rows:
            continue
        rows = rows.take(pa.array(np.argsort(event_times(rows.column(time)), kind="stable")))
        times = event_times(rows.column(time))
        slice_us = max(1, int(times[-1] - times[0]) // rng.choice(_SLICES))
        return Sliced(case, time, rows, slice_us)


def _aggregate(rng: random.Random) -> tuple[CrashCase, str]:
    while True:
        case = random_case(rng)
        if isinstance(case.window, TimeWindow):
            return case, case.window.column


def _counting(rng: random.Random) -> tuple[CrashCase, str]:
    """Windows of a count of tuples have no event time: their order says when they were."""
    case, time = _aggregate(rng)
    assert isinstance(case, Case)
    size = rng.randint(1, 6)
    window = CountWindow(size, rng.choice((size, size, rng.randint(1, size + 2))))
    return replace(case, window=window, late="drop", order_by=(time,)), time


def _sessions(rng: random.Random) -> tuple[CrashCase, str]:
    case = random_sessions(rng)
    return case, case.window.column  # type: ignore[union-attr]


def _keyed(rng: random.Random) -> tuple[CrashCase, str]:
    while True:
        case = random_keyed(rng)
        if case.operator().ports[0].event_time and not case.operator().uses_clock:
            return case, "at"


@dataclass
class Told(Query):
    """The processes of a replica. What the union has decided is the same for whoever asks while a
    batch runs."""

    boundary_us: int | None = None

    def told_of(self, operator: AnyOperator) -> AsksTold:
        return partial(self._inputs, operator)

    def _inputs(self, operator: AnyOperator) -> InputsTold:
        (port, *others) = operator.ports
        known = None
        if port.event_time is not None and self.boundary_us is not None:
            known = self.boundary_us - int(port.late_at_watermark)
        return InputsTold([known, *(None for _ in others)])


@dataclass
class Replica:
    """One run of the case, with batches and crashes of its own.

    Attributes
    ----------
    results, given
        What each bucket has given, in order, and its count and digest.
    """

    processes: ClassVar[type[Told]] = Told

    sliced: Sliced
    buckets: int
    rng: random.Random
    crash_chance: float
    results: list[list[pa.RecordBatch]] = field(init=False)
    given: list[Fingerprint] = field(init=False)
    crashes: int = 0
    #: How often an older table was brought up to date.
    caught_up: int = 0

    def __post_init__(self) -> None:
        self.results = [[] for _ in range(self.buckets)]
        self.given = [NOTHING_GIVEN] * self.buckets
        self._oracles = [self.sliced.case.oracle() for _ in range(self.buckets)]
        #: Of each bucket, the end of the slice that its oracle has taken last.
        self._judged: list[int | None] = [None] * self.buckets
        policy = policy_for(self.rng, self.sliced.case)
        self.query = self.processes(self.sliced, SimulatedDisk(), policy, self.buckets)  # type: ignore[arg-type]

    def run(self) -> Replica:
        """All batches to the end."""
        for _ in self.steps():
            pass
        return self

    def steps(self) -> Iterator[int]:
        """One batch after another."""
        begin = self.sliced.first_us
        for batch, end in enumerate(self.sliced.boundaries(self.rng)):
            self.query.boundary_us = end
            parts = self.sliced.case.split(self._rows(begin, end), self.buckets)
            for number, report in enumerate(self._run(batch, parts)):
                self.caught_up += report.caught_up is not None
                self._judge(number, batch, report, end)
            self._check_states(batch)
            if self.rng.random() < 0.2:
                self.query.stop()
                self.query.move(self.rng)
            begin = end
            yield batch
        self.query.stop()

    def _rows(self, begin: int, end: int) -> pa.RecordBatch:
        """Rows of a batch as they come out of a shuffle: those of one time as they are in the
        stream, those of different times in any order."""
        times = self.sliced.times
        first, last = np.searchsorted(times, [begin, end])
        rows = self.sliced.rows.slice(first, last - first)
        groups = np.flatnonzero(np.diff(times[first:last], prepend=begin - 1))
        bounds = list(pairwise([*groups.tolist(), rows.num_rows]))
        self.rng.shuffle(bounds)
        places = [place for a, b in bounds for place in range(a, b)]
        return rows.take(pa.array(places, pa.int64()))

    def _run(self, batch: int, parts: Sequence[Any]) -> list[BatchReport]:
        while True:
            if self.rng.random() < self.crash_chance:
                self.query.disk.stop_after(self.rng.randrange(40))
            try:
                reports = self._carry_out(batch, parts)
                if self.rng.random() < 0.2:
                    self._trim(batch)
                self.query.disk.relax()
                return reports
            except Crashed:
                self.crashes += 1
                self.query.stop()
                self.query.move(self.rng)
                if self.rng.random() < 0.5:
                    self.query.disk.kill()
                else:
                    self.query.disk.crash(self.rng)

    def _carry_out(self, batch: int, parts: Sequence[Any]) -> list[BatchReport]:
        return self.query.run(batch, parts)

    def _trim(self, batch: int) -> None:
        """What nobody needs any more; all results do as long as nobody has said what he needs."""
        storage = self.query.disk.storage(self.query.settings.durability)
        known = read_reader(storage, READER)
        for bucket in self.query.open():
            bucket.trim(None if known is None else batch)

    def _judge(self, number: int, batch: int, report: BatchReport, end: int) -> None:
        """The results of a bucket are those of the oracle, slice by slice, with these numbers."""
        logs = self.query.logs()
        segment = logs.output(number).read(batch)
        logged = segment.table(FrameKind.RESULTS)
        assert logged is not None
        results = contiguous(logged)
        given = given_after(self.given[number], results)
        assert results_given(segment.footer, segment.origin) == given, f"batch {batch}"
        assert given_before(given, results) == self.given[number]
        self.given[number] = given
        self.results[number].append(results)
        assert report.late_rows == 0, "behind a union no row is late"
        done = 0
        for what, expected in self._expected(number, logs.input(number).read(batch), end):
            found = contiguous(logged.slice(done, len(expected)))
            assert_same_rows(found, expected, f"batch {batch}, bucket {number}, {what}")
            done += len(expected)
        assert done == logged.num_rows, f"batch {batch}, bucket {number}: more than expected"

    def _expected(
        self, number: int, logged: Segment, end: int
    ) -> Iterator[tuple[str, Sequence[Row]]]:
        """What the oracle makes of every slice, in which its rows are as they are logged."""
        sliced, ports = self.sliced, self.query.case.operator().ports
        rows = read_ports(logged, ports).tables[0]
        times = event_times(rows.column(sliced.time))
        inside = int(ports[0].late_at_watermark)
        at, before = sliced.first_us, self._judged[number]
        if before is not None:
            at = before
        while at < end:
            at += sliced.slice_us
            part = rows.filter(pa.array((times >= at - sliced.slice_us) & (times < at)))
            late_before = None if before is None else before - inside
            has_time = ports[0].event_time is not None
            outcome = sliced.case.outcome(
                self._oracles[number],
                logged.batch,
                contiguous(pa.Table.from_batches([part])),
                late_before if has_time else None,
                at - inside if has_time else None,
            )
            before = at
            yield f"slice to {at}", outcome.results
        self._judged[number] = before

    def _check_states(self, batch: int) -> None:
        operator = self.sliced.case.operator()
        for number, bucket in enumerate(self._buckets()):
            state = bucket.state()
            if state is not None:
                found = self.sliced.case.states(operator, state)
                expected = self._oracles[number].open_windows()
                assert_same_states(found, expected, f"bucket {number} after batch {batch}")

    def _buckets(self) -> list[Bucket]:
        return self.query.open()


def run_replicas(seed: int, make: Callable[[random.Random], Sliced] = random_sliced) -> int:
    """Two replicas of a random case; returns how often they crashed."""
    rng = random.Random(seed)
    sliced, buckets = make(rng), rng.choice((1, 1, 2, 3))
    chance = rng.choice((0.0, 0.3, 0.6))
    one, other = (
        Replica(sliced, buckets, random.Random(rng.random()), chance).run() for _ in range(2)
    )
    for number, (ours, theirs) in enumerate(zip(one.results, other.results, strict=True)):
        assert_begin_alike(ours, theirs, f"bucket {number}")
    return one.crashes + other.crashes


def assert_begin_alike(
    ours: Sequence[pa.RecordBatch], theirs: Sequence[pa.RecordBatch], what: str
) -> None:
    """One may have come further. What both have is the same, bit for bit, in the same order."""
    one, other = (contiguous(pa.Table.from_batches(each)) for each in (ours, theirs))
    both = min(one.num_rows, other.num_rows)
    digests = [row_digests(each.slice(0, both)).copy() for each in (one, other)]
    differing = np.flatnonzero(digests[0] != digests[1])
    assert not len(differing), (
        f"{what}, number {differing[0]}: {one.slice(differing[0], 1)} and "
        f"{other.slice(differing[0], 1)}"
    )
