"""What must be left of a state after a crash with loss accepted, said in plain Python.

A bucket is watched while it lives: its state at the end of every batch, which footprints each batch
has written, and which windows it has closed. From these alone follows what a recovery can find, for
whichever segments are damaged; no log is walked, and no account believed.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.compare import assert_same_rows, assert_same_states, exact
from tests.support.engine import CrashCase, Query
from tests.support.keyed import random_keyed
from tests.support.oracle import Identity, Row
from tests.support.plain import plain_rows
from tests.support.sessions import random_sessions
from tests.support.strategies import random_case
from tests.support.whole import random_whole
from trailmark.checkpoint.policy import Policy
from trailmark.engine import BatchReport
from trailmark.kernel.columns import contiguous
from trailmark.log import Segment
from trailmark.operators.protocol import AnyOperator
from trailmark.records import OPENED, Foundation, FrameKind, Loss
from trailmark.recovery import InputHistory, RecoveryReport, batch_input
from trailmark.state.memory import Memory
from trailmark.testing.disk import SimulatedDisk

#: When the first batch comes, and how far apart batches are.
_BEGAN_US, _BETWEEN_US = 1_700_000_000_000_000, 400_000


@dataclass
class Seen:
    """What was seen of a batch: the windows open at its end, the footprints that it wrote, the
    windows that it closed, the tuples that it took, and the snapshot that its footer names."""

    states: Mapping[Identity, Row]
    footprints: Mapping[Identity, Row]
    closed: Collection[Identity]
    tuples: int
    snapshot: int | None


@dataclass
class Statement:
    """``found``: the newest footprint of each window that is not known to have closed, whichever
    lies in no damaged segment; by the snapshots that are named alone, then with all others up to
    each: who meets damage looks for those before it. ``needed``: the windows that were open for
    certain, and have one."""

    found: Sequence[Mapping[Identity, Row]]
    needed: set[Identity]


@dataclass
class Watched:
    """One bucket on a simulated disk, in one process after another."""

    case: CrashCase
    policy: Policy
    loss: Loss
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    cache_root: Path | None = None
    retain_batches: int | None = None

    def __post_init__(self) -> None:
        self.seen: dict[int, Seen] = {}
        self.next_batch = 0
        self.damaged: set[int] = set()
        self._operator = self.case.operator()
        self.query = self._new_query(self.disk)

    def _new_query(self, disk: SimulatedDisk) -> Query:
        made = Query(self.case, disk, self.policy, cache_root=self.cache_root)
        made.loss, made.retain_batches = self.loss, self.retain_batches
        made.wall = self.wall_us
        return made

    def wall_us(self) -> int:
        """The time, which is the same whoever does a batch."""
        return _BEGAN_US + _BETWEEN_US * self.next_batch

    @property
    def is_over(self) -> bool:
        return self.next_batch == len(self.case.batches)

    def step(self) -> BatchReport:
        """Runs the next batch, and looks at what it did."""
        batch = self.next_batch
        (report,) = self.query.run(batch, [self.case.batches[batch]])
        logs = self.query.logs()
        is_named = report.account.foundation is Foundation.SNAPSHOT
        self.seen[batch] = Seen(
            self.states(),
            self._footprints(logs.output(0).read(batch)),
            closed_in(self._operator, logs.output(0).read(batch)),
            logs.input(0).read(batch).footer.fingerprint.rows,
            report.account.base if is_named else None,
        )
        self.next_batch += 1
        return report

    def _footprints(self, segment: Segment) -> dict[Identity, Row]:
        table = segment.table(FrameKind.FOOTPRINTS)
        if table is None or not table.num_rows:
            return {}
        return dict(self.case.footprint_states(self._operator, contiguous(table)))

    def states(self) -> dict[Identity, Row]:
        (bucket,) = self.query.open()
        state = bucket.state()
        assert state is not None
        return self.case.states(self._operator, state)

    def restart(self, *, policy: Policy | None = None, loss: Loss | None = None) -> None:
        """Another process goes on, with whatever the cache has; or none, if there is no cache."""
        self.query.stop()
        self.policy = self.policy if policy is None else policy
        self.loss = self.loss if loss is None else loss
        self.query = self._new_query(self.disk)

    def recovered(self, loss: Loss | None = None) -> tuple[dict[Identity, Row], RecoveryReport]:
        """The state with which another process, that has only a copy of the disk, would go on."""
        twin = self._new_query(self.disk.copy())
        twin.cache_root = None
        twin.loss = self.loss if loss is None else loss
        (bucket,) = twin.open()
        state, report, _ = bucket._keeper.open(self.next_batch)
        assert report is not None
        found = self.case.states(self._operator, state.pieces)
        twin.stop()
        return found, report

    def left(self) -> Statement:
        """What must be left of the state by now."""
        log = self._new_query(self.disk).logs().snapshots(0)
        there = {batch: self._footprints(log.read(batch)) for batch in log.batches()}
        whole = self.seen.keys() - self.damaged
        named = {self.seen[batch].snapshot for batch in whole}
        found = [
            self._found({each: there[each] for each in there if each in named or each <= newest})
            for newest in (-1, *there)
        ]
        now = self.seen[self.next_batch - 1].states
        needed = {
            identity
            for identity, state in found[0].items()
            if identity in now and now[identity][OPENED] == state[OPENED]
        }
        return Statement(found, needed)

    def _found(self, snapshots: Mapping[int, Mapping[Identity, Row]]) -> dict[Identity, Row]:
        found: dict[Identity, Row] = {}
        met: set[Identity] = set()
        for batch in range(self.next_batch - 1, -1, -1):
            if batch in self.damaged:
                continue
            written = {**snapshots.get(batch, {}), **self.seen[batch].footprints}
            found |= {each: written[each] for each in written.keys() - met}
            met |= {*written, *self.seen[batch].closed}
        return found

    def tuples_since(self, batch: int) -> int:
        return sum(self.seen[later].tuples for later in range(batch + 1, self.next_batch))

    def tuples_unprotected(self) -> int:
        """Tuples since the oldest footprint of the newest batch at which every window had one."""
        batch = self.next_batch - 1
        while batch >= 0:
            ages = self._ages(batch)
            if None not in ages.values():
                oldest = min((age for age in ages.values() if age is not None), default=batch)
                return self.tuples_since(oldest)
            batch -= 1
        return self.tuples_since(-1)

    def _ages(self, batch: int) -> dict[Identity, int | None]:
        """Of every window open at the end of a batch, the batch of its newest footprint."""
        ages: dict[Identity, int | None] = {}
        for identity, state in self.seen[batch].states.items():
            written = [
                earlier
                for earlier in range(batch + 1)
                if identity in self.seen[earlier].footprints
                and self.seen[earlier].footprints[identity][OPENED] == state[OPENED]
            ]
            ages[identity] = max(written, default=None)
        return ages

    def check_left(self) -> RecoveryReport:
        """A recovery with loss accepted leaves what must be left, and counts the rest."""
        found, report = self.recovered(Loss.BOUNDED)
        plan, lost, statement = report.plan, report.plan.lost, self.left()
        assert lost is not None
        now = self.seen[self.next_batch - 1].states
        assert (plan.replay_tuples, plan.work.batches, plan.work.tuples) == (0, 0, 0)
        assert not statement.needed - found.keys(), "windows that have a footprint are there"
        for identity, state in found.items():
            known = [each[identity] for each in statement.found if identity in each]
            assert any(_are_same(state, each) for each in known), identity
        back = found.keys() - now.keys()
        assert len(back) <= lost.doubtful
        gone = now.keys() - found.keys()
        if self.next_batch - 1 in self.damaged:
            assert lost.windows is None
        else:
            assert lost.windows is not None
            assert len(gone) <= lost.windows
        if not self.damaged:
            assert_same_states(found, statement.found[0], "with no damage")
            assert found.keys() == statement.needed
            assert (lost.windows, lost.doubtful, lost.footprints) == (len(gone), 0, 0)
            assert not lost.is_estimate
            if not lost.batches:
                assert_same_states(found, now, "nothing is lost")
        return report

    def check_results_after(self) -> None:
        """What is left gives, batch by batch, what it gives when it is put into an empty state by
        hand: nothing else is known to whoever goes on from it."""
        twin = self._new_query(self.disk.copy())
        twin.cache_root = None
        twin.loss = Loss.BOUNDED
        operator, logs = self.case.operator(), twin.logs()
        state = None
        for batch in range(self.next_batch, len(self.case.batches)):
            (report,) = twin.run(batch, [self.case.batches[batch]])
            if state is None:
                assert report.recovery is not None
                state = operator.open(Memory(), InputHistory(logs.input(0), operator.ports))
                for footprints in report.recovery.plan.footprints:
                    operator.load(state, footprints, "by hand")
            given = batch_input(logs.input(0).read(batch), operator.ports)
            outcome = operator.process(state, given)
            expected = plain_rows(operator.publish(outcome.results))
            assert_same_rows(report.results, expected, f"batch {batch}")
        twin.stop()


def _are_same(one: Row, other: Row) -> bool:
    return {n: exact(v) for n, v in one.items()} == {n: exact(v) for n, v in other.items()}


def closed_in(operator: AnyOperator, segment: Segment) -> set[Identity]:
    """The windows that a batch has closed, as its segment lists them."""
    described = operator.describe()
    if described["operator"] == "whole":
        return set()
    kind = FrameKind.CLOSED if FrameKind.CLOSED in segment.frames else FrameKind.RESULTS
    table = segment.table(kind)
    rows: Sequence[Row] = [] if table is None else plain_rows(contiguous(table))
    keys = [name for name, _ in described["by"]]
    return {(tuple(row[name] for name in keys), row.get("$start")) for row in rows}


def random_lossy(rng: random.Random) -> CrashCase:
    """A case of any kind that may accept loss."""
    kinds: Sequence[Any] = (random_keyed, random_sessions, random_whole, random_case, random_case)
    while True:
        case: CrashCase = rng.choice(kinds)(rng)
        operator = case.operator()
        if operator.identities.has_start == operator.copied_together.has_start:
            return case
