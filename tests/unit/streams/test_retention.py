from __future__ import annotations

from typing import Any

import pytest

from tests.support.meddling import Meddled
from tests.support.streams import SECOND, Written, data_files, often, orders, rows_by_batch, written
from trailmark.errors import DamagedSegment, SettingError
from trailmark.log.readers import acknowledge, forget, register
from trailmark.records import Stream
from trailmark.streams.manifest import manifest_log, read_manifest
from trailmark.streams.retention import Retention, StreamTrim, left_over_files, trim_stream
from trailmark.testing.disk import SimulatedDisk


def _filled(disk: SimulatedDisk, batches: int = 6) -> Written:
    """A batch a second."""
    stream = written(disk.storage(), keys=["item"], buckets=2)
    for batch in range(batches):
        stream.add(orders(batch, 8))
    return stream


def _trim(stream: Written, *, dry_run: bool = False, **kept: Any) -> StreamTrim:
    now_us = stream.clock.now_us
    return trim_stream(stream.storage, stream.log(), Retention(**kept), now_us, dry_run=dry_run)


def _size(stream: Written, batch: int) -> int:
    return read_manifest(stream.log(), batch).bytes


def _kept(disk: SimulatedDisk) -> list[int]:
    """The batches that are there, all of whose files are, and no others."""
    found = rows_by_batch(disk.storage())
    assert all(sorted(rows) == sorted(orders(batch, 8)) for batch, rows in found.items())
    assert len(data_files(disk)) == 2 * len(found)
    return list(found)


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"batches": 2}, [4, 5]),
        ({"batches": 1}, [5]),
        ({"batches": 0}, [5]),
        ({"batches": 99}, [0, 1, 2, 3, 4, 5]),
        ({"duration_us": 2 * SECOND}, [3, 4, 5]),
        ({"duration_us": 2 * SECOND - 1}, [4, 5]),
        ({"duration_us": 0}, [5]),
        ({"bytes": 0}, [5]),
        ({"bytes": 1}, [5]),
        ({"duration_us": 2 * SECOND, "batches": 1}, [3, 4, 5]),
        ({"duration_us": 0, "batches": 4}, [2, 3, 4, 5]),
        ({"bytes": 1 << 40, "batches": 1}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_at_least_what_is_asked_for_is_kept(retention: dict[str, Any], kept: list[int]) -> None:
    disk = SimulatedDisk()
    _trim(_filled(disk), **retention)
    assert _kept(disk) == kept


def test_as_many_batches_are_kept_as_hold_the_bytes_asked_for() -> None:
    for more, kept in ((0, [3, 4, 5]), (1, [2, 3, 4, 5]), (-1, [3, 4, 5])):
        disk = SimulatedDisk()
        stream = _filled(disk)
        size = sum(_size(stream, batch) for batch in (3, 4, 5))
        _trim(stream, bytes=size + more)
        assert _kept(disk) == kept


def test_the_time_is_that_of_the_trim() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk)
    stream.clock.now_us += 60 * SECOND
    _trim(stream, duration_us=10 * SECOND)
    assert _kept(disk) == [5]


def test_a_trim_says_what_it_removed() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk)
    files = [file for batch in range(4) for file in read_manifest(stream.log(), batch).files]
    before = disk.files()
    planned = _trim(stream, dry_run=True, batches=2)
    assert disk.files() == before, "a rehearsal removes nothing"
    done = _trim(stream, batches=2)
    assert planned == done == StreamTrim(4, files, batches=4)
    assert done.bytes == sum(file.bytes for file in files)
    assert _trim(stream, batches=2) == StreamTrim(0, ())


def test_an_empty_stream_has_nothing_to_trim() -> None:
    assert _trim(written(), batches=0) == StreamTrim(0, ())


@pytest.mark.parametrize("name", ["duration_us", "bytes", "batches"])
def test_less_than_nothing_cannot_be_kept(name: str) -> None:
    with pytest.raises(SettingError, match=f"{name} cannot be -1"):
        Retention(**{name: -1})


