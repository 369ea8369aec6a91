from __future__ import annotations

from tests.support.disk import Crashed, SimulatedDisk
from tests.support.logs import fill, open_log
from trailmark.records import NO_BATCH


def test_trim_deletes_what_lies_before_and_says_what() -> None:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    fill(log, 5)
    sizes = [len(disk.content(path)) for path in disk.files()]
    report = log.trim(3)
    assert log.batches() == [3, 4]
    assert report.deleted == [f"{batch:020d}.seg" for batch in range(3)]
    assert (report.bytes, report.oldest) == (sum(sizes[:3]), 3)
    assert log.verify().is_whole


def test_the_newest_batch_always_stays() -> None:
    log = open_log(SimulatedDisk().storage())
    fill(log, 5)
    assert log.trim(100).oldest == 4
    assert log.batches() == [4]


def test_a_newest_batch_inside_a_pack_keeps_the_pack() -> None:
    log = open_log(SimulatedDisk().storage())
    fill(log, 5)
    log.merge(4)
    assert log.trim(100).deleted == []
    assert log.batches() == [0, 1, 2, 3, 4]


def test_a_pack_goes_only_when_all_of_it_lies_before() -> None:
    log = open_log(SimulatedDisk().storage())
    fill(log, 6)
    log.merge(3)
    assert log.trim(3).deleted == []
    assert log.trim(4).oldest == 4
    assert log.batches() == [4, 5]


def test_an_empty_log_can_be_trimmed() -> None:
    report = open_log(SimulatedDisk().storage()).trim(7)
    assert (report.deleted, report.bytes, report.oldest) == ([], 0, NO_BATCH)


def test_an_interrupted_trim_leaves_no_hole() -> None:
    for operations in range(12):
        disk = SimulatedDisk()
        log = open_log(disk.storage())
        fill(log, 8)
        disk.stop_after(operations)
        try:
            log.trim(6)
        except Crashed:
            disk.kill()
        batches = open_log(disk.storage()).batches()
        assert batches == list(range(batches[0], 8))
        assert open_log(disk.storage()).verify().is_whole
