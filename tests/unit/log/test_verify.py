from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.logs import OTHER_ID, append, fill, open_log
from trailmark.log import LocalStorage, StreamLog
from trailmark.records import START_OF_LOG, SegmentLink, Stream
from trailmark.testing.disk import ROOT, SimulatedDisk


def segment_file(batch: int) -> str:
    return f"in/00003/{batch:020d}.seg"


def filled(batches: int = 6) -> tuple[SimulatedDisk, StreamLog, list[SegmentLink]]:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    return disk, log, fill(log, batches)


def test_a_whole_log_has_no_problems() -> None:
    disk, log, _ = filled()
    log.merge(3)
    report = log.verify()
    assert report.is_whole
    assert report.batches == 6
    assert report.bytes == sum(len(disk.content(path)) for path in disk.files())


def test_an_empty_log_is_whole() -> None:
    assert open_log(SimulatedDisk().storage()).verify().is_whole


def test_damage_is_reported_with_batch_file_and_byte() -> None:
    disk, log, _ = filled()
    disk.flip(segment_file(2), 50, 0)
    disk.truncate(segment_file(4), 60)
    damaged, cut = log.verify().problems
    assert (damaged.trouble, damaged.batch, damaged.path) == ("damaged", 2, segment_file(2))
    assert "does not match" in damaged.what
    assert "byte 48" in damaged.what
    assert (cut.trouble, cut.batch) == ("damaged", 4)
    assert "cut short" in cut.what


def test_damage_inside_a_pack_is_reported_for_its_batch_alone() -> None:
    disk, log, _ = filled()
    start = 16 + sum(len(disk.content(segment_file(batch))) for batch in range(2))
    log.merge(4)
    (pack,) = (path for path in disk.files() if path.endswith(".pack"))
    disk.flip(pack, start + 60, 0)
    (problem,) = log.verify().problems
    assert (problem.trouble, problem.batch, problem.path) == ("damaged", 2, pack)
    assert f"byte {start + 48}" in problem.what


def test_damage_that_came_after_the_pack_was_read_is_found_too() -> None:
    disk, log, _ = filled()
    log.merge(4)
    assert log.read(2).batch == 2
    (pack,) = (path for path in disk.files() if path.endswith(".pack"))
    disk.flip(pack, len(disk.content(pack)) - 30, 0)
    assert not log.verify().is_whole


def test_a_gap_is_reported() -> None:
    disk, log, _ = filled()
    disk.storage().delete(segment_file(2))
    (problem,) = log.verify().problems
    assert (problem.trouble, problem.batch) == ("missing", 2)


def test_a_trimmed_log_is_whole() -> None:
    _, log, _ = filled()
    log.trim(3)
    assert log.verify().is_whole


def test_a_segment_that_follows_another_one_is_reported() -> None:
    disk, log, links = filled(3)
    disk.storage().delete(segment_file(1))
    append(log, 1, links[0], count=7)
    (problem,) = log.verify().problems
    assert (problem.trouble, problem.batch) == ("unlinked", 2)


def test_a_segment_of_another_log_is_reported_as_foreign() -> None:
    disk, log, links = filled(3)
    append(open_log(disk.storage(), log_id=OTHER_ID), 3, links[2])
    (problem,) = log.verify().problems
    assert (problem.trouble, problem.batch) == ("foreign", 3)
    assert "log_id" in problem.what


def test_two_different_segments_of_one_batch_are_reported() -> None:
    disk, log, _ = filled()
    log.merge(4)
    elsewhere = SimulatedDisk()
    fill(open_log(elsewhere.storage()), 2)
    other = append(open_log(elsewhere.storage()), 2, SegmentLink(1, 77), count=9)
    disk.storage().publish(segment_file(2), [elsewhere.content(segment_file(2))])
    (problem,) = log.verify().problems
    assert other.created
    assert (problem.trouble, problem.batch) == ("ambiguous", 2)


class _Meanwhile(LocalStorage):
    """Somebody does something to the log while its third segment is about to be read."""

    does: Callable[[], object]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        if path.endswith("2.seg") and "does" in vars(self):
            vars(self).pop("does")()
        return super().read(path, offset, length)


@pytest.mark.parametrize("damaged", [None, 0, 7])
@pytest.mark.parametrize("what", ["trim", "merge"])
def test_what_is_trimmed_or_merged_meanwhile_is_not_missed(what: str, damaged: int | None) -> None:
    disk = SimulatedDisk()
    fill(open_log(disk.storage()), 10)
    if damaged is not None:
        disk.flip(f"in/00003/{damaged:020d}.seg", 100, 3)
    storage = _Meanwhile(ROOT, file_system=disk)
    other = open_log(disk.storage())
    storage.does = lambda: other.trim(5) if what == "trim" else other.merge(6)
    report = open_log(storage).verify()
    gone = what == "trim" and damaged == 0
    expected = [] if damaged is None or gone else [("damaged", damaged)]
    assert [(p.trouble, p.batch) for p in report.problems] == expected
    assert report.batches == (5 if what == "trim" else 10)
    assert {copy.batch for copy in report.copies} == set(range(5 if what == "trim" else 0, 10))


@pytest.mark.parametrize("lost", [[0], [0, 1, 2]])
def test_the_oldest_batch_of_a_log_without_a_mark_has_to_be_the_first(lost: list[int]) -> None:
    disk, log, _ = filled()
    for batch in lost:
        disk.storage().delete(segment_file(batch))
    (problem,) = log.verify().problems
    assert (problem.trouble, problem.batch) == ("missing", lost[-1])


def test_a_batch_is_missing_where_the_mark_says_that_the_log_begins() -> None:
    disk, log, _ = filled()
    log.trim(2)
    disk.storage().delete(segment_file(2))
    (problem,) = log.verify().problems
    assert (problem.trouble, problem.batch) == ("missing", 2)


@pytest.mark.parametrize("lost", [0, 2])
def test_a_lost_batch_that_is_trimmed_is_not_missed_any_more(lost: int) -> None:
    disk, log, _ = filled()
    disk.storage().delete(segment_file(lost))
    assert not log.verify().is_whole
    log.trim(lost + 1)
    assert log.verify().is_whole
    assert (log.start(), log.oldest()) == (lost + 1, lost + 1)


def test_snapshots_are_no_chain_and_none_of_them_is_missed() -> None:
    disk = SimulatedDisk()
    log = open_log(disk.storage(), stream=Stream.SNAPSHOT)
    for batch in (4, 8):
        append(log, batch, START_OF_LOG)
    assert log.verify().is_whole
