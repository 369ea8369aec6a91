from __future__ import annotations

import pytest

from tests.support.logs import append, fill, open_log, rows_of
from trailmark.errors import DamagedSegment, MissingSegment
from trailmark.log import Segment, StreamLog, Unreadable
from trailmark.records import UNKNOWN_CHECKSUM, FrameKind, SegmentLink
from trailmark.testing.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture(params=["plain", "merged", "partly merged"])
def log(disk: SimulatedDisk, request: pytest.FixtureRequest) -> StreamLog:
    """Batches 0 to 9."""
    log = open_log(disk.storage())
    fill(log, 10)
    log.merge({"plain": -1, "merged": 9, "partly merged": 5}[request.param])
    return log


def segment_file(batch: int) -> str:
    return f"in/00003/{batch:020d}.seg"


def batches(found: object) -> list[int | tuple[str, int]]:
    return [
        each.batch if isinstance(each, Segment) else (type(each.error).__name__, each.batch)
        for each in found  # type: ignore[attr-defined]
    ]


def test_forward_gives_every_segment_once_and_in_order(log: StreamLog) -> None:
    found = list(log.read_from())
    assert batches(found) == list(range(10))
    assert [each.table(FrameKind.INPUT) for each in found] == [rows_of(n) for n in range(10)]


def test_forward_begins_and_ends_where_it_is_told(log: StreamLog) -> None:
    assert batches(log.read_from(3, 6)) == [3, 4, 5, 6]
    assert batches(log.read_from(8)) == [8, 9]
    assert batches(log.read_from(to=1)) == [0, 1]
    assert batches(log.read_from(10)) == []
    assert batches(log.read_from(3, 2)) == []


def test_forward_can_be_called_again_to_catch_up(log: StreamLog) -> None:
    *_, last = log.read_from()
    assert batches(log.read_from(last.batch + 1)) == []
    append(log, 10, last.link)
    assert batches(log.read_from(last.batch + 1)) == [10]


def test_forward_refuses_what_is_not_there_yet(log: StreamLog) -> None:
    with pytest.raises(MissingSegment, match="Batch 11"):
        list(log.read_from(8, 11))


def test_forward_refuses_to_begin_in_what_was_trimmed(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    fill(log, 6)
    log.trim(3)
    assert batches(log.read_from()) == [3, 4, 5]
    with pytest.raises(MissingSegment, match="Batch 2, which batch 3 follows"):
        list(log.read_from(1))


def test_backward_gives_every_segment_from_the_newest_down(log: StreamLog) -> None:
    assert batches(log.read_backward(9)) == list(range(9, -1, -1))
    assert batches(log.read_backward(4)) == [4, 3, 2, 1, 0]


def test_backward_ends_quietly_where_the_log_was_trimmed(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    fill(log, 6)
    log.trim(3)
    assert batches(log.read_backward(5)) == [5, 4, 3]


def test_backward_from_nowhere_names_what_is_missing(disk: SimulatedDisk) -> None:
    assert batches(open_log(disk.storage()).read_backward(2)) == [("MissingSegment", 2)]


def test_forward_stops_at_damage_and_backward_names_it_and_goes_on(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    fill(log, 6)
    disk.flip(segment_file(3), 100, 0)
    with pytest.raises(DamagedSegment, match="does not match"):
        list(log.read_from())
    assert batches(log.read_backward(5)) == [5, 4, ("DamagedSegment", 3), 2, 1, 0]


def test_a_gap_stops_forward_and_is_named_by_backward(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    fill(log, 6)
    disk.storage().delete(segment_file(2))
    with pytest.raises(MissingSegment, match="Batch 2"):
        list(log.read_from())
    assert batches(log.read_backward(5)) == [5, 4, 3, ("MissingSegment", 2), 1, 0]


def test_a_whole_segment_that_is_not_the_linked_one_counts_as_damaged(
    disk: SimulatedDisk,
) -> None:
    log = open_log(disk.storage())
    links = fill(log, 5)
    disk.storage().delete(segment_file(2))
    append(log, 2, links[1], count=9)
    with pytest.raises(DamagedSegment, match="follows batch 2"):
        list(log.read_from())
    found = list(log.read_backward(4))
    assert batches(found) == [4, 3, ("DamagedSegment", 2), 1, 0]
    assert isinstance(found[2], Unreadable)


def test_numbers_may_be_left_out_if_the_links_say_so(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    (link,) = fill(log, 1)
    link = append(log, 4, link).link
    append(log, 9, link)
    assert batches(log.read_from()) == [0, 4, 9]
    assert batches(log.read_from(2)) == [4, 9]
    assert batches(log.read_backward(9)) == [9, 4, 0]
    assert log.verify().is_whole


def test_a_link_to_nothing_is_noticed_from_both_sides(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    fill(log, 2)
    append(log, 2, SegmentLink(1, 12345))
    with pytest.raises(DamagedSegment, match="00003039"):
        list(log.read_from())
    assert batches(log.read_backward(2)) == [2, ("DamagedSegment", 1), 0]


def test_a_link_written_after_damage_is_to_whatever_has_that_batch(disk: SimulatedDisk) -> None:
    """So that a segment brought back from a backup fits again."""
    log = open_log(disk.storage())
    fill(log, 3)
    after = append(log, 3, SegmentLink(2, UNKNOWN_CHECKSUM))
    append(log, 4, after.link)
    assert batches(log.read_from()) == [0, 1, 2, 3, 4]
    assert batches(log.read_backward(4)) == [4, 3, 2, 1, 0]
    assert log.verify().is_whole
    assert not SegmentLink(1, UNKNOWN_CHECKSUM).names(SegmentLink(2, 7))
    assert not SegmentLink(2, 8).names(SegmentLink(2, 7))
