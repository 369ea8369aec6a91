from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product

import pytest

from tests.support.disk import Crashed, SimulatedDisk
from tests.support.harm import bring_back
from tests.support.logs import append, fill, open_log
from trailmark.errors import BatchGoesBackward, MissingSegment
from trailmark.log import Segment, StreamLog
from trailmark.records import NO_BATCH, START_OF_LOG, SegmentLink, Stream
from trailmark.settings import Durability


def segment_file(batch: int) -> str:
    return f"in/00003/{batch:020d}.seg"


def pack_file(first: int, last: int) -> str:
    return f"in/00003/{first:020d}-{last:020d}.pack"


def mark_file(batch: int) -> str:
    return f"in/00003/{batch:020d}.trim"


def files_of(disk: SimulatedDisk) -> list[str]:
    """Segments and packs, then marks, of the log; not what was set aside."""
    files = [path for path in disk.files() if path.startswith("in/00003/0")]
    return sorted(files, key=lambda path: (path.endswith(".trim"), path))


def trimmed(
    back: Iterable[int], *, batches: int = 10, before: int = 6
) -> tuple[SimulatedDisk, StreamLog, list[SegmentLink]]:
    """A log that was trimmed, and of what was deleted some batches have come back."""
    disk = SimulatedDisk()
    links = fill(open_log(disk.storage()), batches)
    earlier = disk.copy()
    open_log(disk.storage()).trim(before)
    bring_back(disk, earlier, map(segment_file, back))
    return disk, open_log(disk.storage()), links


def assert_holds(disk: SimulatedDisk, links: list[SegmentLink], first: int) -> None:
    """The log is whole and holds the batches from the first on, whoever looks at it and how."""
    log = open_log(disk.storage())
    expected = links[first:]
    assert log.batches() == [link.batch for link in expected]
    assert (log.oldest(), log.newest()) == (expected[0].batch, expected[-1].batch)
    assert [segment.link for segment in log.read_from()] == expected
    backward = list(log.read_backward(log.newest()))
    assert [s.link for s in backward if isinstance(s, Segment)] == expected[::-1]
    assert len(backward) == len(expected)
    assert log.verify().problems == []
    assert [entry.batch for entry in log.time_index().entries] == log.batches()
    for link in links:
        assert open_log(disk.storage()).contains(link.batch) == (link in expected)


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
    left_over = 0
    for disk, links, oldest in failed_trims(durability, most):
        found = open_log(disk.storage()).oldest()
        assert found in ((3, 9) if oldest == NO_BATCH else (9,))
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


# Left-overs


@pytest.mark.parametrize("back", [[5], [0, 5], [1, 3, 4], range(6)])
def test_left_overs_are_no_part_of_the_log(back: Iterable[int]) -> None:
    disk, log, links = trimmed(back)
    assert_holds(disk, links, 6)
    with pytest.raises(MissingSegment, match="Batch 5, which batch 6 follows"):
        list(log.read_from(1))


def test_a_pack_that_comes_back_is_no_part_of_the_log_either() -> None:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    links = fill(log, 10)
    log.merge(3)
    earlier = disk.copy()
    log.trim(6)
    bring_back(disk, earlier, [pack_file(0, 3)])
    assert_holds(disk, links, 6)
    with pytest.raises(MissingSegment):
        open_log(disk.storage()).read(2)


def test_the_next_trim_deletes_left_overs_and_counts_them() -> None:
    disk, log, links = trimmed(back=[1, 4])
    sizes = [len(disk.content(segment_file(batch))) for batch in (1, 4)]
    report = log.trim(6)
    assert report.deleted == ["00000000000000000001.seg", "00000000000000000004.seg"]
    assert (report.bytes, report.oldest) == (sum(sizes), 6)
    assert segment_file(4) not in disk.files()
    assert_holds(disk, links, 6)


def test_a_trim_may_leave_files_to_the_next_ones() -> None:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    links = fill(log, 10)
    left = [*map(segment_file, range(10))]
    for before, most, deleted in ((6, 2, 2), (6, 3, 3), (7, 1, 1), (7, 4, 1)):
        report = log.trim(before, most=most)
        assert [f"in/00003/{name}" for name in report.deleted] == left[:deleted]
        left = left[deleted:]
        assert files_of(disk) == [*left, mark_file(before)]
        assert report.oldest == before
        assert_holds(disk, links, before)


