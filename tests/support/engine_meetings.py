"""Processes that run the same bucket at the same time, as zombies and speculative twins do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TypeAlias

from tests.support.cases import Case
from tests.support.executors import AtOnce
from tests.support.interleaving import Actor, Outcome
from tests.support.plain import plain_rows
from tests.support.small import SMALL_WINDOWS, small_case
from trailmark.checkpoint.policy import Continuous, FullSnapshot, Policy
from trailmark.engine import Bucket, OperatorLogs
from trailmark.errors import LogError
from trailmark.kernel.columns import contiguous
from trailmark.log import Storage
from trailmark.testing.disk import SimulatedDisk
from trailmark.testing.processes import StepClock

_BATCHES = 8
_POLICIES: dict[str, Policy] = {
    "continuous": Continuous(q=40, u=60),
    "snapshots": FullSnapshot(2, asynchronous=True),
}

Results: TypeAlias = Counter[str]
Meeting: TypeAlias = tuple[dict[str, Actor], Callable[[dict[str, Outcome]], None]]


@lru_cache
def _case(window: str) -> Case:
    return small_case(SMALL_WINDOWS[window], batches=_BATCHES)


@lru_cache
def _expected(window: str, policy: str) -> list[Results]:
    """What one process gives that nobody meets."""
    disk = SimulatedDisk()
    return list(_run(disk.storage(), window, policy, 0, _BATCHES - 1, {}).values())


def _run(
    storage: Storage, window: str, policy: str, first: int, last: int, reached: dict[str, int]
) -> dict[int, Results]:
    """A process runs batches of the bucket; ``reached`` tells how far it got."""
    case = _case(window)
    operator = case.operator()
    logs = OperatorLogs(storage, operator, buckets=1, query_id="query")
    bucket = Bucket(
        *(operator, logs, 0, _POLICIES[policy], None, StepClock()),
        retain_batches=2,
        beside=AtOnce(),
    )
    found: dict[int, Results] = {}
    with closing(bucket):
        for batch in range(first, last + 1):
            reached["batch"] = batch
            report = bucket.run(batch, case.batches[batch])
            found[batch] = Counter(map(repr, plain_rows(contiguous(report.results))))
    return found


@dataclass
class _Processes:
    """Processes of one bucket, and how far each of them got."""

    disk: SimulatedDisk
    window: str
    policy: str
    reached: dict[str, dict[str, int]] = field(default_factory=dict)

    def run(self, name: str, first: int, last: int) -> Actor:
        reached = self.reached.setdefault(name, {})
        return lambda storage: _run(storage, self.window, self.policy, first, last, reached)

    def before(self, batches: int) -> None:
        _run(self.disk.storage(), self.window, self.policy, 0, batches - 1, {})

    def judge(self, outcomes: dict[str, Outcome]) -> None:
        """Whoever got to the end has the right results; who was overtaken may have been refused.
        What is left recovers, and goes on as if nobody had met."""
        expected = _expected(self.window, self.policy)
        newest = max(reached["batch"] for reached in self.reached.values())
        for name, outcome in outcomes.items():
            if isinstance(outcome.raised, LogError):
                assert self.reached[name]["batch"] < newest, outcome.raised
                continue
            for batch, results in outcome.value().items():
                assert results == expected[batch], f"batch {batch} of {name}"
        storage = self.disk.storage()
        logs = OperatorLogs(storage, _case(self.window).operator(), buckets=1, query_id="query")
        for log in (logs.input(0), logs.output(0), logs.snapshots(0)):
            assert log.verify().problems == []
        assert logs.output(0).newest() == newest
        after = _run(storage, self.window, self.policy, newest + 1, newest + 1, {})
        assert after == {newest + 1: expected[newest + 1]}


def _twins(window: str, policy: str, disk: SimulatedDisk) -> Meeting:
    """Two processes begin the same bucket and run the same batches."""
    processes = _Processes(disk, window, policy)
    return {name: processes.run(name, 0, 2) for name in ("one", "other")}, processes.judge


def _zombie(window: str, policy: str, disk: SimulatedDisk) -> Meeting:
    """A process wakes up in a batch while another has gone on, and trimmed, since."""
    processes = _Processes(disk, window, policy)
    processes.before(2)
    actors = {"zombie": processes.run("zombie", 2, 3), "other": processes.run("other", 2, 6)}
    return actors, processes.judge


ENGINE_MEETINGS: dict[str, Callable[[SimulatedDisk], Meeting]] = {
    f"{how.__name__.strip('_')} of {window} windows, {policy}": partial(how, window, policy)
    for how in (_twins, _zombie)
    for window in ("tumbling", "time")
    for policy in _POLICIES
}
