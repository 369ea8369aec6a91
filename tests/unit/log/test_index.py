from __future__ import annotations

import json

import pytest

from tests.support.logs import LOG_ID, OTHER_ID, SECOND, append, fill, open_log
from tests.support.reseal import guarded
from trailmark.log import StreamLog, TimeRange
from trailmark.records import NO_BATCH, START_OF_LOG, Fingerprint, SegmentLink
from trailmark.testing.disk import Crashed, SimulatedDisk

INDEX = "in/00003/index.json"


def segment_file(batch: int) -> str:
    return f"in/00003/{batch:020d}.seg"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def filled(disk: SimulatedDisk, batches: int = 6) -> StreamLog:
    """Batch n holds the event times from 10 n to 10 n + 9 seconds."""
    log = open_log(disk.storage())
    fill(log, batches)
    return log


def test_a_time_is_found_in_the_batch_that_holds_it(disk: SimulatedDisk) -> None:
    index = filled(disk).time_index()
    found = [index.find(seconds * SECOND) for seconds in (-5, 0, 9, 10, 25, 59)]
    assert found == [0, 0, 0, 1, 2, 5]
    assert index.find(60 * SECOND) == NO_BATCH


def test_late_data_is_never_passed_over(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    previous = START_OF_LOG
    ranges = [(0, 9), (50, 90), None, (5, 30), (60, 95)]
    for batch, times in enumerate(ranges):
        previous = log.append(
            batch,
            [],
            previous=previous,
            fingerprint=Fingerprint(0, 0),
            time_range=TimeRange(*times) if times else None,
        ).link
    index = log.time_index()
    for timestamp in range(-1, 100):
        first = index.find(timestamp)
        holders = [b for b, times in enumerate(ranges) if times and times[1] >= timestamp]
        assert first == min(holders, default=NO_BATCH)


def test_the_time_of_writing_is_found(disk: SimulatedDisk) -> None:
    log = filled(disk)
    written = [log.read_footer(batch)[0].written_us for batch in range(6)]
    index = log.time_index()
    assert [index.find_written(time) for time in written] == [0, 1, 2, 3, 4, 5]
    assert index.find_written(written[2] + 1) == 3
    assert index.find_written(written[5] + 1) == NO_BATCH


def test_an_empty_log_has_an_empty_index(disk: SimulatedDisk) -> None:
    assert open_log(disk.storage()).time_index().find(0) == NO_BATCH


def test_only_new_footers_are_read(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(disk)
    log.time_index()
    append(log, 6, log.read(5).link)
    reads: list[str] = []
    real = disk.read

    def read(path: str, offset: int, length: int | None) -> tuple[memoryview, int]:
        reads.append(path.removeprefix("/disk/"))
        return real(path, offset, length)

    monkeypatch.setattr(disk, "read", read)
    index = open_log(disk.storage()).time_index()
    assert reads == [INDEX, segment_file(6)]
    assert index.find(65 * SECOND) == 6


def test_merge_and_trim_are_reconciled(disk: SimulatedDisk) -> None:
    log = filled(disk)
    before = log.time_index()
    log.merge(3)
    assert log.time_index() == before
    log.trim(4)
    assert [entry.batch for entry in log.time_index().entries] == [4, 5]
    assert log.time_index().find(0) == 4


def test_an_index_that_is_missing_or_damaged_anywhere_is_rebuilt(disk: SimulatedDisk) -> None:
    log = filled(disk, 3)
    expected = log.time_index()
    content = disk.content(INDEX)
    for offset in range(len(content)):
        disk.flip(INDEX, offset, offset % 8)
        assert open_log(disk.storage()).time_index() == expected, f"byte {offset}"
        assert open_log(disk.storage()).time_index() == expected
        disk.storage().replace(INDEX, [content])
    for size in range(0, len(content), 7):
        disk.truncate(INDEX, size)
        assert open_log(disk.storage()).time_index() == expected
    disk.storage().delete(INDEX)
    assert open_log(disk.storage()).time_index() == expected
    assert disk.content(INDEX) == content


def test_an_index_of_another_log_is_not_believed(disk: SimulatedDisk) -> None:
    other = SimulatedDisk()
    times = {}
    for place, log_id, start in ((disk, LOG_ID, 10), (other, OTHER_ID, 50)):
        log = open_log(place.storage(), log_id=log_id)
        log.append(
            0,
            [],
            previous=START_OF_LOG,
            fingerprint=Fingerprint(0, 0),
            time_range=TimeRange(start, start + 9),
        )
        times[log_id] = log.time_index()
    assert len(disk.content(segment_file(0))) == len(other.content(segment_file(0)))
    disk.storage().replace(INDEX, [other.content(INDEX)])
    assert open_log(disk.storage()).time_index() == times[LOG_ID] != times[OTHER_ID]


def test_a_segment_that_takes_the_place_of_one_set_aside_is_read_anew(
    disk: SimulatedDisk,
) -> None:
    def appended(log: StreamLog, previous: SegmentLink, start: int) -> None:
        log.append(
            2,
            [],
            previous=previous,
            fingerprint=Fingerprint(0, 0),
            time_range=TimeRange(start * SECOND, start * SECOND),
        )

    for operations in range(40):
        disk = SimulatedDisk()
        log = filled(disk, 2)
        previous = log.read(1).link
        appended(log, previous, 50)
        log.time_index()
        disk.stop_after(operations)
        try:
            log.set_aside_after(1)
        except Crashed:
            disk.kill()
        disk.relax()
        log = open_log(disk.storage())
        if not log.contains(2):
            appended(log, previous, 90)
            assert log.time_index().find(60 * SECOND) == 2, f"after {operations} operations"


def test_a_file_of_another_size_is_read_anew(disk: SimulatedDisk) -> None:
    log = filled(disk, 3)
    log.time_index()
    disk.storage().delete(segment_file(2))
    log.append(
        2,
        [],
        previous=log.read(1).link,
        fingerprint=Fingerprint(0, 0),
        time_range=TimeRange(90 * SECOND, 90 * SECOND),
    )
    assert log.time_index().find(60 * SECOND) == 2


def test_a_batch_with_a_damaged_footer_may_hold_any_time(disk: SimulatedDisk) -> None:
    log = filled(disk)
    disk.flip(segment_file(2), len(disk.content(segment_file(2))) - 40, 0)
    index = log.time_index()
    assert index.unreadable == {2}
    assert index.find(5 * SECOND) == 0
    assert index.find(45 * SECOND) == 2
    disk.flip(segment_file(2), len(disk.content(segment_file(2))) - 40, 0)
    assert log.time_index().find(45 * SECOND) == 4


@pytest.mark.parametrize(("version", "is_used"), [(1, True), (2, True), (3, False)])
def test_an_index_of_a_known_version_is_used_and_any_other_is_built_again(
    disk: SimulatedDisk, version: int, is_used: bool
) -> None:
    log = filled(disk)
    right = log.time_index()
    body = json.loads(disk.content(INDEX))["body"]
    body["log"]["version"] = version
    disk.storage().replace(INDEX, [guarded(body)])
    before = disk.content(INDEX)
    assert log.time_index() == right
    assert (disk.content(INDEX) == before) == is_used
