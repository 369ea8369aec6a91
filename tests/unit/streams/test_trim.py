"""Trimming a written stream: what goes, what stays, and what harm it takes."""

from __future__ import annotations

import random

import pytest

from tests.support.stored import BEGIN_US, SECOND, Stored, rows_of
from trailmark.errors import DamagedSegment, MissingSegment
from trailmark.log.readers import register
from trailmark.records import Stream
from trailmark.settings import Durability
from trailmark.streams.manifest import read_manifest
from trailmark.streams.retention import Retention, left_over_files, trim_before, trim_stream
from trailmark.testing.disk import SimulatedDisk

_LATER = BEGIN_US + 10**15


def _stream(disk: SimulatedDisk, batches: int = 8, retention: Retention | None = None) -> Stored:
    stream = Stored(disk.storage(), retention=retention or Retention())
    stream.run(batches)
    return stream


def _manifest(batch: int) -> str:
    return f"batches/00000/{batch:020d}.seg"


def _data(disk: SimulatedDisk) -> set[str]:
    return {path for path in disk.files() if path.startswith("data/")}


def _named(stream: Stored) -> set[str]:
    log = stream.files.log
    return {file.path for batch in log.batches() for file in read_manifest(log, batch).files}


def test_a_trim_by_number_removes_the_batches_before_it_and_their_files() -> None:
    disk = SimulatedDisk()
    stream = _stream(disk)
    size = sum(len(disk.content(path)) for path in _data(disk))
    done = trim_before(stream.storage, stream.files.log, 5)
    assert (done.before, done.batches, done.unreadable) == (5, 5, ())
    assert stream.files.log.batches() == [5, 6, 7]
    assert _data(disk) == _named(stream)
    assert done.bytes == size - sum(len(disk.content(path)) for path in _data(disk))


def test_the_newest_batch_and_what_readers_need_stay() -> None:
    disk = SimulatedDisk()
    stream = _stream(disk)
    register(stream.storage, "slow", Stream.BATCHES, 3)
    assert trim_before(stream.storage, stream.files.log, 100).before == 3
    disk = SimulatedDisk()
    stream = _stream(disk)
    assert trim_before(stream.storage, stream.files.log, 100).before == 7
    stream.run(1)
    assert stream.files.log.batches() == [7, 8]


@pytest.mark.parametrize("before", [0, 1, 3, 4, 6, 100])
def test_a_dry_run_says_the_same_where_a_pack_reaches_over_the_batch(before: int) -> None:
    disk = SimulatedDisk()
    stream = _stream(disk)
    stream.files.log.merge(3)
    files, operations = disk.files(), disk.operations
    told = trim_before(stream.storage, stream.files.log, before, dry_run=True)
    assert (disk.files(), disk.operations) == (files, operations)
    assert told == trim_before(stream.storage, stream.files.log, before)
    assert told.before == (0 if before < 4 else min(before, 7))
    assert _data(disk) == _named(stream)


def test_a_dry_run_by_retention_says_the_same_where_a_pack_reaches_over_the_batch() -> None:
    disk = SimulatedDisk()
    stream = _stream(disk)
    stream.files.log.merge(3)
    for keep in (5, 2):
        retention = Retention(batches=keep)
        log = stream.files.log
        told = trim_stream(stream.storage, log, retention, stream.now_us, dry_run=True)
        assert told == trim_stream(stream.storage, log, retention, stream.now_us)
        assert told.batches == (0 if keep == 5 else 6)


def test_a_damaged_manifest_goes_with_those_around_it() -> None:
    """It must not keep everything behind it for ever."""
    disk = SimulatedDisk()
    stream = _stream(disk, 8)
    lost = {file.path for file in read_manifest(stream.files.log, 2).files}
    disk.flip(_manifest(2), 60, 3)
    with pytest.raises(DamagedSegment):
        read_manifest(stream.files.log, 2)
    done = trim_stream(stream.storage, stream.files.log, Retention(batches=4), stream.now_us)
    assert (done.before, done.batches, done.unreadable) == (4, 4, (2,))
    assert _data(disk) - _named(stream) == lost
    assert set(left_over_files(stream.storage, stream.meta, stream.files.log, _LATER)) == lost


def test_a_damaged_manifest_stays_with_the_batch_behind_it() -> None:
    disk = SimulatedDisk()
    stream = _stream(disk, 8)
    disk.flip(_manifest(3), 60, 3)
    done = trim_stream(stream.storage, stream.files.log, Retention(batches=4), stream.now_us)
    assert done.before == 3
    assert stream.files.log.oldest() == 3


def test_a_writer_goes_on_whatever_has_become_of_old_manifests() -> None:
    """It trims after a commit; that must not fail for a batch nobody will read again."""
    disk = SimulatedDisk()
    stream = _stream(disk, 15, Retention(batches=4))
    disk.flip(_manifest(1), 60, 3)
    stream.run(1)
    assert stream.files.log.batches() == [12, 13, 14, 15]


def test_somebody_else_may_trim_at_the_same_time() -> None:
    disk = SimulatedDisk()
    stream = _stream(disk)
    mine = stream.files.log
    look = mine.reader.look

    def look_late() -> object:
        found = look()
        mine.reader.look = look  # type: ignore[method-assign]
        trim_before(stream.storage, stream.files.log, 4)
        return found

    mine.reader.look = look_late  # type: ignore[method-assign, assignment]
    done = trim_stream(stream.storage, mine, Retention(batches=2), stream.now_us)
    assert done.before == 6
    assert stream.files.log.batches() == [6, 7]
    assert _data(disk) == _named(stream)


def test_after_a_power_failure_the_newest_batch_is_there_for_the_next_one() -> None:
    """The writer may not have synced it; whoever removes all the others has to."""
    for seed in range(20):
        disk = SimulatedDisk()
        stream = Stored(disk.storage(Durability.UNSYNCED))
        stream.run(6)
        trim_before(disk.storage(), stream.files.log, 5)
        disk.crash(random.Random(seed))
        after = Stored(disk.storage(), batches=6)
        assert after.files.log.batches() == [5]
        after.run(1)


def test_files_that_no_batch_names_are_left_over_once_they_are_old() -> None:
    disk = SimulatedDisk()
    stream = _stream(disk, 3)
    killed = {file.path for file in stream.task(rows_of(99))}
    log = stream.files.log
    assert set(left_over_files(stream.storage, stream.meta, log, stream.now_us + 1)) == killed
    assert left_over_files(stream.storage, stream.meta, log, stream.now_us) == []
    stream.now_us += SECOND
    assert len(left_over_files(stream.storage, stream.meta, log, stream.now_us)) == 2


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_nobody_guesses_which_files_a_lost_manifest_had(harm: str) -> None:
    disk = SimulatedDisk()
    stream = _stream(disk, 4)
    if harm == "missing":
        stream.storage.delete(_manifest(2))
    else:
        disk.flip(_manifest(2), 60, 3)
    expected = MissingSegment if harm == "missing" else DamagedSegment
    with pytest.raises(expected):
        left_over_files(stream.storage, stream.meta, stream.files.log, _LATER)
