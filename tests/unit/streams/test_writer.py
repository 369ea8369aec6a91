from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

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
from trailmark.errors import BatchGoesBackward, InputDiffers, MissingSegment, StorageError
from trailmark.log.readers import register
from trailmark.records import NO_BATCH, Stream
from trailmark.settings import DAY, HOUR
from trailmark.streams import writer as writer_module
from trailmark.streams.manifest import manifest_attributes, read_manifest
from trailmark.streams.retention import Retention, trim_before
from trailmark.streams.writer import StreamWriter, plan_writing
from trailmark.testing.disk import Crashed, SimulatedDisk

_NESTED = pa.struct([("x", pa.float64()), ("m", pa.map_(pa.string(), pa.int64()))])

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
    assert stream.add(orders(0), "query", 7) == NO_BATCH
    assert data_files(disk) == files, "what was written again is discarded"
    assert stream.add(orders(1), "query", 8) == 1
    assert stream.rows() == orders(0) + orders(1)


def test_a_repeated_batch_may_come_in_another_order_and_in_other_parts() -> None:
    schema = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string())), ("at", _NESTED)])
    rows = [(n, [str(n)] * (n % 3), {"x": n / 3, "m": [("k", n)]}) for n in range(20)]
    stream = written(schema=schema)
    writer = stream.writer()
    writer.commit(writer.write([batch_of(rows, schema)]), "query", 0)
    cut = [batch_of(rows[:7], schema), batch_of(rows[7:], schema)]
    parts = [file for part in reversed(cut) for file in writer.write([part.take(_backward(part))])]
    assert len(parts) == 2
    assert writer.commit(parts, "query", 0) == NO_BATCH
    assert len(stream.rows()) == 20


def _backward(rows: pa.RecordBatch) -> pa.Array:
    return pa.array(range(rows.num_rows - 1, -1, -1))


@pytest.mark.parametrize("others", [0, 3])
def test_a_batch_that_was_planned_anew_is_refused_and_nothing_of_it_stays(others: int) -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    stream.add(orders(0), "query", 7)
    for batch in range(others):
        stream.add(orders(batch))
    files = data_files(disk)
    changed = [*orders(0)[:-1], ("item 9", 1, 2)]
    for rows in (changed, orders(0)[:-1], [*orders(0), *orders(0)]):
        with pytest.raises(InputDiffers, match=f"3 then, {len(rows)} now"):
            stream.add(rows, "query", 7)
    with pytest.raises(InputDiffers, match="0 now"):
        stream.writer().commit([], "query", 7)
    assert data_files(disk) == files
    assert stream.add(orders(1), "query", 8) == others + 1


def test_a_query_whose_values_differ_every_time_keeps_what_came_first() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    stream.add(orders(0), "query", 7)
    files = data_files(disk)
    writer = StreamWriter(stream.storage, stream.meta, clock=stream.clock, compares_repeated=False)
    assert writer.commit(stream.write(orders(1)), "query", 7) == NO_BATCH
    assert data_files(disk) == files
    assert stream.rows() == orders(0)
    with pytest.raises(BatchGoesBackward):
        writer.commit(stream.write(orders(1)), "query", 6)


def test_a_query_that_has_gone_back_is_refused() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    stream.add(orders(0), "query", 7)
    files = data_files(disk)
    for number in (6, 0):
        with pytest.raises(BatchGoesBackward, match=f"Batch {number} of query query"):
            stream.add(orders(0), "query", number)
        with pytest.raises(BatchGoesBackward):
            stream.writer().commit([], "query", number)
    assert data_files(disk) == files


def _without_fingerprints(*given: Any) -> dict[str, Any]:
    attributes = manifest_attributes(*given)
    del attributes["digests"], attributes["fingerprints"]
    return attributes


@pytest.mark.parametrize("others", [0, 3])
def test_rows_are_counted_where_an_earlier_trailmark_has_kept_no_fingerprints(others: int) -> None:
    stream = written()
    with mock.patch.object(writer_module, "manifest_attributes", _without_fingerprints):
        stream.add(orders(0, 5))
        stream.add(orders(1, 3), "query", 4)
        for batch in range(others):
            stream.add(orders(batch, 5), "other", batch)
    assert stream.add(orders(1, 3), "query", 4) == NO_BATCH
    with pytest.raises(InputDiffers, match="3 then, 5 now"):
        stream.add(orders(1, 5), "query", 4)
    assert stream.add(orders(2, 3), "query", 5) == others + 2
    with pytest.raises(InputDiffers, match="3 then, 3 now"):
        stream.add(orders(1, 3), "query", 5)


def test_a_batch_without_fingerprint_that_was_trimmed_is_taken_for_the_same() -> None:
    stream = written(retention=Retention(batches=1))
    with mock.patch.object(writer_module, "manifest_attributes", _without_fingerprints):
        stream.add(orders(0), "query", 4)
        with often(trim=1):
            stream.add(orders(1))
    assert stream.add(orders(2, 9), "query", 4) == NO_BATCH


def test_queries_have_numbers_of_their_own_and_jobs_have_none() -> None:
    stream = written()
    assert stream.add(orders(0), "a", 3) == 0
    assert stream.add(orders(1), "b", 3) == 1
    assert stream.add(orders(2)) == 2
    assert stream.add(orders(2)) == 3
    assert stream.add(orders(0), "a", 3) == NO_BATCH
    assert stream.add(orders(1), "b", 3) == NO_BATCH
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


@pytest.mark.parametrize("behind_us", [-1000 * DAY, -3 * HOUR, 3 * HOUR, 1000 * DAY])
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


def test_discarding_reads_no_batch_from_before_the_writing_was_planned() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    for batch in range(5):
        stream.add(orders(batch))
    disk.flip("batches/00000/00000000000000000001.seg", 60, 1)
    files = stream.write(orders(9))
    planned = plan_writing(stream.storage, stream.meta)
    assert planned.after == 4
    StreamWriter(stream.storage, stream.meta, planned=planned).discard(files)
    assert len(data_files(disk)) == 5


def test_nothing_is_discarded_where_a_manifest_is_lost_that_may_name_it() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    files = stream.write(orders(0))
    stream.writer().commit(files)
    stream.add(orders(1))
    manifest = disk.content("batches/00000/00000000000000000000.seg")
    stream.storage.delete("batches/00000/00000000000000000000.seg")
    with pytest.raises(MissingSegment):
        stream.writer().discard(files)
    stream.storage.publish("batches/00000/00000000000000000000.seg", [manifest])
    assert stream.rows() == orders(0) + orders(1)


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


def test_a_stream_that_has_lost_its_newest_manifest_is_refused_and_not_tried_for_ever() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    for batch in range(3):
        stream.add(orders(batch))
    trim_before(stream.storage, stream.log(), 2)
    stream.storage.delete(stream.log().reader.segment_path(2))
    with pytest.raises(BatchGoesBackward, match="has been trimmed"):
        stream.add(orders(3))