# Readers


def test_what_a_reader_needs_stays_until_it_is_acknowledged() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk)
    register(stream.storage, "billing", Stream.BATCHES, 1)
    register(stream.storage, "audit", Stream.BATCHES, 3)
    steps: list[tuple[Any, list[int]]] = [
        (lambda: None, [1, 2, 3, 4, 5]),
        (lambda: acknowledge(stream.storage, "billing", Stream.BATCHES, 2), [2, 3, 4, 5]),
        (lambda: acknowledge(stream.storage, "billing", Stream.BATCHES, 5), [3, 4, 5]),
        (lambda: forget(stream.storage, "audit"), [5]),
    ]
    for step, kept in steps:
        step()
        _trim(stream, batches=1)
        assert _kept(disk) == kept


def test_the_reader_of_another_log_keeps_nothing() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk)
    register(stream.storage, "billing", Stream.OUTPUT, 0)
    _trim(stream, batches=1)
    assert _kept(disk) == [5]


def test_nothing_is_trimmed_while_a_reader_cannot_be_read() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk)
    register(stream.storage, "billing", Stream.BATCHES, 0)
    disk.flip("readers/billing.json", 20, 3)
    before = disk.files()
    with pytest.raises(DamagedSegment, match="billing"):
        _trim(stream, batches=1)
    assert disk.files() == before


# Packs


def test_files_of_batches_in_a_pack_stay_until_the_pack_goes() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk, 8)
    stream.log().merge(3)
    planned, done = (_trim(stream, dry_run=dry_run, batches=5) for dry_run in (True, False))
    assert planned == done == StreamTrim(0, ())
    assert _kept(disk) == [0, 1, 2, 3, 4, 5, 6, 7]
    planned, done = (_trim(stream, dry_run=dry_run, batches=3) for dry_run in (True, False))
    assert planned == done
    assert (done.before, len(done.files)) == (5, 10)
    assert _kept(disk) == [5, 6, 7]


# Others at work


def test_trims_that_overtake_one_another_leave_whole_batches() -> None:
    for at in range(20):
        disk = SimulatedDisk()
        stream = _filled(disk)
        stream.retention = Retention(batches=2)

        def meddle(stream: Written = stream) -> None:
            with often(trim=1):
                stream.add(orders(6, 8))

        slow = Meddled(disk, at, meddle)
        log = manifest_log(slow, stream.meta)
        trim_stream(slow, log, Retention(batches=2), stream.clock.now_us)
        assert _kept(disk) in ([4, 5], [5, 6])


# What is left over


def test_files_that_no_batch_names_are_found_by_their_age() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk, 3)
    dead = stream.write(orders(9, 8))
    after_us = stream.clock.now_us + 1
    stream.clock.now_us += SECOND
    stream.write(orders(8, 8))
    found = left_over_files(stream.storage, stream.meta, stream.log(), after_us)
    assert sorted(found) == sorted(file.path for file in dead)
    assert left_over_files(stream.storage, stream.meta, stream.log(), after_us - 1) == []


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_batch_committed_or_trimmed_meanwhile_is_not_left_over(is_listed: bool) -> None:
    """Once the batches are listed, whoever commits a file that was to be left over is too late."""
    for at in range(4) if not is_listed else range(4, 8):
        disk = SimulatedDisk()
        stream = _filled(disk, 4)
        stream.retention = Retention(batches=2)
        age_us = stream.clock.now_us + 1
        stream.clock.now_us += SECOND if is_listed else 0
        files = stream.write(orders(4, 8))

        def meddle(stream: Written = stream, files: Any = files) -> None:
            with often(trim=1):
                stream.writer().commit(files)

        slow = Meddled(disk, at, meddle)
        found = left_over_files(slow, stream.meta, manifest_log(slow, stream.meta), age_us)
        for path in found:
            disk.storage().delete(path)
        assert _kept(disk) == [3, 4]
