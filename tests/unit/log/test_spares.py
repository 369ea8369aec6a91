"""Files that are written over others that nobody needs any more."""

from __future__ import annotations

import errno
import os
import random
import time
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from tests.support.logs import append, fill, open_log, rows_of
from tests.support.trims import assert_holds, segment_file
from trailmark.errors import DamagedSegment, DiskFull, MissingSegment
from trailmark.log import LocalStorage, RepeatedTrim, StreamLog
from trailmark.log.storage import Entry
from trailmark.log.storage.file_system import OperatingSystem
from trailmark.records import START_OF_LOG, FrameKind, SegmentLink
from trailmark.settings import Durability
from trailmark.testing.disk import ROOT, Crashed, SimulatedDisk

_OLD, _NEW = "in/00003/00000000000000000005.seg", "in/00003/00000000000000000021.seg"
_SPARE = "in/00003/spare-05"


@pytest.mark.parametrize("size", [0, 3, 10, 4_096, 100_000])
def test_a_file_is_written_over_a_recycled_one(tmp_path: Path, size: int) -> None:
    storage = LocalStorage(tmp_path)
    storage.publish(_OLD, [b"0123456789"])
    inode = (tmp_path / _OLD).stat().st_ino
    storage.recycle(_OLD)
    assert not storage.exists(_OLD)
    assert storage.list("in/00003") == [Entry("spare-05", 10)]
    content = os.urandom(size)
    assert storage.publish(_NEW, [content[:2], content[2:]])
    assert bytes(storage.read(_NEW)) == content
    assert (tmp_path / _NEW).stat().st_ino == inode
    assert os.listdir(tmp_path / "in/00003") == [Path(_NEW).name]


