from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.disk import Crashed, SimulatedDisk
from tests.support.meddling import Meddled
from tests.support.streams import (
    SetClock,
    Written,
    batch_of,
    data_files,
    often,
    orders,
    rows_by_batch,
    written,
)
from trailmark.errors import StorageError
from trailmark.log.readers import register
from trailmark.records import NO_BATCH, Stream
from trailmark.settings import HOUR
from trailmark.streams import writer as writer_module
from trailmark.streams.manifest import read_manifest
from trailmark.streams.retention import Retention
from trailmark.streams.writer import StreamWriter

# Batches


def test_batches_are_numbered_in_the_order_of_their_commits() -> None:
    stream = written()
    assert [stream.add(orders(batch)) for batch in range(4)] == [0, 1, 2, 3]
    assert rows_by_batch(stream.storage) == {batch: orders(batch) for batch in range(4)}


def test_what_is_written_is_part_of_nothing_before_it_is_committed() -> None:
    stream = written()
    files = stream.write(orders(0))
    assert stream.rows() == []
    assert stream.writer().commit(files) == 0
    assert stream.rows() == orders(0)


def test_the_files_of_several_tasks_are_one_batch() -> None:
    stream = written()
    files = [file for task in range(3) for file in stream.write(orders(task))]
    assert stream.writer().commit(files) == 0
    assert rows_by_batch(stream.storage) == {0: [row for task in range(3) for row in orders(task)]}


@pytest.mark.parametrize("batches", [[], [[]], [[], []]])
def test_a_batch_without_rows_is_none(batches: list[list[Any]]) -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    files = stream.writer().write(batch_of(rows) for rows in batches)
    assert files == []
    assert stream.writer().commit(files, "query", 0) == NO_BATCH
    assert disk.files() == ["meta.json"]


def test_empty_parts_of_a_task_are_left_out() -> None:
    stream = written()
    parts = [batch_of(orders(0)), batch_of([]), batch_of(orders(1))]
    (file,) = stream.writer().write(parts)
    assert file.rows == 6
    stream.writer().commit([file])
    assert stream.rows() == orders(0) + orders(1)


