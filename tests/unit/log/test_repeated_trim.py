"""Trimming a log over and over without listing it."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import product

import pytest

from tests.support.logs import append, fill, open_log
from tests.support.trims import assert_holds, files_of, mark_file, segment_file
from trailmark.log import LocalStorage, RepeatedTrim, StreamLog
from trailmark.log.storage.protocol import Entry
from trailmark.records import SegmentLink
from trailmark.settings import Durability
from trailmark.testing.disk import Crashed, SimulatedDisk


class _CountsListings(LocalStorage):
    listings = 0

    def list(self, directory: str) -> list[Entry]:
        self.listings += 1
        return super().list(directory)


def _counting(batches: int) -> tuple[SimulatedDisk, _CountsListings, StreamLog, list[SegmentLink]]:
    disk = SimulatedDisk()
    storage = _CountsListings("/disk", file_system=disk)
    log = open_log(storage)
    return disk, storage, log, fill(log, batches)


def test_it_lists_the_first_time_only() -> None:
    disk, storage, log, links = _counting(12)
    repeated = RepeatedTrim(log.reader)
    repeated.trim(3, most=9)
    listings = storage.listings
    assert listings > 0
    repeated.trim(5, most=9)
    repeated.trim(5, most=9)
    repeated.trim(4, most=9)
    assert storage.listings == listings
    assert files_of(disk) == [*map(segment_file, range(5, 12)), mark_file(5)]
    assert_holds(disk, links, 5)


def test_where_nothing_may_go_it_lists_once_in_a_while() -> None:
    disk, storage, log, links = _counting(4)
    repeated, listings = RepeatedTrim(log.reader), storage.listings
    for _ in range(17):
        repeated.trim(0, most=9)
    assert storage.listings == listings + 2  # one look at a directory lists it twice
    repeated.trim(0, most=9)
    assert storage.listings == listings + 4
    assert_holds(disk, links, 0)


def test_more_than_it_may_remove_at_once_goes_bit_by_bit() -> None:
    disk, _, log, links = _counting(12)
    repeated = RepeatedTrim(log.reader)
    for oldest in (3, 6, 9, 11):
        repeated.trim(11, most=3)
        assert files_of(disk) == [*map(segment_file, range(oldest, 12)), mark_file(oldest)]
        assert_holds(disk, links, oldest)
    assert files_of(disk) == [segment_file(11), mark_file(11)]


def test_packs_and_left_overs_go_when_it_lists_again() -> None:
    disk, _, log, links = _counting(40)
    repeated = RepeatedTrim(log.reader)
    repeated.trim(1, most=9)
    open_log(disk.storage()).merge(6)  # somebody else's
    repeated.trim(9, most=9)
    assert_holds(disk, links, 9)
    assert any(path.endswith(".pack") for path in files_of(disk))
    for before in range(10, 28):
        repeated.trim(before, most=9)
        assert_holds(disk, links, before)
    assert files_of(disk) == [*map(segment_file, range(27, 40)), mark_file(27)]


def test_a_segment_that_somebody_else_has_removed_is_not_missed() -> None:
    disk, _, log, links = _counting(9)
    repeated = RepeatedTrim(log.reader)
    repeated.trim(2, most=9)
    open_log(disk.storage()).trim(6)
    repeated.trim(7, most=9)
    assert_holds(disk, links, 7)


@pytest.mark.parametrize("durability", list(Durability))
def test_a_power_failure_at_any_operation_leaves_a_log_without_a_hole(
    durability: Durability,
) -> None:
    left_over = 0
    for operations, variant in product(range(16), range(6)):
        disk = SimulatedDisk()
        log = open_log(disk.storage(durability))
        links = fill(log, 12)
        for link in links:
            log.settle(link.batch)
        repeated = RepeatedTrim(log.reader)
        repeated.trim(3, most=9)
        disk.stop_after(operations)
        is_done = False
        with suppress(Crashed):
            repeated.trim(9, most=9)
            is_done = True
        disk.crash(random.Random(f"{operations}/{variant}"))
        found = open_log(disk.storage()).oldest()
        assert found in ((9,) if is_done else (3, 9))
        left_over += bool(open_log(disk.storage()).reader.look().left_over)
        assert_holds(disk, links, found)
        log = open_log(disk.storage())
        links = [*links, append(log, 12, links[11]).link]
        log.trim(10)
        assert_holds(disk, links, 10)
    assert left_over > 20, "the simulation brings files back"