def test_a_file_that_has_another_name_is_not_written_over(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.publish(_OLD, [b"0123456789"])
    backup = tmp_path / "backup"
    os.link(tmp_path / _OLD, backup)
    storage.recycle(_OLD)
    storage.publish(_NEW, [b"abc"])
    assert backup.read_bytes() == b"0123456789"
    assert bytes(storage.read(_NEW)) == b"abc"
    assert os.listdir(tmp_path / "in/00003") == [Path(_NEW).name]


def test_what_a_link_in_its_place_points_to_is_not_written_over(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.publish(_OLD, [b"0123456789"])
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / _SPARE).symlink_to(victim)
    assert storage.publish(_NEW, [b"abc"])
    assert victim.read_bytes() == b"mine"
    assert not (tmp_path / _SPARE).is_symlink()


@pytest.mark.parametrize(
    ("call", "code", "left"), [(1, errno.EPERM, [_NEW, _SPARE]), (2, errno.EACCES, [_NEW])]
)
def test_what_may_not_be_renamed_or_written_over_is_not_used(
    call: int, code: int, left: list[str]
) -> None:
    disk = SimulatedDisk()
    storage = disk.storage()
    storage.publish(_OLD, [b"0123456789"])
    storage.recycle(_OLD)
    disk.fail_on(call, code)
    assert storage.publish(_NEW, [b"abc"])
    assert bytes(storage.read(_NEW)) == b"abc"
    assert disk.files() == left


def test_without_syncing_spares_are_not_used_and_soon_gone() -> None:
    disk = SimulatedDisk()
    disk.storage().publish(_OLD, [b"0123456789"])
    disk.storage().recycle(_OLD)
    unsynced = disk.storage(Durability.UNSYNCED)
    unsynced.publish(_NEW, [b"abc"])
    assert disk.files() == [_NEW, _SPARE]
    unsynced.recycle(_NEW)
    assert disk.files() == []


def test_a_file_that_was_there_first_stays_and_the_spare_goes(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.publish(_NEW, [b"first"])
    storage.publish(_OLD, [b"0123456789"])
    storage.recycle(_OLD)
    assert not storage.publish(_NEW, [b"second"])
    assert bytes(storage.read(_NEW)) == b"first"
    assert os.listdir(tmp_path / "in/00003") == [Path(_NEW).name]


def test_few_spares_are_kept(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for batch in range(40):
        storage.publish(segment_file(batch), [b"x"])
        storage.recycle(segment_file(batch))
    assert len(os.listdir(tmp_path / "in/00003")) == 16


def test_without_syncing_and_without_a_number_a_file_is_deleted(tmp_path: Path) -> None:
    unsynced = LocalStorage(tmp_path, Durability.UNSYNCED)
    unsynced.publish(_OLD, [b"x"])
    unsynced.recycle(_OLD)
    synced = LocalStorage(tmp_path)
    synced.publish("in/00003/index.json", [b"x"])
    synced.recycle("in/00003/index.json")
    synced.recycle("in/00003/00000000000000000007.seg")  # there is none
    assert os.listdir(tmp_path / "in/00003") == []


def test_who_has_just_taken_an_old_file_counts_as_alive(tmp_path: Path) -> None:
    """Others look at the age of what it writes, and the bytes of a spare may be old."""
    path = tmp_path / "spare-05"
    path.write_bytes(b"x")
    os.utime(path, (1e9, 1e9))
    files = OperatingSystem()
    began_us = time.time_ns() // 1_000 - 1_000_000
    files.rename(str(path), str(tmp_path / ".taken"))
    (entry,) = files.list_directory(str(tmp_path))
    assert entry.changed_us >= began_us


def test_on_a_full_disk_spares_make_room() -> None:
    """All of them: those of other logs, too."""
    disk = SimulatedDisk()
    storage = disk.storage()
    for bucket in ("in/00003", "out/00001"):
        storage.publish(f"{bucket}/00000000000000000006.seg", [b"x" * 4_000])
        storage.recycle(f"{bucket}/00000000000000000006.seg")
    disk.capacity = 8_100
    assert storage.publish(_NEW, [b"y" * 8_000])
    assert disk.files() == [_NEW]
    assert disk.content(_NEW) == b"y" * 8_000
    disk.crash(random.Random(3))
    assert disk.content(_NEW) == b"y" * 8_000


@pytest.mark.parametrize("durability", list(Durability))
def test_a_disk_that_is_full_without_spares_is_full(durability: Durability) -> None:
    disk = SimulatedDisk()
    disk.storage().publish(_OLD, [b"x" * 4_000])
    disk.storage().recycle(_OLD)
    disk.capacity = 4_100
    storage = disk.storage(durability)
    for write in (storage.publish, storage.replace):
        with pytest.raises(DiskFull):
            write(_NEW, [b"y" * 8_000])
        assert disk.files() == []
    assert storage.publish(_NEW, [b"y" * 4_000])


# A log whose segments are written over those that were trimmed


def _grown(disk: SimulatedDisk) -> tuple[StreamLog, list[SegmentLink]]:
    """Some of its spares are longer than what is written over them."""
    log = open_log(disk.storage())
    links = [append(log, 0, START_OF_LOG, count=70).link]
    for batch in range(1, 36):
        links.append(append(log, batch, links[-1], count=70 if batch % 2 else 3).link)
    RepeatedTrim(log.reader).trim(12, most=32)
    assert sum("/spare-" in path for path in disk.files()) == 12
    return log, links


def _go_on(log: StreamLog, links: list[SegmentLink], last: int, *, trims: bool = True) -> None:
    """Appends and trims up to a batch, each of another size."""
    repeated = RepeatedTrim(log.reader)
    for batch in range(links[-1].batch + 1, last + 1):
        links.append(append(log, batch, links[-1], count=1 + batch * 7 % 50).link)
        if trims:
            repeated.trim(batch - 24, most=32)


def test_a_log_goes_on_over_its_own_spares() -> None:
    disk = SimulatedDisk()
    log, links = _grown(disk)
    _go_on(log, links, 100)
    assert_holds(disk, links, 76)
    for batch in range(76, 101):
        table = log.read(batch).table(FrameKind.INPUT)
        assert table is not None
        assert table.equals(rows_of(batch, 1 + batch * 7 % 50))
    assert sum("/spare-" in path for path in disk.files()) <= 16


@pytest.mark.parametrize("is_power_failure", [False, True])
def test_wherever_it_is_interrupted_every_segment_stays_whole(is_power_failure: bool) -> None:
    shared = 0
    for operations, variant in product(range(46), range(6 if is_power_failure else 1)):
        disk = SimulatedDisk()
        log, links = _grown(disk)
        published = list(links)
        disk.stop_after(operations)
        with suppress(Crashed):
            _go_on(log, published, 39)
        if is_power_failure:
            disk.crash(random.Random(f"{operations}/{variant}"))
        else:
            disk.kill()
        shared += _has_shared(disk)
        log = open_log(disk.storage())
        found = [segment.link for segment in log.read_from()]
        assert [link.batch for link in found] == list(range(found[0].batch, found[-1].batch + 1))
        assert found[-1].batch >= published[-1].batch, "what was published is there"
        known = [*published, *found[-1:]] if found[-1] not in published else published
        # Whoever goes on writes over what it finds, and must not find what is in use.
        log.settle(found[-1].batch)
        _go_on(log, known, known[-1].batch + 18, trims=False)
        assert_holds(disk, known, log.oldest())
    assert not is_power_failure or shared > 10, "the simulation brings names back"


def _has_shared(disk: SimulatedDisk) -> bool:
    """Whether two names stand for the same file."""
    counts = []
    for path in disk.files():
        descriptor = disk.open(f"{ROOT}/{path}")
        counts.append(disk.links(descriptor))
        disk.close(descriptor)
    return any(count > 1 for count in counts)


def test_a_name_that_came_back_for_another_segment_is_a_missing_one() -> None:
    disk = SimulatedDisk()
    log, links = _grown(disk)
    came_back = segment_file(3)
    disk.storage().publish(came_back, [disk.content(segment_file(19))])
    with pytest.raises(MissingSegment):
        open_log(disk.storage()).read(3)
    with pytest.raises(MissingSegment):
        open_log(disk.storage()).read_footer(3)
    assert_holds(disk, links, 12)
    files = disk.files()
    RepeatedTrim(log.reader).trim(13, most=1)
    assert disk.files() == [path for path in files if path != came_back], "no spare was made of it"
    assert_holds(disk, links, 12)


class _RecyclesMeanwhile(LocalStorage):
    """Writes over a file while it is being read, or only harms it."""

    keeps_name = False

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        return self._written_over(path, super().read(path, offset, length))

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        data, size = super().read_tail(path, length)
        return self._written_over(path, data), size

    def _written_over(self, path: str, data: memoryview) -> memoryview:
        if not self.keeps_name:
            self.recycle(path)
        changed = bytearray(data)
        changed[-30] ^= 1  # the footer
        return memoryview(changed)


@pytest.mark.parametrize("keeps_name", [False, True])
def test_who_reads_a_segment_while_it_is_written_over_finds_it_gone(keeps_name: bool) -> None:
    for read in (StreamLog.read, StreamLog.read_footer):
        disk = SimulatedDisk()
        fill(open_log(disk.storage()), 3)
        storage = _RecyclesMeanwhile(ROOT, file_system=disk)
        storage.keeps_name = keeps_name
        with pytest.raises(DamagedSegment if keeps_name else MissingSegment):
            read(open_log(storage), 1)