def test_more_rows_than_fit_a_file_are_put_into_several(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written()
    size = batch_of(orders(0)).nbytes
    monkeypatch.setattr(writer_module, "_FILE_BYTES", 2 * size)
    files = stream.writer().write(batch_of(orders(batch)) for batch in range(5))
    assert [file.rows for file in files] == [6, 6, 3]
    stream.writer().commit(files)
    assert rows_by_batch(stream.storage) == {0: [row for b in range(5) for row in orders(b)]}


def test_the_rows_of_a_task_are_held_only_until_a_file_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    monkeypatch.setattr(writer_module, "_FILE_BYTES", 1)
    seen = []

    def parts() -> Any:
        for batch in range(3):
            seen.append(len(data_files(disk)))
            yield batch_of(orders(batch))

    stream.writer().write(parts())
    assert seen == [0, 1, 2]


def test_a_batch_says_how_much_there_was_up_to_it() -> None:
    stream = written()
    sizes = []
    for batch in range(3):
        files = stream.write(orders(batch, 2 + batch))
        sizes.append(sum(file.bytes for file in files))
        stream.writer().commit(files)
    found = [read_manifest(stream.log(), batch) for batch in range(3)]
    assert [each.total_rows for each in found] == [2, 5, 9]
    assert [each.total_bytes for each in found] == [sizes[0], sum(sizes[:2]), sum(sizes)]


# Queries that repeat a batch


def test_a_batch_that_a_query_commits_again_is_taken_once() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    assert stream.add(orders(0), "query", 7) == 0
    files = data_files(disk)
    for number in (7, 6, 0):
        assert stream.add(orders(1), "query", number) == NO_BATCH
    assert data_files(disk) == files, "what was written again is discarded"
    assert stream.add(orders(1), "query", 8) == 1
    assert stream.rows() == orders(0) + orders(1)


def test_queries_have_numbers_of_their_own_and_jobs_have_none() -> None:
    stream = written()
    assert stream.add(orders(0), "a", 3) == 0
    assert stream.add(orders(1), "b", 3) == 1
    assert stream.add(orders(2)) == 2
    assert stream.add(orders(2)) == 3
    assert stream.add(orders(9), "a", 3) == NO_BATCH
    assert stream.add(orders(9), "b", 3) == NO_BATCH
    assert read_manifest(stream.log(), 3).writers == {"a": 3, "b": 3}


def test_a_query_is_remembered_when_its_own_batches_are_trimmed() -> None:
    stream = written(retention=Retention(batches=1))
    with often(trim=1):
        stream.add(orders(0), "query", 0)
        for batch in range(1, 4):
            stream.add(orders(batch))
        assert list(rows_by_batch(stream.storage)) == [3]
        assert stream.add(orders(0), "query", 0) == NO_BATCH


def test_a_batch_found_committed_lasts_before_its_repetition_is_thrown_away() -> None:
    """Its writer may have been killed between the link and the sync of the directory."""
    kept = {0: orders(0), 1: orders(1)}
    stopped = 0
    for stop in range(40):
        disk = SimulatedDisk()
        stream = written(disk.storage())
        stream.add(orders(0), "query", 0)
        files = stream.write(orders(1))
        disk.stop_after(stop)
        try:
            stream.writer().commit(files, "query", 1)
        except Crashed:
            stopped += 1
        disk.kill()
        again = Written(disk.storage(), stream.meta, stream.clock)
        again.add(orders(1), "query", 1)
        for seed in range(8):
            survivor = disk.copy()
            survivor.crash(random.Random(seed))
            assert rows_by_batch(survivor.storage()) == kept, f"operation {stop}, seed {seed}"
    assert 4 < stopped < 40


# Several writers


def _meddled(disk: SimulatedDisk, meta: Any, clock: SetClock, at: int, meddle: Any) -> StreamWriter:
    return StreamWriter(Meddled(disk, at, meddle), meta, clock=clock)


def test_whoever_finds_the_place_taken_takes_the_next_one() -> None:
    for at in range(6):
        disk = SimulatedDisk()
        stream = written(disk.storage())
        stream.add(orders(0))
        files = stream.write(orders(1))

        def meddle(stream: Written = stream) -> None:
            stream.add(orders(2))
            stream.add(orders(3))

        slow = _meddled(disk, stream.meta, stream.clock, at, meddle)
        place = slow.commit(files)
        found = rows_by_batch(disk.storage())
        assert found.pop(place) == orders(1)
        assert orders(0) in found.values()
        assert len(found) in (1, 3)
        assert stream.log().verify().is_whole


def test_a_query_that_runs_twice_at_once_commits_a_batch_once() -> None:
    for at in range(6):
        disk = SimulatedDisk()
        stream = written(disk.storage())
        stream.add(orders(0), "query", 0)
        files = stream.write(orders(1))

        def meddle(stream: Written = stream) -> None:
            stream.add(orders(1), "query", 1)
            stream.add(orders(2), "other", 0)

        slow = _meddled(disk, stream.meta, stream.clock, at, meddle)
        slow.commit(files, "query", 1)
        stream.add(orders(1), "query", 1)
        found = rows_by_batch(disk.storage())
        assert list(found.values()).count(orders(1)) == 1
        assert len(data_files(disk)) == len(found)


def test_a_writer_whose_place_was_trimmed_away_meanwhile_takes_the_next_one() -> None:
    places = set()
    for at in range(8):
        disk = SimulatedDisk()
        stream = written(disk.storage(), retention=Retention(batches=1))
        stream.add(orders(0))
        files = stream.write(orders(1))

        def meddle(stream: Written = stream) -> None:
            with often(trim=1):
                for batch in range(2, 6):
                    stream.add(orders(batch))

        slow = _meddled(disk, stream.meta, stream.clock, at, meddle)
        place = slow.commit(files)
        places.add(place)
        assert rows_by_batch(disk.storage())[place] == orders(1)
        assert stream.log().verify().is_whole
    assert places >= {1, 5}


# Discarding


def test_discarded_files_are_gone() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    stream.add(orders(0))
    files = stream.write(orders(1))
    stream.writer().discard(files)
    assert len(data_files(disk)) == 1
    stream.writer().discard([])
    assert stream.rows() == orders(0)


def test_files_of_a_batch_are_not_discarded_however_many_batches_followed() -> None:
    stream = written()
    files = stream.write(orders(0))
    stream.writer().commit(files)
    for batch in range(1, 10):
        stream.add(orders(batch))
    stream.log().merge(5)
    stream.writer().discard(files)
    assert stream.rows() == [row for batch in range(10) for row in orders(batch)]


@pytest.mark.parametrize("behind_us", [-HOUR, -HOUR // 2, HOUR // 2, HOUR])
def test_files_of_a_batch_are_not_discarded_where_clocks_differ(behind_us: int) -> None:
    stream = written()
    files = stream.write(orders(0))
    stream.clock.now_us -= behind_us
    stream.writer().commit(files)
    for batch in range(1, 4):
        stream.writer().commit(stream.write(orders(batch)))
    stream.clock.now_us += behind_us
    stream.writer().discard(files)
    assert len(stream.rows()) == 12


def test_discarding_reads_no_batch_that_is_older_than_the_files() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    for batch in range(5):
        stream.add(orders(batch))
    disk.flip("batches/00000/00000000000000000001.seg", 60, 1)
    stream.clock.now_us += 2 * HOUR
    stream.writer().discard(stream.write(orders(9)))
    assert len(data_files(disk)) == 5


def test_discarding_while_others_trim_removes_the_files() -> None:
    for at in range(6):
        disk = SimulatedDisk()
        stream = written(disk.storage(), retention=Retention(batches=2))
        for batch in range(5):
            stream.add(orders(batch))
        files = stream.write(orders(9))

        def meddle(stream: Written = stream) -> None:
            with often(trim=1):
                stream.add(orders(5))

        _meddled(disk, stream.meta, stream.clock, at, meddle).discard(files)
        assert not any(file.path in disk.files() for file in files)
        kept = rows_by_batch(disk.storage())
        assert len(data_files(disk)) == len(kept) in (2, 5)


# Keeping up


def test_manifests_are_merged_and_the_newest_stay_files_of_their_own() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    with often(trim=2, merge=8, unmerged=3):
        for batch in range(16):
            stream.add(orders(batch))
    names = [path for path in disk.files() if path.startswith("batches/")]
    assert [name[-8:].lstrip("0") for name in names] == [
        "4.pack",
        "12.pack",
        "13.seg",
        "14.seg",
        "15.seg",
    ]
    assert rows_by_batch(disk.storage()) == {batch: orders(batch) for batch in range(16)}


def test_old_batches_are_trimmed_every_so_many_commits() -> None:
    stream = written(retention=Retention(batches=3))
    with often(trim=4, merge=1000):
        oldest = []
        for batch in range(12):
            stream.add(orders(batch))
            oldest.append(min(rows_by_batch(stream.storage)))
    assert oldest == [0, 0, 0, 1, 1, 1, 1, 5, 5, 5, 5, 9]


def _damage_a_reader(disk: SimulatedDisk) -> None:
    disk.overwrite("readers/billing.json", b"{}")


def _fail_a_deletion(disk: SimulatedDisk) -> None:
    disk.fail_on(60, 5)


@pytest.mark.parametrize("harm", [_damage_a_reader, _fail_a_deletion])
def test_a_batch_is_committed_though_tending_the_stream_fails(
    harm: Callable[[SimulatedDisk], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A job that is told that its commit failed is run again, and its rows were there twice."""
    disk = SimulatedDisk()
    stream = written(disk.storage(), retention=Retention(batches=1))
    register(stream.storage, "billing", Stream.BATCHES, 100)
    with often(trim=12):
        for batch in range(11):
            stream.add(orders(batch))
        harm(disk)
        assert stream.add(orders(11)) == 11
    assert "trailmark" in [record.name for record in caplog.records]
    assert rows_by_batch(disk.storage())[11] == orders(11)


def test_a_commit_that_fails_before_it_is_published_fails() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    files = stream.write(orders(0))
    disk.fail_on(4, 5)
    with pytest.raises(StorageError):
        stream.writer().commit(files)
    disk.relax()
    assert stream.rows() == []
