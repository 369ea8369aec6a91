"""Files that a trim has left, or a power failure has brought back: no part of the log."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress
from itertools import product

import pytest

from tests.support.harm import bring_back
from tests.support.logs import append, fill, open_log
from tests.support.trims import assert_holds, files_of, mark_file, pack_file, segment_file, trimmed
from trailmark.errors import BatchGoesBackward, MissingSegment
from trailmark.records import START_OF_LOG, Stream
from trailmark.testing.disk import Crashed, SimulatedDisk


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
    assert files_of(disk) == [mark_file(4)]
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
