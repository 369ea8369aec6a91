"""A disk that fills up or fails at each single call: a named error, and nothing half done."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.compare import assert_same_rows
from tests.support.disk import FillingDisk, SimulatedDisk
from tests.support.engine import Query, split
from tests.support.plain import plain_rows
from tests.support.small import SMALL_WINDOWS, small_case
from tests.support.verdict import assert_logs_are_right, assert_state_is_right, watermarks
from trailmark.checkpoint.policy import Continuous, NoCheckpoint, Policy
from trailmark.engine import BatchReport
from trailmark.errors import DiskFull, NoPermission, StorageError
from trailmark.windows.spec import TimeWindow, Window

_BATCHES = 3

_CASES: dict[str, tuple[Window, Policy]] = {
    "count": (SMALL_WINDOWS["overlapping"], Continuous(q=8, u=12)),
    "time": (SMALL_WINDOWS["time"], NoCheckpoint()),
}


@dataclass
class Life:
    """A query from its first batch to its last, with all that is done to its logs on the way."""

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
        rows = split(self.query.case, self.query.case.batches[batch], self.query.buckets)[number]
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
        query = self.query
        oracles = assert_logs_are_right(query, query.case.batches)
        for number, oracle in enumerate(oracles):
            assert_state_is_right(query, number, oracle, _BATCHES - 1)
        marks = watermarks(query, query.case.batches)
        for number in range(query.buckets):
            oracle = query.case.oracle()
            for batch, rows in enumerate(query.case.batches):
                part = split(query.case, rows, query.buckets)[number]
                before = marks[batch - 1] if batch else None
                outcome = oracle.process(batch, plain_rows(part), before, marks[batch])
                found = self.answers[batch, number].results
                assert_same_rows(found, oracle.published(outcome.results), f"batch {batch}")


def _life(kind: str, disk: SimulatedDisk) -> Life:
    window, policy = _CASES[kind]
    buckets = 2 if isinstance(window, TimeWindow) else 1
    return Life(Query(small_case(window, _BATCHES), disk, policy, buckets))


def _assert_nothing_is_half_done(life: Life) -> None:
    """Every published file is whole, and no other is left."""
    disk = life.query.disk
    assert not [path for path in disk.files() if path.endswith(".tmp")]
    if "meta.json" not in disk.files():
        return
    logs = life.query.logs()
    for number in range(life.query.buckets):
        for log in (logs.output(number), logs.input(number)):
            assert log.verify().is_whole


# No room


@pytest.mark.parametrize("is_restarted", [False, True], ids=["goes on", "restarted"])
@pytest.mark.parametrize("kind", _CASES)
def test_a_disk_that_is_full_at_any_write_is_named_and_makes_no_difference(
    kind: str, is_restarted: bool
) -> None:
    writes = _run_unharmed(kind).writes
    assert writes > 8
    for full_at in range(1, writes + 1):
        disk = FillingDisk(full_at=full_at)
        life = _life(kind, disk)
        refused = 0
        for step in life.steps():
            error = _try(step, DiskFull)
            if error is None:
                continue
            assert "Make room" in error.fix
            refused += 1
            if is_restarted:
                life.query.stop()
            _assert_nothing_is_half_done(life)
            disk.capacity = None
            step()
        assert refused == 1, f"write {full_at}"
        life.check()
        life.query.stop()


def _run_unharmed(kind: str) -> FillingDisk:
    disk = FillingDisk()
    life = _life(kind, disk)
    for step in life.steps():
        step()
    life.query.stop()
    return disk


def _try(step: Callable[[], object], expected: type[StorageError]) -> StorageError | None:
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


def test_a_disk_that_stays_full_refuses_again_and_again_and_keeps_what_it_has() -> None:
    life = _life("count", SimulatedDisk())
    steps = list(life.steps())
    steps[0]()
    disk = life.query.disk
    before = {path: disk.content(path) for path in disk.files()}
    disk.capacity = sum(map(len, before.values())) + 100
    for _ in range(3):
        with pytest.raises(DiskFull):
            steps[1]()
        assert {path: disk.content(path) for path in disk.files()} == before
    disk.capacity = None
    for step in steps[1:]:
        step()
    life.check()
    life.query.stop()


# Calls that fail


def _check_failing_calls(kind: str, code_of: Callable[[int], int], part: slice) -> None:
    """Fails each call in turn; every second time the query goes on in a new process."""
    calls = range(1, _run_unharmed(kind).calls + 1)[part]
    assert len(calls) > 100
    errors = 0
    for call in calls:
        code = code_of(call)
        life = _life(kind, SimulatedDisk())
        life.query.disk.fail_on(call, code)
        refused = 0
        for step in life.steps():
            error = _try(step, StorageError)
            if error is None:
                continue
            assert isinstance(error, NoPermission) == (code == errno.EACCES)
            refused += 1
            if (call // 2 + code) % 2:
                life.query.stop()
            step()
        assert refused <= 1, f"call {call} fails once"
        life.check()
        life.query.stop()
        errors += refused
    # What may fail without a word: syncing what lies above the root.
    assert errors > 0.95 * len(calls)


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES], ids=["EIO", "EACCES"])
def test_a_call_that_fails_wherever_it_is_is_named_and_makes_no_difference(code: int) -> None:
    _check_failing_calls("count", lambda call: code, slice(None))


@pytest.mark.parametrize("part", range(2))
def test_a_call_that_fails_with_several_buckets_and_a_watermark_makes_no_difference(
    part: int,
) -> None:
    codes = (errno.EIO, errno.EACCES)
    _check_failing_calls("time", lambda call: codes[call // 4 % 2], slice(part, None, 2))
