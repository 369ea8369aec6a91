"""Appends in the background, and appends by writers that come back late."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence

import pytest

from tests.support.logs import append, fill, open_log, rows_of
from trailmark.errors import BatchGoesBackward, BatchOrderError, SettingError, StorageError
from trailmark.log import Appending, LocalStorage, Part, StreamLog
from trailmark.records import START_OF_LOG, Fingerprint, FrameKind, SegmentLink, Stream
from trailmark.testing.disk import ROOT, SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def log(disk: SimulatedDisk) -> StreamLog:
    return open_log(disk.storage())


def begin(log: StreamLog, batch: int, previous: SegmentLink | Appending) -> Appending:
    return log.begin_append(
        batch,
        [(FrameKind.INPUT, rows_of(batch))],
        previous=previous,
        fingerprint=Fingerprint(3, batch),
    )


def test_a_background_append_is_in_the_log_when_its_result_is_there(log: StreamLog) -> None:
    appending = log.begin_append(
        0, [(FrameKind.INPUT, rows_of(0))], previous=START_OF_LOG, fingerprint=Fingerprint(3, 1)
    )
    published = appending.result()
    assert published.created
    assert appending.is_done()
    assert log.read(0).link == published.link == appending.link()
    log.close()


def test_many_appends_under_way_are_published_in_order_and_linked(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk.storage())
    order: list[str] = []
    real = disk.link

    def link(source: str, target: str) -> None:
        order.append(target)
        real(source, target)

    monkeypatch.setattr(disk, "link", link)
    previous: SegmentLink | Appending = START_OF_LOG
    under_way: list[Appending] = []
    for batch in range(20):
        under_way.append(begin(log, batch, previous))
        previous = under_way[-1]
    results = [each.result() for each in under_way]
    log.close()
    assert all(result.created for result in results)
    assert order == sorted(order)
    assert [segment.batch for segment in log.read_from()] == list(range(20))


def test_the_calling_thread_does_not_wait_for_the_disk(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk.storage())
    may_sync = threading.Event()
    real = disk.sync

    def sync(descriptor: int) -> None:
        assert may_sync.wait(timeout=30)
        real(descriptor)

    monkeypatch.setattr(disk, "sync", sync)
    first = begin(log, 0, START_OF_LOG)
    second = begin(log, 1, first)
    assert first.link().batch == 0
    assert not first.is_done()
    assert not log.contains(0)
    may_sync.set()
    assert second.result().created
    log.close()


def test_nothing_is_published_after_an_append_that_failed(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    (link,) = fill(log, 1)
    disk.fail_on(4, errno.EIO)
    first = begin(log, 1, link)
    second = begin(log, 2, first)
    third = begin(log, 3, second)
    for each in (first, second, third):
        with pytest.raises(StorageError):
            each.result()
    log.close()
    assert log.batches() == [0]


def test_an_append_that_cannot_be_encoded_fails_those_behind_it(log: StreamLog) -> None:
    bad = log.begin_append(
        0, [], previous=START_OF_LOG, fingerprint=Fingerprint(0, 0), attributes={"x": object()}
    )
    behind = begin(log, 1, bad)
    for each in (bad, behind):
        with pytest.raises(SettingError, match="attributes"):
            each.result()
    log.close()
    assert log.batches() == []


def test_an_append_behind_one_that_lost_the_race_is_refused(disk: SimulatedDisk) -> None:
    winner = append(open_log(disk.storage()), 0, START_OF_LOG, count=9)
    log = open_log(disk.storage())
    lost = begin(log, 0, START_OF_LOG)
    behind = begin(log, 1, lost)
    assert lost.result().link == winner.link
    with pytest.raises(BatchOrderError, match="another writer"):
        behind.result()
    log.close()
    assert log.batches() == [0]


# Writers that were thought dead and come back late.


def test_a_late_writer_of_a_merged_batch_changes_nothing(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    links = fill(log, 6)
    log.merge(4)
    before = disk.files()
    for batch in range(5):
        late = open_log(disk.storage())
        previous = links[batch - 1] if batch else START_OF_LOG
        published = append(late, batch, previous, count=9)
        assert (published.created, published.link) == (False, links[batch])
    assert disk.files() == before
    assert log.verify().is_whole


def test_a_late_writer_of_a_trimmed_batch_is_refused_and_leaves_nothing(
    disk: SimulatedDisk,
) -> None:
    log = open_log(disk.storage())
    links = fill(log, 6)
    log.trim(4)
    before = disk.files()
    for batch in range(4):
        late = open_log(disk.storage())
        with pytest.raises(BatchGoesBackward, match=f"Batch {batch} has been trimmed"):
            append(late, batch, links[batch - 1] if batch else START_OF_LOG)
    assert disk.files() == before


def test_the_first_append_after_everything_was_merged_is_not_late(log: StreamLog) -> None:
    links = fill(log, 3)
    log.merge(2)
    assert append(log, 3, links[2]).created
    assert [segment.batch for segment in log.read_from()] == [0, 1, 2, 3]


class _Slow(LocalStorage):
    """Others do something as soon as a segment is published, before its writer looks again."""

    def __init__(self, disk: SimulatedDisk, meanwhile: Callable[[], object]) -> None:
        super().__init__(ROOT, file_system=disk)
        self._meanwhile = meanwhile

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        created = super().publish(path, parts, force_sync=force_sync)
        self._meanwhile()
        return created


def _go_on(disk: SimulatedDisk, first: int) -> None:
    """Another writer goes on from the batch before."""
    log = open_log(disk.storage())
    for batch in range(first, first + 3):
        _, checksum = log.read_footer(batch - 1)
        append(log, batch, SegmentLink(batch - 1, checksum))


def test_the_first_batch_is_not_late_when_others_have_gone_on(disk: SimulatedDisk) -> None:
    slow = open_log(_Slow(disk, lambda: _go_on(disk, 1)))
    assert append(slow, 0, START_OF_LOG, count=9).created
    log = open_log(disk.storage())
    assert log.batches() == [0, 1, 2, 3]
    assert log.verify().is_whole


def test_the_batch_at_which_a_trim_ends_is_not_late(disk: SimulatedDisk) -> None:
    links = fill(open_log(disk.storage()), 3)

    def go_on_and_trim() -> None:
        _go_on(disk, 4)
        open_log(disk.storage()).trim(3)

    slow = open_log(_Slow(disk, go_on_and_trim))
    assert append(slow, 3, links[2], count=9).created
    log = open_log(disk.storage())
    assert log.batches() == [3, 4, 5, 6]
    assert log.verify().is_whole


def test_an_older_snapshot_is_not_late_because_a_newer_one_is_there(disk: SimulatedDisk) -> None:
    append(open_log(disk.storage(), stream=Stream.SNAPSHOT), 8, START_OF_LOG)
    slow = open_log(disk.storage(), stream=Stream.SNAPSHOT)
    assert append(slow, 4, START_OF_LOG).created
    assert slow.batches() == [4, 8]


def test_a_segment_that_was_merged_before_its_writer_looked_again_is_its_own(
    disk: SimulatedDisk,
) -> None:
    def go_on_and_merge() -> None:
        _go_on(disk, 1)
        open_log(disk.storage()).merge(2)

    slow = open_log(_Slow(disk, go_on_and_merge))
    published = append(slow, 0, START_OF_LOG, count=9)
    assert published.created
    assert published.link == open_log(disk.storage()).read(0).link


def test_whoever_loses_to_a_segment_that_is_trimmed_at_once_is_told_that_it_is_late(
    disk: SimulatedDisk,
) -> None:
    links = fill(open_log(disk.storage()), 6)
    slow = open_log(_Slow(disk, lambda: open_log(disk.storage()).trim(4)))
    with pytest.raises(BatchGoesBackward, match="begins with batch 4"):
        append(slow, 3, links[2], count=9)
