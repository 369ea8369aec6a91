"""A query on a simulated disk that is stopped at any moment and started again.

The judge is the oracle, fed with the rows in the order the input log has them: after a crash a
batch may be delivered again in another order, and whichever order was logged first counts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tests.support.compare import assert_same_rows, assert_same_states
from tests.support.oracle import Identity, OracleOutcome, Row
from tests.support.policies import policy_for
from trailmark.engine import BatchReport, OperatorLogs
from trailmark.engine.follower import Follower
from trailmark.inspection.read_only import ReadOnly
from trailmark.log import PortRows, Segment
from trailmark.operators.protocol import AnyOperator
from trailmark.records import FrameKind
from trailmark.state.cache import StateCache
from trailmark.testing.disk import Crashed
from trailmark.testing.processes import Processes


class CrashCase(Protocol):
    """An operator of any kind, its oracle, and the batches that it is given."""

    @property
    def batches(self) -> Sequence[Any]:
        """Rows, as `Bucket.run` takes them."""

    def operator(self) -> AnyOperator:
        """A new one, as a new process has it."""

    def code(self) -> Any:
        """What a reader of its state has to be given: the part that is in no log, if there is
        one."""

    def oracle(self) -> Any:
        """Who judges the operator; it has ``published`` and ``open_windows``."""

    def shuffled(self, rows: Any, rng: random.Random) -> Any:
        """The rows of a batch in another order, as they come after a crash."""

    def split(self, rows: Any, buckets: int) -> Sequence[Any]:
        """Rows by bucket: equal keys go to the same one, in the order they came."""

    def outcome(
        self, oracle: Any, batch: int, rows: Any, late_before: int | None, watermark: int | None
    ) -> OracleOutcome:
        """What the oracle makes of a batch, given in the order in which its rows count."""

    def expected(self, oracle: Any, logged: Segment) -> OracleOutcome:
        """What the oracle makes of a batch, as its input is logged."""

    def footprint_states(self, operator: Any, footprints: pa.RecordBatch) -> dict[Identity, Row]:
        """The pieces that footprints are of, in their order, as the oracle describes them."""

    def states(self, operator: Any, state: Any) -> dict[Identity, Row]:
        """The pieces of a state, as the oracle describes them."""


def by_port(rows: Any) -> PortRows:
    """Rows of a case, whatever number of ports its operator has."""
    return rows if isinstance(rows, PortRows) else PortRows((rows,))


@dataclass
class Query(Processes):
    """The processes of a case, which may leave their state in a cache."""

    case: CrashCase
    cache_root: Path | None = None
    #: Where tables go that do not fit below ``cache_root``.
    spill_roots: tuple[Path, ...] = ()
    #: The caches of the hosts that it may run on, each with what it left there.
    hosts: tuple[Path, ...] = ()

    def move(self, rng: random.Random) -> None:
        """The next process may run on another host."""
        if self.hosts:
            self.cache_root = rng.choice(self.hosts)

    def follow(self, host: Path, operator: AnyOperator | None = None) -> list[int | None]:
        """Another process follows the query on a host; how many batches each table is behind."""
        operator = self.case.operator() if operator is None else operator
        logs = OperatorLogs(
            ReadOnly(self.disk.storage()),
            operator,
            buckets=self.buckets,
            told=self.told_of(operator),
        )
        return [
            Follower(operator, logs, number, StateCache(host), self.clock).step()
            for number in range(self.buckets)
        ]

    def cache(self) -> StateCache | None:
        return None if self.cache_root is None else StateCache(self.cache_root, *self.spill_roots)


class Judge:
    """Compares what a query did, batch by batch, with the oracle on the logged input."""

    def __init__(self, case: CrashCase, buckets: int) -> None:
        self._case = case
        self._operator = case.operator()
        self._oracles = [case.oracle() for _ in range(buckets)]
        self._outcomes: dict[tuple[int, int], OracleOutcome] = {}

    def check(self, query: Query, batch: int, reports: list[BatchReport]) -> None:
        logs = query.logs()
        for number, report in enumerate(reports):
            what = f"batch {batch}, bucket {number}"
            expected = self._expected(number, batch, logs.input(number).read(batch))
            oracle = self._oracles[number]
            assert_same_rows(report.results, oracle.published(expected.results), what)
            logged = logs.output(number).read(batch)
            assert_same_rows(_one(logged.table(FrameKind.RESULTS)), expected.results, what)
            assert report.late_rows == expected.late_rows, what
            assert report.late_updates == expected.late_updates, what
            assert report.null_times == expected.null_times, what
            assert report.account.open_windows == len(oracle.open_windows()), what

    def _expected(self, number: int, batch: int, logged: Segment) -> OracleOutcome:
        key = (number, batch)
        if key not in self._outcomes:
            self._outcomes[key] = self._case.expected(self._oracles[number], logged)
        return self._outcomes[key]

    def check_state(self, query: Query, after: str) -> None:
        """The state that the buckets hold is that of the oracle, bit for bit."""
        for number, bucket in enumerate(query.open()):
            state = bucket.state()
            if state is None:
                continue
            found = self._case.states(self._operator, state)
            assert_same_states(found, self._oracles[number].open_windows(), f"state {after}")

    def outcome(self, number: int, batch: int) -> OracleOutcome:
        return self._outcomes[number, batch]

    def oracle(self, number: int) -> Any:
        return self._oracles[number]


def _one(table: pa.Table | None) -> pa.RecordBatch:
    assert table is not None
    batches: list[Any] = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


@dataclass
class CrashPlan:
    """What may go wrong while a case runs, drawn from ``rng``."""

    rng: random.Random
    crash_chance: float = 0.5
    most_operations: int = 40
    #: How often an older table was brought up to date.
    caught_up: int = 0

    def run(self, query: Query, judge: Judge, *, change_policy: bool = False) -> int:
        """Runs all batches to the end, through every crash; returns how many there were."""
        crashes = 0
        for batch, rows in enumerate(query.case.batches):
            while True:
                parts = query.case.split(self._deliver(query.case, rows), query.buckets)
                if self.rng.random() < self.crash_chance:
                    query.disk.stop_after(self.rng.randrange(self.most_operations))
                try:
                    reports = query.run(batch, parts)
                    self._maintain(query, batch)
                    break
                except Crashed:
                    crashes += 1
                    self._restart(query)
                    query.move(self.rng)
                    if change_policy:
                        query.policy = policy_for(self.rng, query.case)
            query.disk.relax()
            self.caught_up += sum(report.caught_up is not None for report in reports)
            judge.check(query, batch, reports)
            judge.check_state(query, f"after batch {batch}")
            if query.hosts and self.rng.random() < 0.3:
                query.follow(self.rng.choice(query.hosts))
            if self.rng.random() < (0.5 if query.hosts else 0.2):
                query.stop()
                query.move(self.rng)
            elif self.rng.random() < 0.1:
                parts = query.case.split(self._deliver(query.case, rows), query.buckets)
                again = query.run(batch, parts)
                assert all(report.was_logged for report in again)
                judge.check(query, batch, again)
        return crashes

    def _deliver(self, case: CrashCase, rows: Any) -> Any:
        return case.shuffled(rows, self.rng) if self.rng.random() < 0.5 else rows

    def _restart(self, query: Query) -> None:
        query.stop()
        if self.rng.random() < 0.5:
            query.disk.kill()
            return
        query.disk.crash(self.rng)
        if query.cache_root is not None:
            # What a power failure leaves of mapped memory is not used: the boot is another one.
            for root in (query.cache_root, *query.spill_roots):
                for token in root.glob("*/*/token"):
                    token.unlink()

    def _maintain(self, query: Query, batch: int) -> None:
        """Trimming, merging and repair may happen at any time."""
        action = self.rng.random()
        if action < 0.1:
            for bucket in query.open():
                bucket.trim()
        elif action < 0.2:
            logs = query.logs()
            for number in range(query.buckets):
                logs.output(number).merge(batch - 1)
                logs.input(number).merge(batch - 1)
        elif action < 0.25:
            logs = query.logs()
            for number in range(query.buckets):
                assert logs.output(number).repair().is_whole
                assert logs.input(number).repair().is_whole
