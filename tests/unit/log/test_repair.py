from __future__ import annotations

import random

import pytest

from tests.support.logs import OTHER_ID, append, fill, open_log, rows_of
from trailmark.log import StreamLog
from trailmark.log.repair import RepairReport
from trailmark.records import FrameKind, SegmentLink
from trailmark.testing.disk import Crashed, SimulatedDisk


def segment_file(batch: int) -> str:
    return f"in/00003/{batch:020d}.seg"


def pack_file(first: int, last: int) -> str:
    return f"in/00003/{first:020d}-{last:020d}.pack"


INDEX = "in/00003/index.json"


def filled(batches: int = 6) -> tuple[SimulatedDisk, StreamLog, list[SegmentLink]]:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    links = fill(log, batches)
    log.time_index()
    return disk, log, links


def sizes(disk: SimulatedDisk, batches: int) -> int:
    """Bytes of a pack's header and its first segments, before they are merged."""
    return 16 + sum(len(disk.content(segment_file(batch))) for batch in range(batches))


def deeds(report: RepairReport) -> list[tuple[str, str]]:
    assert all(action.why for action in report.actions)
    return [(action.deed, action.path) for action in report.actions]


def test_a_whole_log_is_left_alone() -> None:
    disk, log, _ = filled()
    before = {path: disk.content(path) for path in disk.files()}
    report = log.repair()
    assert deeds(report) == []
    assert report.is_whole
    assert {path: disk.content(path) for path in disk.files()} == before


def test_temporaries_of_dead_writers_are_removed() -> None:
    disk, log, links = filled(2)
    disk.stop_after(3)
    with pytest.raises(Crashed):
        append(log, 2, links[1])
    disk.kill()
    (temporary,) = (path for path in disk.files() if path.endswith(".tmp"))
    report = open_log(disk.storage()).repair()
    assert deeds(report) == [("removed", temporary)]
    assert report.is_whole
    assert disk.files() == [segment_file(0), segment_file(1), INDEX]


def test_a_torn_tail_is_set_aside_with_its_bytes_and_everything_before_is_kept() -> None:
    disk, log, links = filled()
    disk.truncate(segment_file(5), 300)
    disk.truncate(segment_file(4), 0)
    torn = disk.content(segment_file(5))
    report = log.repair()
    assert sorted(deeds(report)) == [
        ("rebuilt", INDEX),
        ("set aside", segment_file(4)),
        ("set aside", segment_file(5)),
    ]
    assert report.is_whole
    assert log.batches() == [0, 1, 2, 3]
    assert disk.content(f"aside/{segment_file(5)}") == torn
    (moved,) = (a.moved_to for a in report.actions if a.path == segment_file(5))
    assert moved == f"aside/{segment_file(5)}"
    assert append(log, 4, links[3]).created


def test_damage_with_something_whole_behind_it_is_reported_not_touched() -> None:
    disk, log, _ = filled()
    disk.flip(segment_file(2), 100, 0)
    before = {path: disk.content(path) for path in disk.files()}
    report = log.repair()
    assert not [action for action in report.actions if action.deed == "set aside"]
    assert [(p.trouble, p.batch) for p in report.problems] == [("damaged", 2)]
    after = {path: disk.content(path) for path in disk.files()}
    assert after.keys() == before.keys()
    assert {p: c for p, c in after.items() if p != INDEX} == {
        p: c for p, c in before.items() if p != INDEX
    }


def test_only_the_tail_of_scattered_damage_is_set_aside() -> None:
    disk, log, _ = filled()
    for batch in (1, 4, 5):
        disk.flip(segment_file(batch), 100, 0)
    report = log.repair()
    set_aside = [action.path for action in report.actions if action.deed == "set aside"]
    assert sorted(set_aside) == [segment_file(4), segment_file(5)]
    assert [(p.trouble, p.batch) for p in report.problems] == [("damaged", 1)]


def test_a_tail_of_another_log_is_reported_not_touched() -> None:
    disk, log, links = filled(3)
    append(open_log(disk.storage(), log_id=OTHER_ID), 3, links[2])
    report = log.repair()
    assert [(p.trouble, p.batch) for p in report.problems] == [("foreign", 3)]
    assert segment_file(3) in disk.files()


def test_originals_that_a_whole_pack_holds_are_removed() -> None:
    disk, log, links = filled()
    originals = {batch: disk.content(segment_file(batch)) for batch in range(5)}
    log.merge(4)
    for batch, content in originals.items():
        disk.storage().publish(segment_file(batch), [content])
    disk.flip(segment_file(3), 90, 0)
    report = open_log(disk.storage()).repair()
    assert [deed for deed in deeds(report) if deed[0] == "removed"] == [
        ("removed", segment_file(batch)) for batch in range(5)
    ]
    assert report.is_whole
    assert [segment.link for segment in log.read_from()] == links