def test_a_mark_that_is_not_on_disk_yet_is_put_there_before_left_overs_go() -> None:
    """A process is killed after it has linked the mark; the next one trims, and the power fails."""
    for killed_after, stopped_after, variant in product((3, 4), range(16), range(6)):
        disk = SimulatedDisk()
        log = open_log(disk.storage())
        links = fill(log, 8)
        disk.stop_after(killed_after)
        with pytest.raises(Crashed):
            log.trim(6)
        disk.kill()
        assert mark_file(6) in disk.files()
        disk.stop_after(stopped_after)
        with suppress(Crashed):
            open_log(disk.storage()).trim(6)
        disk.crash(random.Random(f"{killed_after}/{stopped_after}/{variant}"))
        oldest = open_log(disk.storage()).oldest()
        assert oldest in (0, 6)
        assert_holds(disk, links, oldest)


def test_what_a_late_writer_publishes_behind_a_left_over_is_no_part_of_the_log() -> None:
    """It cannot be told that it is late; nor does it take the place of anything."""
    disk, log, links = trimmed(back=[3])
    append(open_log(disk.storage()), 4, links[3], count=9)
    assert_holds(disk, links, 6)
    log.trim(7)
    assert files_of(disk) == [*map(segment_file, (7, 8, 9)), mark_file(7)]


def test_a_late_writer_that_finds_a_left_over_is_given_it() -> None:
    disk, _, links = trimmed(back=[3, 4])
    published = append(open_log(disk.storage()), 4, links[3], count=9)
    assert (published.created, published.link) == (False, links[4])
    assert_holds(disk, links, 6)


def test_a_batch_before_the_mark_is_refused_though_the_log_has_nothing_left() -> None:
    disk, _, links = trimmed(back=[])
    for batch in range(6, 10):
        disk.storage().delete(segment_file(batch))
    for batch in (0, 5):
        with pytest.raises(BatchGoesBackward, match=f"Batch {batch} has been trimmed"):
            append(open_log(disk.storage()), batch, links[batch - 1] if batch else START_OF_LOG)
    assert append(open_log(disk.storage()), 6, links[5]).created


# Going back to before a mark


def test_batches_that_are_written_anew_before_a_mark_are_in_the_log() -> None:
    disk, log, links = trimmed(back=[1, 4])
    report = log.set_aside_after(3)
    assert report.is_whole
    removed = [each.path for each in report.actions if each.deed == "removed"]
    assert removed == [segment_file(1), segment_file(4), mark_file(6)]
    assert files_of(disk) == []
    again = [append(log, 4, links[3], count=2).link]
    again.append(append(log, 5, again[0], count=2).link)
    assert_holds(disk, [*links[:4], *again], 4)


def test_a_mark_that_hides_nothing_stays() -> None:
    disk, log, links = trimmed(back=[4])
    log.set_aside_after(5)
    assert mark_file(6) in disk.files()
    assert append(log, 6, links[5], count=2).created
    assert log.batches() == [6]


def test_a_power_failure_while_the_log_goes_back_brings_nothing_back() -> None:
    for operations, variant in product(range(32), range(12)):
        disk = SimulatedDisk()
        log = open_log(disk.storage())
        links = fill(log, 8)
        log.trim(5)
        disk.stop_after(operations)
        with suppress(Crashed):
            log.set_aside_after(2)
        disk.crash(random.Random(f"{operations}/{variant}"))
        log = open_log(disk.storage())
        batches = log.batches()
        assert batches == list(range(5, 5 + len(batches)))
        assert log.verify().is_whole
        log.set_aside_after(2)
        again = append(log, 3, links[2], count=2)
        assert again.created
        assert_holds(disk, [*links[:3], again.link], 3)


def test_a_snapshot_that_was_trimmed_and_came_back_is_left_over_too() -> None:
    """Snapshots follow one another with gaps, and none links to the one before."""
    disk = SimulatedDisk()
    log = open_log(disk.storage(), stream=Stream.SNAPSHOT)
    for batch in (4, 8, 12, 16):
        append(log, batch, START_OF_LOG)
    earlier = disk.copy()
    log.trim(14)
    assert log.batches() == [16]
    bring_back(disk, earlier, ["snap/00003/00000000000000000008.seg"])
    assert log.batches() == [16]
    assert not log.contains(8)
    assert append(log, 20, START_OF_LOG).created
    assert log.batches() == [16, 20]
