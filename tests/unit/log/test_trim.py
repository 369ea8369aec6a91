from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import product

import pytest

from tests.support.harm import bring_back
from tests.support.logs import append, fill, open_log
from tests.support.trims import assert_holds, files_of, mark_file, pack_file, segment_file, trimmed
from trailmark.records import NO_BATCH, SegmentLink
from trailmark.settings import Durability
from trailmark.testing.disk import Crashed, SimulatedDisk


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


def test_several_files_go_behind_a_mark_which_the_next_one_replaces() -> None:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    fill(log, 6)
    log.trim(3)
    assert files_of(disk) == [*map(segment_file, (3, 4, 5)), mark_file(3)]
    assert disk.content(mark_file(3)) == b""
    log.trim(5)
    assert files_of(disk) == [segment_file(5), mark_file(5)]


def test_one_file_goes_behind_a_mark_too() -> None:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    fill(log, 7)
    log.trim(1)
    assert files_of(disk) == [*map(segment_file, range(1, 7)), mark_file(1)]


@pytest.mark.parametrize("before", [1, 4])
@pytest.mark.parametrize("is_finished", [False, True])
def test_a_merge_that_had_read_what_is_trimmed_does_not_bring_it_back(
    before: int, is_finished: bool
) -> None:
    disk = SimulatedDisk()
    links = fill(open_log(disk.storage()), 10)
    merged = disk.copy()
    open_log(merged.storage()).merge(7)
    open_log(disk.storage()).trim(before)
    bring_back(disk, merged, [pack_file(0, 7)])
    if is_finished:
        for batch in range(before, 8):
            disk.storage().delete(segment_file(batch))
    assert_holds(disk, links, before)
    open_log(disk.storage()).merge(8)
    assert_holds(disk, links, before)
    open_log(disk.storage()).trim(9)
    assert_holds(disk, links, 9)


def test_a_trim_that_finds_nothing_to_delete_changes_nothing() -> None:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    fill(log, 6)
    log.trim(4)
    operations = disk.operations
    assert (log.trim(4).deleted, log.trim(1).deleted) == ([], [])
    assert disk.operations == operations


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


def test_segments_stay_as_long_as_the_pack_that_holds_them_as_well() -> None:
    """Without them, and with one of them back, `contains` would miss the others."""
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    links = fill(log, 8)
    earlier = disk.copy()
    log.merge(5)
    bring_back(disk, earlier, [segment_file(batch) for batch in range(2, 6)])
    assert log.trim(5).deleted == []
    assert_holds(disk, links, 0)
    assert len(log.trim(6).deleted) == 5
    assert_holds(disk, links, 6)


def test_an_empty_log_can_be_trimmed() -> None:
    report = open_log(SimulatedDisk().storage()).trim(7)
    assert (report.deleted, report.bytes, report.oldest) == ([], 0, NO_BATCH)


def test_a_trim_may_leave_files_to_the_next_ones() -> None:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    links = fill(log, 10)
    for before, most, oldest in ((6, 2, 2), (6, 3, 5), (7, 1, 6), (7, 4, 7), (7, 4, 7)):
        first = log.oldest()
        report = log.trim(before, most=most)
        assert report.deleted == [f"{batch:020d}.seg" for batch in range(first, oldest)]
        assert files_of(disk) == [*map(segment_file, range(oldest, 10)), mark_file(oldest)]
        assert report.oldest == oldest
        assert_holds(disk, links, oldest)


def test_a_trim_may_end_within_a_pack_whose_segments_are_still_there() -> None:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    links = fill(log, 10)
    earlier = disk.copy()
    log.merge(6)
    bring_back(disk, earlier, map(segment_file, range(7)))
    report = log.trim(9, most=3)
    assert report.oldest == 3
    assert_holds(disk, links, 3)
    assert log.trim(9).oldest == 9
    assert_holds(disk, links, 9)


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


# When the power fails


def test_without_a_mark_files_that_come_back_would_leave_holes() -> None:
    """What the mark is for, and that the simulated disk can show it."""
    holes = 0
    for state in range(50):
        disk = SimulatedDisk()
        fill(open_log(disk.storage()), 8)
        for batch in range(6):
            disk.storage().delete(segment_file(batch), synced=False)
        disk.crash(random.Random(state))
        holes += not open_log(disk.storage()).verify().is_whole
    assert holes > 10


def failed_trims(
    durability: Durability, most: int | None = None
) -> Iterator[tuple[SimulatedDisk, list[SegmentLink], int]]:
    """Power failures before every operation of a trim and after the last; each with the batch that
    the log begins with, or NO_BATCH where the trim did not come to an end."""
    before = SimulatedDisk()
    log = open_log(before.storage(durability))
    links = fill(log, 12)
    for link in links:
        log.settle(link.batch)
    log.trim(3)
    whole = before.copy()
    open_log(whole.storage(durability)).trim(9, most=most)
    for operations, variant in product(range(whole.operations + 1), range(6)):
        disk = before.copy()
        disk.stop_after(operations)
        oldest = NO_BATCH
        with suppress(Crashed):
            oldest = open_log(disk.storage(durability)).trim(9, most=most).oldest
        disk.crash(random.Random(f"{operations}/{variant}"))
        yield disk, links, oldest


@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("durability", list(Durability))
def test_a_power_failure_at_any_operation_of_a_trim_leaves_a_log_without_a_hole(
    durability: Durability, most: int | None
) -> None:
    left_over, end = 0, 9 if most is None else 3 + most
    for disk, links, oldest in failed_trims(durability, most):
        found = open_log(disk.storage()).oldest()
        assert found in ((3, end) if oldest == NO_BATCH else (end,))
        left_over += bool(open_log(disk.storage()).reader.look().left_over)
        assert_holds(disk, links, found)
    assert left_over > 20, "the simulation brings files back"


def test_a_log_goes_on_after_a_power_failure_at_any_operation_of_a_trim() -> None:
    for disk, links, _ in failed_trims(Durability.SYNCED):
        log = open_log(disk.storage())
        links = [*links, append(log, 12, links[11]).link]
        log.trim(10)
        assert_holds(disk, links, 10)
        assert files_of(disk) == [*map(segment_file, (10, 11, 12)), mark_file(10)]


def test_a_merge_after_a_power_failure_at_any_operation_of_a_trim_hides_no_batch() -> None:
    for disk, links, _ in failed_trims(Durability.SYNCED):
        log = open_log(disk.storage())
        oldest = log.oldest()
        assert log.merge(10).merged == list(range(oldest, 11))
        assert_holds(disk, links, oldest)


def test_a_power_failure_during_a_merge_behind_a_trim_hides_no_batch() -> None:
    """Deletions of the trim may be undone as long as nothing has synced the directory."""
    for operations, variant in product(range(24), range(8)):
        disk = SimulatedDisk()
        log = open_log(disk.storage())
        links = fill(log, 8)
        log.trim(3)
        disk.stop_after(operations)
        with suppress(Crashed):
            log.merge(6)
        disk.crash(random.Random(f"{operations}/{variant}"))
        assert_holds(disk, links, 3)


def test_repair_removes_what_a_power_failure_brought_back_and_says_so() -> None:
    disk, log, links = trimmed(back=[1, 4])
    report = log.repair()
    assert [(each.deed, each.path) for each in report.actions[:2]] == [
        ("removed", segment_file(1)),
        ("removed", segment_file(4)),
    ]
    assert report.is_whole
    assert_holds(disk, links, 6)
    assert log.reader.look().left_over == []