def test_originals_stay_when_the_pack_is_damaged_and_the_pack_is_taken_apart() -> None:
    disk, log, links = filled()
    originals = {batch: disk.content(segment_file(batch)) for batch in range(5)}
    log.merge(4)
    for batch, content in originals.items():
        disk.storage().publish(segment_file(batch), [content])
    disk.flip(pack_file(0, 4), len(disk.content(pack_file(0, 4))) - 5, 0)
    report = open_log(disk.storage()).repair()
    assert ("set aside", pack_file(0, 4)) in deeds(report)
    assert report.is_whole
    assert [segment.link for segment in log.read_from()] == links


@pytest.mark.parametrize("place", [2, -100, -20, -3])
def test_every_whole_segment_of_a_pack_with_damaged_ends_comes_back(place: int) -> None:
    disk, log, links = filled()
    log.merge(4)
    size = len(disk.content(pack_file(0, 4)))
    disk.flip(pack_file(0, 4), place % size, 0)
    report = open_log(disk.storage()).repair()
    again = [("published again", segment_file(batch)) for batch in reversed(range(5))]
    assert deeds(report)[:6] == [*again, ("set aside", pack_file(0, 4))]
    assert report.is_whole
    reopened = open_log(disk.storage())
    assert [segment.link for segment in reopened.read_from()] == links
    assert reopened.read(2).table(FrameKind.INPUT) == rows_of(2)


def test_a_torn_pack_at_the_newest_end_gives_back_what_is_whole() -> None:
    disk, log, links = filled()
    start = sizes(disk, 3)
    log.merge(5)
    disk.truncate(pack_file(0, 5), start + 50)
    report = open_log(disk.storage()).repair()
    assert report.is_whole
    reopened = open_log(disk.storage())
    assert [segment.link for segment in reopened.read_from()] == links[:3]
    assert ("set aside", pack_file(0, 5)) in deeds(report)


def test_a_damaged_last_segment_of_the_newest_pack_is_a_torn_tail() -> None:
    disk, log, links = filled()
    start = sizes(disk, 5)
    log.merge(5)
    disk.flip(pack_file(0, 5), start + 100, 0)
    report = open_log(disk.storage()).repair()
    assert report.is_whole
    reopened = open_log(disk.storage())
    assert [segment.link for segment in reopened.read_from()] == links[:5]


def test_damage_in_the_middle_of_a_pack_is_reported_not_touched() -> None:
    disk, log, _ = filled()
    start = sizes(disk, 2)
    log.merge(4)
    disk.flip(pack_file(0, 4), start + 100, 0)
    report = open_log(disk.storage()).repair()
    assert [(p.trouble, p.batch) for p in report.problems] == [("damaged", 2)]
    assert pack_file(0, 4) in disk.files()
    assert not [action for action in report.actions if action.deed != "rebuilt"]


def test_a_late_comer_beside_a_pack_is_set_aside() -> None:
    disk, log, links = filled()
    log.merge(4)
    elsewhere = SimulatedDisk()
    append(open_log(elsewhere.storage()), 2, links[1], count=9)
    disk.storage().publish(segment_file(2), [elsewhere.content(segment_file(2))])
    report = open_log(disk.storage()).repair()
    assert ("set aside", segment_file(2)) in deeds(report)
    assert report.is_whole
    assert [segment.link for segment in log.read_from()] == links


def test_a_wrong_index_is_rebuilt() -> None:
    disk, log, _ = filled()
    disk.truncate(INDEX, 10)
    assert deeds(log.repair()) == [("rebuilt", INDEX)]
    assert deeds(log.repair()) == []


def test_repair_can_itself_be_interrupted_anywhere_and_repeated() -> None:
    finished = False
    for operations in range(200):
        disk, log, links = filled()
        start = sizes(disk, 3)
        log.merge(4)
        disk.truncate(pack_file(0, 4), start + 50)
        disk.truncate(segment_file(5), 70)
        disk.stop_after(operations)
        try:
            open_log(disk.storage()).repair()
            finished = True
        except Crashed:
            disk.crash(random.Random(operations))
        disk.relax()
        assert open_log(disk.storage()).repair().is_whole
        reopened = open_log(disk.storage())
        assert [segment.link for segment in reopened.read_from()] == links[:3]
        assert any(path.startswith("aside/in/00003/") for path in disk.files())
        if finished:
            break
    assert finished


def test_everything_after_a_batch_can_be_set_aside() -> None:
    disk, log, links = filled(8)
    log.merge(5)
    report = log.set_aside_after(3)
    assert ("set aside", segment_file(7)) in deeds(report)
    assert ("set aside", pack_file(0, 5)) in deeds(report)
    assert report.is_whole
    assert [segment.link for segment in log.read_from()] == links[:4]
    assert append(log, 4, links[3], count=1).created
    assert log.verify().is_whole
    assert disk.files()[:2] == [f"aside/{pack_file(0, 5)}", f"aside/{segment_file(6)}"]
