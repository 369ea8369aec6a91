"""Verification of a written stream finds all harm, names the file, and minds what is trimmed."""

from __future__ import annotations

import pytest

from tests.support.harm import PLACES
from tests.support.stored import BEGIN_US, SECOND, Stored, rows_of
from trailmark.inspection.verify import Finding, Verification
from trailmark.log.readers import register
from trailmark.records import Stream
from trailmark.streams.manifest import read_manifest
from trailmark.streams.retention import LEFT_OVER_AFTER_US, trim_before
from trailmark.streams.verify import verify_stream
from trailmark.testing.disk import SimulatedDisk


def _stream(batches: int = 5) -> tuple[SimulatedDisk, Stored]:
    disk = SimulatedDisk()
    stream = Stored(disk.storage())
    stream.run(batches)
    return disk, stream


def _verify(stream: Stored, now_us: int | None = None) -> Verification:
    return verify_stream(stream.storage, clock=lambda: stream.now_us if now_us is None else now_us)


def _only(found: Verification) -> Finding:
    (finding,) = found.findings
    return finding


def _manifest(batch: int) -> str:
    return f"batches/00000/{batch:020d}.seg"


def _data(stream: Stored, batch: int, place: int = 0) -> str:
    return read_manifest(stream.files.log, batch).files[place].path


def test_a_whole_stream_is_counted() -> None:
    disk, stream = _stream()
    found = _verify(stream)
    assert (found.is_whole, found.notes) == (True, ())
    assert (found.logs, found.batches, found.data_files) == (1, 5, 20)
    size = sum(len(disk.content(path)) for path in disk.files() if path != "meta.json")
    assert found.bytes == size


@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_a_flipped_bit_of_a_data_file_is_found_with_its_batch(place: str, is_merged: bool) -> None:
    disk, stream = _stream()
    if is_merged:
        stream.files.log.merge(3)
    path = _data(stream, 2, 1)
    size = len(disk.content(path))
    disk.flip(path, min(size - 1, int(size * PLACES[place])), 4)
    finding = _only(_verify(stream))
    assert (finding.path, finding.batch, finding.stream) == (path, 2, "data")
    assert finding.trouble == "damaged"
    assert f"data/{finding.bucket:05d}/" in path


def test_a_data_file_that_is_cut_short_is_found() -> None:
    disk, stream = _stream()
    path = _data(stream, 4)
    disk.truncate(path, 100)
    finding = _only(_verify(stream))
    assert (finding.path, finding.trouble) == (path, "damaged")
    assert "once there is a newer batch" in finding.fix


def test_a_data_file_that_is_gone_is_found() -> None:
    _, stream = _stream()
    path = _data(stream, 1)
    stream.storage.delete(path)
    finding = _only(_verify(stream))
    assert (finding.path, finding.trouble, finding.batch) == (path, "missing", 1)
    assert "trailmark trim PATH --before-batch 2" in finding.fix


def test_a_whole_file_in_the_place_of_another_is_found() -> None:
    """Its own checksums are right; the manifest knows better."""
    disk, stream = _stream()
    mine, other = _data(stream, 1), _data(stream, 2)
    assert mine.split("/")[1] == other.split("/")[1]
    disk.overwrite(mine, disk.content(other))
    finding = _only(_verify(stream))
    assert (finding.path, finding.trouble) == (mine, "damaged")
    assert "not the one that the manifest names" in finding.what


def test_a_file_of_another_stream_is_found() -> None:
    disk, stream = _stream()
    other_disk, other = _stream()
    path = _data(stream, 1)
    disk.overwrite(path, other_disk.content(_data(other, 1)))
    finding = _only(_verify(stream))
    assert (finding.path, finding.trouble) == (path, "foreign")
    assert "does not belong here" in finding.fix


def test_a_damaged_manifest_is_found_and_its_files_are_left_out() -> None:
    disk, stream = _stream()
    disk.flip(_manifest(2), 60, 3)
    found = _verify(stream)
    finding = _only(found)
    assert (finding.path, finding.trouble, finding.stream) == (_manifest(2), "damaged", "batches")
    assert "trailmark trim PATH --before-batch 3" in finding.fix
    assert found.data_files == 16
    assert "cannot be told" in found.notes[0]


def test_a_damaged_newest_manifest_says_that_nobody_can_write() -> None:
    disk, stream = _stream()
    disk.flip(_manifest(4), 60, 3)
    assert "Nobody can write to the stream" in _only(_verify(stream)).fix


def test_a_missing_manifest_is_found() -> None:
    _, stream = _stream()
    stream.storage.delete(_manifest(2))
    found = _verify(stream)
    assert (_only(found).trouble, _only(found).batch) == ("missing", 2)


def test_no_advice_names_a_command_that_is_refused() -> None:
    disk, stream = _stream()
    disk.overwrite(_manifest(2), disk.content(_manifest(1)))
    disk.flip(_data(stream, 0), 70, 3)
    stream.storage.delete(_data(stream, 4))
    found = _verify(stream)
    assert len(found.findings) >= 3
    for finding in found.findings:
        assert finding.fix
        assert "truncate" not in finding.fix
        assert "recover" not in finding.fix


def test_left_over_files_are_noted_with_how_many_are_old() -> None:
    _, stream = _stream()
    stream.task(rows_of(9))
    stream.now_us += SECOND
    (note,) = _verify(stream).notes
    assert "Data files that no batch names: 2," in note
    assert "Older than 7 days: 0;" in note
    (note,) = _verify(stream, BEGIN_US + 2 * LEFT_OVER_AFTER_US).notes
    assert "Older than 7 days: 0;" in note, "the newest batch is as old"
    stream.now_us += LEFT_OVER_AFTER_US
    stream.run(1)
    (note,) = _verify(stream, stream.now_us).notes
    assert "Older than 7 days: 2;" in note


def test_a_damaged_reader_is_found() -> None:
    disk, stream = _stream()
    register(stream.storage, "billing", Stream.BATCHES, 2)
    assert _verify(stream).is_whole
    disk.flip("readers/billing.json", 20, 2)
    finding = _only(_verify(stream))
    assert (finding.path, finding.trouble) == ("readers/billing.json", "damaged")
    assert "--forget billing" in finding.fix


@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("read", range(16))
def test_what_is_trimmed_while_it_is_read_is_no_problem(read: int, is_merged: bool) -> None:
    _, stream = _stream()
    if is_merged:
        stream.files.log.merge(2)
    left = [read]

    def trim_then(_: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            trim_before(stream.storage, stream.files.log, 3)

    found = verify_stream(stream.storage, on_read=trim_then, clock=lambda: stream.now_us)
    assert found.findings == ()
