from __future__ import annotations

import random
from itertools import product

import pytest

from tests.support.logs import append, fill, open_log, rows_of
from trailmark.errors import DamagedSegment, MissingSegment
from trailmark.log import StreamLog
from trailmark.records import START_OF_LOG, FrameKind, SegmentLink
from trailmark.settings import LogSettings
from trailmark.testing.disk import Crashed, SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def segment_file(batch: int) -> str:
    return f"in/00003/{batch:020d}.seg"


def pack_file(first: int, last: int) -> str:
    return f"in/00003/{first:020d}-{last:020d}.pack"


def assert_reads(log: StreamLog, batches: range, links: list[SegmentLink]) -> None:
    assert log.batches() == list(batches)
    assert [segment.link for segment in log.read_from()] == links[batches.start : batches.stop]
    for batch in batches:
        assert log.read(batch).table(FrameKind.INPUT) == rows_of(batch)
        assert log.read_footer(batch) == (log.read(batch).footer, links[batch].checksum)
        assert log.contains(batch)


def test_merged_segments_read_as_before_and_their_files_are_gone(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    links = fill(log, 8)
    report = log.merge(5)
    assert disk.files() == [pack_file(0, 5), segment_file(6), segment_file(7)]
    assert (report.packs, report.merged) == ([pack_file(0, 5)[9:]], [0, 1, 2, 3, 4, 5])
    assert report.bytes == len(disk.content(pack_file(0, 5)))
    assert_reads(log, range(8), links)
    assert_reads(open_log(disk.storage()), range(8), links)
    assert log.verify().is_whole


def test_packs_are_about_as_large_as_asked(disk: SimulatedDisk) -> None:
    size = open_size()
    log = open_log(disk.storage(), settings=LogSettings(merge_bytes=3 * size))
    links = fill(log, 10)
    log.merge(9)
    assert disk.files() == [
        pack_file(0, 2),
        pack_file(3, 5),
        pack_file(6, 8),
        segment_file(9),
    ]
    assert_reads(log, range(10), links)


def open_size() -> int:
    disk = SimulatedDisk()
    return append(open_log(disk.storage()), 0, START_OF_LOG).bytes


def test_no_segment_is_left_between_packs_however_large_it_is(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage(), settings=LogSettings(merge_bytes=100))
    fill(log, 4)
    log.merge(3)
    assert disk.files() == [pack_file(0, 1), pack_file(2, 3)]


def test_a_run_that_is_full_is_merged_however_short_it_is(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage(), settings=LogSettings(merge_bytes=6 * open_size()))
    link = append(log, 0, START_OF_LOG, count=9_000).link
    for batch in range(1, 9):
        link = append(log, batch, link).link
    log.merge(7, smallest_run=5)
    assert disk.files() == [pack_file(0, 1), pack_file(2, 7), segment_file(8)]
    # Left out, it would hide that the batch behind it has been merged.
    assert open_log(disk.storage()).contains(2)


def test_short_runs_stay_until_there_are_enough(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    fill(log, 6)
    assert log.merge(5, smallest_run=7).packs == []
    assert len(disk.files()) == 6
    assert log.merge(5, smallest_run=6).merged == [0, 1, 2, 3, 4, 5]


def test_a_batch_of_a_pack_is_one_range_read(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk.storage())
    fill(log, 3)
    size = len(disk.content(segment_file(1)))
    log.merge(2)
    log.read(0)  # learns where the pack is
    ranges: list[int] = []
    real = disk.read

    def read(path: str, offset: int, length: int | None) -> tuple[memoryview, int]:
        ranges.append(len(real(path, offset, length)[0]))
        return real(path, offset, length)

    monkeypatch.setattr(disk, "read", read)
    monkeypatch.setattr(disk, "list_directory", lambda path: pytest.fail(f"lists {path}"))
    log.read(1)
    assert ranges == [size]


def test_a_reader_in_the_middle_of_the_log_does_not_notice_a_merge(disk: SimulatedDisk) -> None:
    writer = open_log(disk.storage())
    links = fill(writer, 10)
    forward = open_log(disk.storage()).read_from()
    backward = open_log(disk.storage()).read_backward(9)
    footers = open_log(disk.storage())
    found = [next(forward).link for _ in range(3)]
    found_backward = [next(backward).batch for _ in range(3)]
    assert footers.read_footer(4)[1] == links[4].checksum
    writer.merge(8)
    found += [segment.link for segment in forward]
    found_backward += [segment.batch for segment in backward]
    assert found == links
    assert found_backward == list(range(9, -1, -1))
    assert footers.read_footer(4)[1] == links[4].checksum


def test_a_reader_that_knows_a_pack_notices_when_it_is_trimmed(disk: SimulatedDisk) -> None:
    writer = open_log(disk.storage())
    fill(writer, 10)
    writer.merge(4)
    reader = open_log(disk.storage())
    reader.read(2)
    writer.trim(7)
    with pytest.raises(MissingSegment):
        reader.read(2)
    assert not reader.contains(2)
    assert reader.read(7).batch == 7


def test_merging_twice_changes_nothing(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    fill(log, 6)
    log.merge(4)
    before = disk.files()
    assert log.merge(4).packs == []
    assert disk.files() == before


def test_the_next_merge_makes_a_new_pack(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    links = fill(log, 6)
    log.merge(2)
    log.merge(5)
    assert disk.files() == [pack_file(0, 2), pack_file(3, 5)]
    assert_reads(log, range(6), links)


def test_nothing_at_or_behind_damage_is_merged(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    fill(log, 8)
    disk.flip(segment_file(3), 60, 1)
    report = log.merge(7)
    assert isinstance(report.stopped_by, DamagedSegment)
    assert report.merged == [0, 1, 2]
    assert disk.files() == [pack_file(0, 2), *map(segment_file, range(3, 8))]


def test_segments_that_do_not_follow_each_other_are_not_merged(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    links = fill(log, 2)
    append(log, 2, SegmentLink(1, links[1].checksum ^ 1))
    report = log.merge(2)
    assert "does not follow" in str(report.stopped_by)
    assert report.merged == [0, 1]
    assert segment_file(2) in disk.files()


@pytest.mark.parametrize("finisher", ["merge", "repair"])
def test_whoever_finishes_the_merge_of_a_killed_process_loses_nothing_in_a_power_failure(
    finisher: str,
) -> None:
    """The pack may not be on disk yet while its segments are deleted already."""
    for killed_after, stopped_after, variant in product(range(4, 7), range(5), range(8)):
        disk = SimulatedDisk()
        log = open_log(disk.storage())
        links = fill(log, 4)
        disk.stop_after(killed_after)
        with pytest.raises(Crashed):
            log.merge(2)
        disk.kill()
        disk.stop_after(stopped_after)
        other = open_log(disk.storage())
        try:
            other.merge(2) if finisher == "merge" else other.repair()
        except Crashed:
            disk.crash(random.Random(f"{killed_after}/{stopped_after}/{variant}"))
        disk.relax()
        assert_reads(open_log(disk.storage()), range(4), links)


def copy_of(disk: SimulatedDisk) -> SimulatedDisk:
    copy = SimulatedDisk()
    for path in disk.files():
        copy.storage().publish(path, [disk.content(path)])
    return copy


def test_two_merges_at_once_agree(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    links = fill(log, 6)
    other = copy_of(disk)
    log.merge(4)
    # The other merge had read the segments before they were deleted, and publishes now.
    for path in other.files():
        disk.storage().publish(path, [other.content(path)])
    open_log(disk.storage()).merge(4)
    assert disk.files() == [pack_file(0, 4), segment_file(5)]
    assert_reads(log, range(6), links)


def test_two_merges_that_went_differently_far_leave_a_log_that_reads(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    links = fill(log, 8)
    other = copy_of(disk)
    log.merge(3)
    open_log(other.storage()).merge(5)
    disk.storage().publish(pack_file(0, 5), [other.content(pack_file(0, 5))])
    assert_reads(open_log(disk.storage()), range(8), links)
    assert log.verify().is_whole
    assert log.merge(7).stopped_by is None
    assert_reads(open_log(disk.storage()), range(8), links)
    log.trim(7)
    assert log.batches() == [6, 7]


def test_a_merge_that_is_overtaken_by_a_trim_says_so(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk.storage())
    fill(log, 5)
    real = disk.read

    def read(path: str, offset: int, length: int | None) -> tuple[memoryview, int]:
        monkeypatch.undo()
        open_log(disk.storage()).trim(4)
        return real(path, offset, length)

    monkeypatch.setattr(disk, "read", read)
    report = log.merge(4)
    assert report.was_overtaken
    assert report.packs == []
    assert log.batches() == [4]


def test_originals_stay_while_the_pack_that_is_there_is_damaged(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    links = fill(log, 4)
    other = copy_of(disk)
    open_log(other.storage()).merge(2)
    disk.storage().publish(pack_file(0, 2), [other.content(pack_file(0, 2))])
    disk.flip(pack_file(0, 2), 200, 3)
    log.merge(2)
    assert segment_file(0) in disk.files()
    assert_reads(open_log(disk.storage()), range(4), links)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_pack_that_appears_meanwhile_is_verified_before_originals_go(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    log = open_log(disk.storage())
    links = fill(log, 4)
    other = copy_of(disk)
    open_log(other.storage()).merge(2)
    if is_damaged:
        other.flip(pack_file(0, 2), 200, 3)
    real = disk.link

    def link(source: str, target: str) -> None:
        monkeypatch.undo()
        disk.storage().publish(pack_file(0, 2), [other.content(pack_file(0, 2))])
        real(source, target)

    monkeypatch.setattr(disk, "link", link)
    report = log.merge(2)
    assert (report.stopped_by is not None) == is_damaged
    assert (segment_file(0) in disk.files()) == is_damaged
    assert_reads(open_log(disk.storage()), range(4), links)


def test_segments_that_differ_from_those_in_a_pack_are_not_merged_again(
    disk: SimulatedDisk,
) -> None:
    log = open_log(disk.storage())
    links = fill(log, 6)
    log.merge(4)
    elsewhere = SimulatedDisk()
    stray = append(open_log(elsewhere.storage()), 2, links[1], count=9)
    append(open_log(elsewhere.storage()), 3, stray.link, count=9)
    for path in elsewhere.files():
        disk.storage().publish(path, [elsewhere.content(path)])
    before = disk.files()
    assert log.merge(4).packs == []
    assert disk.files() == before


@pytest.mark.parametrize("damage", ["original", "copy"])
def test_a_batch_in_two_files_is_read_as_long_as_one_is_whole(
    disk: SimulatedDisk, damage: str
) -> None:
    log = open_log(disk.storage())
    links = fill(log, 4)
    other = copy_of(disk)
    log.merge(2)
    for path in other.files():
        disk.storage().publish(path, [other.content(path)])
    if damage == "original":
        disk.flip(segment_file(1), 70, 2)
    else:
        disk.flip(pack_file(0, 2), 16 + len(other.content(segment_file(0))) + 70, 2)
    assert_reads(open_log(disk.storage()), range(4), links)
