"""Unsynced logs that were trimmed, after a power failure: what was trimmed stays away, so what a
recovery needs in its place must be there."""

from __future__ import annotations

import errno
import random
import time
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest

from tests.support.engine import Query
from tests.support.orders import count_case, random_orders
from trailmark.checkpoint.policy import Continuous, FullSnapshot, Policy
from trailmark.engine import BatchReport
from trailmark.errors import TrailmarkError
from trailmark.inspection.logs import OperatorFiles
from trailmark.settings import Durability, LogSettings
from trailmark.testing.disk import Crashed, SimulatedDisk
from trailmark.upkeep.truncate import plan_truncate, truncate_operator

_POLICIES = [Continuous(u=40), FullSnapshot(3, asynchronous=True)]
#: A bucket trims its logs after these batches.
_FIRST_TRIM, _SECOND_TRIM = 15, 31


class _LosesAll(random.Random):
    """The choices of a power failure that leaves nothing but what was synced."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


class _Unsynced:
    """A query that was run up to a batch; it can be run on, after a power failure, too."""

    def __init__(self, policy: Policy, last: int) -> None:
        orders = random_orders(random.Random(5), batches=_SECOND_TRIM + 2, rows=12, items=5)
        self.case = count_case(orders, size=60)
        self.disk = SimulatedDisk()
        settings = LogSettings(durability=Durability.UNSYNCED)
        self.query = Query(self.case, self.disk, policy, settings=settings)
        for batch in range(last + 1):
            self.run(batch)

    def run(self, batch: int) -> BatchReport:
        (report,) = self.query.run(batch, [self.case.batches[batch]])
        (bucket,) = self.query.open()
        while bucket._snapshots.is_busy:
            time.sleep(0.001)
        return report

    def lose_power(self) -> None:
        self.query.stop()
        self.disk.crash(_LosesAll())

    def can_go_on_after(self, batch: int, expected: BatchReport) -> bool:
        """Whether the next batch gives what is expected, when all later ones are cut off."""
        files = OperatorFiles(self.disk.storage())
        try:
            plan_truncate(files, batch)
            truncate_operator(files, batch)
            report = self.run(batch + 1)
        except TrailmarkError:
            return False
        assert report.results.equals(expected.results)
        return True


@pytest.mark.parametrize("policy", _POLICIES, ids=lambda policy: type(policy).__name__)
def test_a_trim_leaves_a_log_that_goes_on_after_a_power_failure(policy: Policy) -> None:
    expected = _Unsynced(policy, _SECOND_TRIM).run(_SECOND_TRIM + 1)
    unsynced = _Unsynced(policy, _SECOND_TRIM)
    unsynced.lose_power()
    assert unsynced.query.logs().input(0).oldest() > 0, "something was trimmed"
    assert unsynced.run(_SECOND_TRIM + 1).results.equals(expected.results)


@pytest.mark.parametrize("policy", _POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.parametrize("which", [1, 4, 9])
def test_a_trim_does_not_rely_on_bytes_whose_sync_has_failed(policy: Policy, which: int) -> None:
    """Synced again, they would count as on disk; they have to be written again."""
    expected = _Unsynced(policy, _SECOND_TRIM).run(_SECOND_TRIM + 1)
    unsynced = _Unsynced(policy, _SECOND_TRIM - 1)
    disk, syncs = unsynced.disk, 0
    sync_file = disk.sync_file

    def fail_once(path: str) -> None:
        nonlocal syncs
        syncs += 1
        if syncs == which:
            disk.fail_on(1, errno.EIO)
        sync_file(path)

    with mock.patch.object(disk, "sync_file", fail_once):
        unsynced.run(_SECOND_TRIM)
        unsynced.query.stop()
    assert disk.failed is not None
    assert disk.failed[0] == "sync_file"
    unsynced.lose_power()
    assert unsynced.query.logs().input(0).oldest() > 0, "something was trimmed"
    assert unsynced.run(_SECOND_TRIM + 1).results.equals(expected.results)


@pytest.mark.parametrize("policy", _POLICIES, ids=lambda policy: type(policy).__name__)
def test_wherever_a_trim_is_interrupted_there_is_a_way_to_go_on(policy: Policy) -> None:
    reached = set()
    whole = _Unsynced(policy, -1)
    reports = [whole.run(batch) for batch in range(_SECOND_TRIM + 2)]
    for operations in range(0, 120, 7):
        unsynced = _Unsynced(policy, _SECOND_TRIM - 1)
        unsynced.disk.stop_after(operations)
        with suppress(Crashed):
            unsynced.run(_SECOND_TRIM)
        unsynced.lose_power()
        ways = [
            batch
            for batch in (_SECOND_TRIM, _FIRST_TRIM)
            if unsynced.can_go_on_after(batch, reports[batch + 1])
        ]
        assert ways, f"stopped after {operations} operations"
        reached.update(ways)
    assert reached == {_FIRST_TRIM, _SECOND_TRIM}
