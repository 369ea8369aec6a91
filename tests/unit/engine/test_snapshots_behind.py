"""Snapshots that are written while later batches run: late, never, in part, damaged."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from tests.support.followed import Followed
from tests.support.harm import flip_in, segment_path
from tests.support.orders import count_case, random_orders
from tests.support.small import small_pairing
from trailmark.checkpoint.policy import Continuous, FullSnapshot
from trailmark.engine import BatchReport
from trailmark.errors import DiskFull
from trailmark.kernel.columns import contiguous
from trailmark.log import Part
from trailmark.log.storage import LocalStorage
from trailmark.records import Foundation, FrameKind, Stream
from trailmark.settings import Durability
from trailmark.testing.disk import ROOT, SimulatedDisk

_PATIENCE_S = 60.0


@dataclass
class _Gate:
    """Snapshots pass it while it is open; ``full`` are those that find no room behind it."""

    opened: threading.Event = field(default_factory=threading.Event)
    full: set[int] = field(default_factory=set)

    def pass_through(self, path: str) -> None:
        assert self.opened.wait(_PATIENCE_S)
        batch = int(path.split("/")[-1].split(".")[0])
        if batch in self.full:
            raise DiskFull("There is no room for the file.", where=path)


class _GatedStorage(LocalStorage):
    def __init__(self, disk: SimulatedDisk, durability: Durability, gate: _Gate) -> None:
        super().__init__(ROOT, durability, file_system=disk, clock=lambda: disk.now_us)
        self._gate = gate

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        if path.startswith("snap/"):
            self._gate.pass_through(path)
        return super().publish(path, parts, force_sync=force_sync)


@dataclass
class GatedDisk(SimulatedDisk):
    """A disk on which snapshots have to wait. A copy of it has no gate."""

    gate: _Gate = field(default_factory=_Gate)

    def storage(self, durability: Durability = Durability.SYNCED) -> LocalStorage:
        return _GatedStorage(self, durability, self.gate)


def _follow(policy: FullSnapshot, *, batches: int = 40, is_open: bool = True) -> Followed:
    """Windows that all stay open for some batches; every batch is judged by the oracle."""
    disk = GatedDisk()
    if is_open:
        disk.gate.opened.set()
    rows = random_orders(random.Random(3), batches=batches, rows=30, items=25)
    return Followed(count_case(rows, size=9), policy, disk=disk)


def _gate(run: Followed) -> _Gate:
    assert isinstance(run.disk, GatedDisk)
    return run.disk.gate


def _stored(run: Followed) -> list[int]:
    return run.query.logs().snapshots(0).batches()


def _wait(run: Followed) -> None:
    """Until no snapshot is under way."""
    (bucket,) = run.query.open()
    _until(lambda: not bucket._snapshots.is_busy)


def _until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, "the snapshot takes very long"
        time.sleep(0.001)


def _step_and_wait(run: Followed) -> BatchReport:
    """The next batch, and its snapshot if one is due."""
    (report,) = run.step()
    _wait(run)
    return report


def _restarted(run: Followed) -> BatchReport:
    """The next batch in a new process, which finds the disk as it is."""
    (report,) = run.copy().step()
    assert report.recovery is not None
    return report


# When


def test_a_snapshot_is_begun_every_so_many_batches_and_used_as_soon_as_it_is_stored() -> None:
    run = _follow(FullSnapshot(4, asynchronous=True))
    for _ in range(20):
        report = _step_and_wait(run)
        assert (report.footprints_opened, report.footprints_checked) == (0, 0)
        newest = (report.batch - 1) // 4 * 4  # the batch that begins one cannot build on it
        account = report.account
        if report.batch:
            assert (account.foundation, account.base) == (Foundation.SNAPSHOT, newest)
            assert account.needs == newest + 1
            assert account.extent == len(run.recounts[0].open_after[newest])
    assert _stored(run)[-1] == 16


def test_a_snapshot_weighs_what_its_windows_weigh() -> None:
    """To a recovery, too, and after it: it is the same snapshot that the next one builds on."""
    case, disk = small_pairing(24), GatedDisk()
    disk.gate.opened.set()
    run = Followed(case, FullSnapshot(6, asynchronous=True), disk=disk)
    weights = set()
    for _ in range(20):
        account = _step_and_wait(run).account
        if account.foundation is not Foundation.SNAPSHOT:
            continue
        stored = run.query.logs().snapshots(0).read(account.base).table(FrameKind.FOOTPRINTS)
        assert stored is not None
        assert account.extent == stored.num_rows
        weight = case.operator().weigh(contiguous(stored))
        assert account.extent + account.extent_excess == weight
        weights.add(account.extent_excess)
        report = _restarted(run)
        assert report.recovery is not None
        assert report.recovery.plan.work.weight == account.extent + account.extent_excess
        if report.account.base == account.base:
            assert report.account.extent_excess == account.extent_excess
    assert len(weights) > 2


def test_a_recovery_loads_the_snapshot_and_processes_what_came_after_it() -> None:
    run = _follow(FullSnapshot(5, asynchronous=True))
    for _ in range(18):
        _step_and_wait(run)
    plan = _restarted(run).recovery
    assert plan is not None
    assert (plan.plan.foundation, plan.plan.base, plan.plan.replay_from) == (
        Foundation.SNAPSHOT,
        15,
        16,
    )
    assert plan.plan.open_windows == len(run.recounts[0].open_after[15])


def test_after_a_recovery_a_snapshot_is_begun_at_once() -> None:
    run = _follow(FullSnapshot(9, asynchronous=True))
    for _ in range(5):
        _step_and_wait(run)
    run.query.stop()
    _step_and_wait(run)
    assert _stored(run) == [0, 5]


def test_without_an_open_window_there_is_nothing_to_write() -> None:
    disk = GatedDisk()
    case = count_case([[(1, 1), (1, 2)]] * 5, size=2)
    run = Followed(case, FullSnapshot(1, asynchronous=True), disk=disk)
    run.run()  # the gate is closed, and nobody comes to it
    run.query.stop()
    assert _stored(run) == []


# Late


def test_later_batches_do_not_wait_for_a_snapshot() -> None:
    run = _follow(FullSnapshot(3, asynchronous=True), is_open=False)
    run.run(10)
    assert _stored(run) == [], "ten batches later it is not there yet"
    _gate(run).opened.set()
    _wait(run)
    (report,) = run.step()
    assert (report.account.foundation, report.account.base) == (Foundation.SNAPSHOT, 0)


def test_no_other_snapshot_is_begun_while_one_is_being_written() -> None:
    run = _follow(FullSnapshot(1, asynchronous=True), is_open=False)
    run.run(10)
    _gate(run).opened.set()
    run.query.stop()
    assert _stored(run) == [0]


def test_a_snapshot_that_never_finished_is_not_used() -> None:
    run = _follow(FullSnapshot(4, asynchronous=True))
    for _ in range(4):
        _step_and_wait(run)
    _gate(run).opened.clear()
    run.run(3)
    recovery = _restarted(run).recovery
    assert recovery is not None
    assert recovery.plan.base == 0, "it builds on the one before"
    assert recovery.plan.skipped == ()
    _gate(run).opened.set()
    run.query.stop()


def test_the_first_snapshot_of_all_may_be_the_one_that_never_finished() -> None:
    run = _follow(FullSnapshot(4, asynchronous=True), is_open=False)
    run.run(3)
    recovery = _restarted(run).recovery
    assert recovery is not None
    assert (recovery.plan.foundation, recovery.plan.replay_from) == (Foundation.NOTHING, 0)
    _gate(run).opened.set()
    run.query.stop()


def test_a_bucket_that_is_closed_leaves_its_snapshot_to_the_threads_if_told_so() -> None:
    run = _follow(FullSnapshot(4, asynchronous=True), is_open=False)
    run.step()
    (bucket,) = run.query.open()
    bucket.close(lingers=True)  # returns, though the gate is closed
    _gate(run).opened.set()
    _wait(run)
    assert _stored(run) == [0]


def test_a_snapshot_that_fails_after_its_bucket_was_closed_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = _follow(FullSnapshot(4, asynchronous=True), is_open=False)
    _gate(run).full.add(0)
    run.step()
    (bucket,) = run.query.open()
    with caplog.at_level(logging.WARNING, logger="trailmark"):
        bucket.close(lingers=True)
        _gate(run).opened.set()
        _until(lambda: bool(caplog.records))
        bucket.close()  # does not report it again
    (record,) = caplog.records
    assert "the snapshot of batch 0 was not written" in record.getMessage()
    assert _stored(run) == []


# Never


def test_a_snapshot_that_fails_is_reported_and_the_next_one_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = _follow(FullSnapshot(3, asynchronous=True))
    _gate(run).full.add(3)
    with caplog.at_level(logging.WARNING, logger="trailmark"):
        while run.next_batch <= 6:
            _step_and_wait(run)
    (record,) = caplog.records
    assert "the snapshot of batch 3 was not written" in record.getMessage()
    assert "There is no room for the file." in record.getMessage()
    assert _stored(run) == [0, 6]
    (report,) = run.step()
    assert report.account.base == 6


def test_a_disk_without_room_for_any_snapshot_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = _follow(FullSnapshot(2, asynchronous=True))
    _gate(run).full.update(range(40))
    with caplog.at_level(logging.WARNING, logger="trailmark"):
        for _ in range(12):
            _step_and_wait(run)
        run.query.stop()
    assert len(caplog.records) == 6
    recovery = _restarted(run).recovery
    assert recovery is not None
    assert recovery.plan.replay_from == 0


# Damaged


@pytest.mark.parametrize("is_gone", [False, True], ids=["damaged", "gone"])
@pytest.mark.parametrize("after", [17, 18, 19, 23])
def test_a_snapshot_that_cannot_be_used_is_gone_around_with_the_one_before(
    after: int, is_gone: bool
) -> None:
    """The input for that is there, whatever was trimmed."""
    run = _follow(FullSnapshot(4, asynchronous=True))
    while run.next_batch <= after:
        _step_and_wait(run)
    run.query.open()[0].trim(acknowledged=run.next_batch)
    newest = (after - 1) // 4 * 4
    if is_gone:
        run.disk.unlink(f"{ROOT}/{segment_path(Stream.SNAPSHOT, newest)}")
    else:
        flip_in(run.disk, Stream.SNAPSHOT, newest)
    report = _restarted(run)
    assert report.recovery is not None
    plan = report.recovery.plan
    assert (plan.foundation, plan.base) == (Foundation.SNAPSHOT, newest - 4)
    assert [skipped.batch for skipped in plan.skipped] == [newest]


def test_a_query_goes_on_from_a_damaged_snapshot_and_from_the_next_one() -> None:
    run = _follow(FullSnapshot(4, asynchronous=True))
    for _ in range(20):
        _step_and_wait(run)
    run.query.stop()
    flip_in(run.disk, Stream.SNAPSHOT, 16)
    _step_and_wait(run)
    run.run(2)
    recovery = _restarted(run).recovery
    assert recovery is not None
    assert (recovery.plan.base, recovery.plan.skipped) == (20, ())


# Trimmed


def test_old_snapshots_and_the_input_before_them_are_trimmed() -> None:
    run = _follow(FullSnapshot(2, asynchronous=True))
    for _ in range(36):
        _step_and_wait(run)
    (bucket,) = run.query.open()
    bucket.trim()
    assert len(_stored(run)) <= 4
    kept = run.query.logs().input(0).batches()
    assert len(kept) <= 8
    assert kept[0] <= min(_stored(run)) + 1, "the oldest snapshot has its input"


def test_snapshots_that_no_policy_needs_any_more_are_trimmed() -> None:
    run = _follow(FullSnapshot(2, asynchronous=True))
    for _ in range(10):
        _step_and_wait(run)
    run.query.stop()
    run.query.policy = Continuous(u=0)
    run.run(24)
    run.query.open()[0].trim()
    assert len(_stored(run)) <= 1, "the newest segment of a log stays"
