"""A small query from its first batch to its last, with all that is done to its logs on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.support.compare import assert_same_rows
from tests.support.engine import Query
from tests.support.small import small_buckets, small_case_of
from tests.support.verdict import assert_logs_are_right, assert_state_is_right, watermarks
from trailmark.checkpoint.policy import Continuous, Incremental, NoCheckpoint, Policy
from trailmark.engine import BatchReport
from trailmark.errors import StorageError
from trailmark.testing.disk import SimulatedDisk

_BATCHES = 3


@dataclass
class Life:
    """What is done, step by step, and what the query answered."""

    query: Query
    answers: dict[tuple[int, int], BatchReport] = field(default_factory=dict)

    def steps(self) -> Iterator[Callable[[], object]]:
        """Each can be done again if it fails."""
        for batch in range(_BATCHES):
            for number in range(self.query.buckets):
                yield lambda b=batch, n=number: self._run(b, n)  # type: ignore[misc]
            if batch == 1:
                yield lambda: self._merge(1)
        yield self._trim
        yield self._repair

    def _run(self, batch: int, number: int) -> None:
        rows = self.query.case.split(self.query.case.batches[batch], self.query.buckets)[number]
        self.answers[batch, number] = self.query.open()[number].run(batch, rows)

    def _merge(self, up_to: int) -> None:
        logs = self.query.logs()
        for number in range(self.query.buckets):
            logs.output(number).merge(up_to)
            logs.input(number).merge(up_to)

    def _trim(self) -> None:
        for bucket in self.query.open():
            bucket.trim()

    def _repair(self) -> None:
        logs = self.query.logs()
        for number in range(self.query.buckets):
            assert logs.output(number).repair().is_whole
            assert logs.input(number).repair().is_whole

    def check(self) -> None:
        """Everything is as if nothing had happened."""
        query, case = self.query, self.query.case
        oracles = assert_logs_are_right(query, case.batches)
        for number, oracle in enumerate(oracles):
            assert_state_is_right(query, number, oracle, _BATCHES - 1)
        marks = watermarks(query, case.batches)
        for number in range(query.buckets):
            oracle = case.oracle()
            for batch, rows in enumerate(case.batches):
                part = case.split(rows, query.buckets)[number]
                before = marks[batch - 1] if batch else None
                outcome = case.outcome(oracle, batch, part, before, marks[batch])
                found = self.answers[batch, number].results
                assert_same_rows(found, oracle.published(outcome.results), f"batch {batch}")


def life_of(kind: str, disk: SimulatedDisk) -> Life:
    """The life of a query of one of the `SMALL_KINDS`."""
    policies: dict[str, Policy] = {"time": NoCheckpoint(), "groups": Incremental(2, group_size=2)}
    policy = policies.get(kind, Continuous(q=8, u=12))
    return Life(Query(small_case_of(kind, _BATCHES), disk, policy, small_buckets(kind)))


def assert_nothing_is_half_done(life: Life) -> None:
    """Every published file is whole, and no other is left."""
    disk = life.query.disk
    assert not [path for path in disk.files() if path.endswith(".tmp")]
    if "meta.json" not in disk.files():
        return
    logs = life.query.logs()
    for number in range(life.query.buckets):
        for log in (logs.output(number), logs.input(number)):
            assert log.verify().is_whole


def refusal_of(step: Callable[[], object], expected: type[StorageError]) -> StorageError | None:
    """The error of a step, which says what happened, where, and what to do next."""
    found = None
    try:
        step()
    except expected as error:
        found = error
    if found is not None:
        assert found.what.startswith("Could not ")
        assert found.where.startswith("/disk")
        assert found.fix
    return found
