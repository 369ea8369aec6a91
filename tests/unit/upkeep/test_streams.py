"""Upkeep of a written stream by hand, beside whoever writes it."""

from __future__ import annotations

import pytest

from tests.support.stored import SECOND, Stored, rows_of, table_of
from trailmark.log.names import mark_name
from trailmark.settings import DAY, HOUR
from trailmark.streams.manifest import read_manifest
from trailmark.streams.retention import LEFT_OVER_AFTER_US
from trailmark.streams.verify import verify_stream
from trailmark.streams.writer import UNMERGED, StreamWriter, plan_writing
from trailmark.testing.disk import SimulatedDisk
from trailmark.upkeep.streams import TrimByHand, merge_manifests, trim_by_hand


def _stream(batches: int) -> tuple[SimulatedDisk, Stored]:
    disk = SimulatedDisk()
    stream = Stored(disk.storage(), buckets=1)
    stream.run(batches)
    return disk, stream


def _trim(stream: Stored, before: int, *, dry_run: bool = False) -> TrimByHand:
    return trim_by_hand(stream.files, before, dry_run=dry_run, clock=lambda: stream.now_us)


def test_left_over_files_go_after_a_week_and_not_before() -> None:
    disk, stream = _stream(3)
    (killed,) = stream.task(rows_of(8))
    stream.now_us += LEFT_OVER_AFTER_US - 10 * SECOND
    stream.run(1)
    assert _trim(stream, 0).left_over.files == ()
    stream.run(1)
    told = _trim(stream, 0, dry_run=True).left_over
    assert killed.path in disk.files()
    assert told == _trim(stream, 0).left_over
    assert (told.files, told.bytes) == ((killed.path,), killed.bytes)
    assert killed.path not in disk.files()
    stream.run(1)
    assert stream.files.log.batches() == [0, 1, 2, 3, 4, 5]


def test_a_clock_that_is_ahead_does_not_make_files_left_over() -> None:
    """Whoever trims may be wrong about the time; the batches say which it is at least."""
    disk, stream = _stream(3)
    (waiting,) = stream.task(rows_of(8))
    stream.now_us += 100 * LEFT_OVER_AFTER_US
    assert _trim(stream, 0).left_over.files == ()
    assert waiting.path in disk.files()


@pytest.mark.parametrize("behind_us", [0, HOUR, 1000 * DAY])
def test_files_of_a_task_whose_clock_is_behind_are_not_left_over(behind_us: int) -> None:
    _, stream = _stream(3)
    planned = plan_writing(stream.storage, stream.meta, lambda: stream.now_us)
    slow = StreamWriter(
        stream.storage, stream.meta, clock=lambda: stream.now_us - behind_us, planned=planned
    )
    files = slow.write([table_of(rows_of(8))])
    stream.run(3)
    assert _trim(stream, 0).left_over.files == ()
    assert stream.writer().commit(files) == 6
    assert verify_stream(stream.storage).is_whole


def test_files_of_a_batch_are_not_left_over_however_old_it_is() -> None:
    disk, stream = _stream(3)
    before = disk.files()
    stream.now_us += 100 * LEFT_OVER_AFTER_US
    assert _trim(stream, 0).left_over.files == ()
    assert disk.files() == before


def test_where_all_manifests_are_lost_no_data_is_removed() -> None:
    """They may come back from a backup; the data would not."""
    disk, stream = _stream(3)
    for batch in range(3):
        stream.storage.delete(f"batches/00000/{batch:020d}.seg")
    stream.now_us += 2 * LEFT_OVER_AFTER_US
    before = disk.files()
    assert _trim(stream, 5).left_over.files == ()
    assert disk.files() == before


def test_a_stream_whose_mark_lies_behind_all_batches_has_nothing_to_trim() -> None:
    disk, stream = _stream(2)
    stream.storage.publish(f"{stream.files.log.directory}/{mark_name(100)}", [b""])
    before = disk.files()
    assert _trim(stream, 1).batches.batches == 0
    assert disk.files() == before


def test_where_a_manifest_is_lost_no_data_is_removed_as_left_over() -> None:
    disk, stream = _stream(4)
    lost = {file.path for file in read_manifest(stream.files.log, 1).files}
    stream.storage.delete(f"batches/00000/{1:020d}.seg")
    stream.now_us += 2 * LEFT_OVER_AFTER_US
    stream.run(1)
    done = _trim(stream, 0)
    assert "Batch 1 is not in the log" in done.left_alone
    assert lost <= set(disk.files())
    done = _trim(stream, 2)
    assert done.left_alone == ""
    assert set(done.left_over.files) == lost, "the batch was given up"


def test_a_batch_that_is_committed_meanwhile_stays() -> None:
    """Nothing more goes than what was asked for when it was asked."""
    _, stream = _stream(3)
    done = _trim(stream, 2, dry_run=True)
    stream.run(5)
    assert _trim(stream, 2).batches == done.batches
    assert stream.files.log.batches() == [2, 3, 4, 5, 6, 7]


def test_manifests_are_merged_but_the_newest() -> None:
    _, stream = _stream(UNMERGED + 4)
    done = merge_manifests(stream.files)
    assert (done.up_to, done.batches, done.problem) == (3, 4, "")
    catalog = stream.files.log.reader.look()
    assert [(pack.first, pack.last) for pack in catalog.packs] == [(0, 3)]
    stream.run(1)
    assert merge_manifests(stream.files).batches == 0
    stream.now_us += SECOND
    assert [read_manifest(stream.files.log, n).batch for n in range(5)] == list(range(5))


def test_damage_stops_a_merge_and_is_told() -> None:
    disk, stream = _stream(UNMERGED + 4)
    path = f"batches/00000/{2:020d}.seg"
    disk.flip(path, 60, 3)
    assert path in merge_manifests(stream.files).problem
