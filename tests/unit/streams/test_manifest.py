from __future__ import annotations

from typing import Any

import pytest

from tests.support.streams import SECOND, orders, written
from trailmark.errors import DamagedSegment, MissingSegment, OtherQuery
from trailmark.log import TimeRange
from trailmark.records import START_OF_LOG, Fingerprint
from trailmark.streams.files import DataFile
from trailmark.streams.manifest import joined_times, manifest_log, read_manifest
from trailmark.testing.disk import SimulatedDisk


def _file(times: TimeRange | None) -> DataFile:
    return DataFile("name", 0, 1, 2, 3, times)


def test_a_manifest_says_what_a_batch_consists_of() -> None:
    stream = written(time_column="time", keys=["item"], buckets=2)
    files = stream.write(orders(3, 8))
    assert len(files) == 2
    stream.clock.now_us += 5
    stream.writer().commit(files, "query", 4)
    found = read_manifest(stream.log(), 0)
    assert list(found.files) == files
    assert (found.batch, found.rows, found.bytes) == (0, 8, sum(file.bytes for file in files))
    assert (found.total_rows, found.total_bytes) == (found.rows, found.bytes)
    assert (found.written_us, found.writers) == (stream.clock.now_us, {"query": 4})
    footer, _ = stream.log().read_footer(0)
    assert footer.time_range == TimeRange(30 * SECOND, 37 * SECOND)


def test_manifests_are_linked_to_one_another() -> None:
    stream = written()
    for batch in range(5):
        stream.add(orders(batch))
    segments = list(stream.log().read_from(0))
    assert [segment.footer.previous for segment in segments[1:]] == [s.link for s in segments[:-1]]
    stream.log().merge(3)
    assert [read_manifest(stream.log(), batch).batch for batch in range(5)] == [0, 1, 2, 3, 4]


def test_a_batch_with_many_files_is_read() -> None:
    stream = written()
    files = [file for _ in range(100) for file in stream.write(orders(0))]
    stream.writer().commit(files)
    assert list(read_manifest(stream.log(), 0).files) == files


@pytest.mark.parametrize(
    ("ranges", "joined"),
    [
        ([], None),
        ([None, None], None),
        ([(3, 5)], (3, 5)),
        ([(3, 5), None, (-4, 4)], (-4, 5)),
        ([(3, 5), (4, 9)], (3, 9)),
    ],
)
def test_the_times_of_a_batch_are_those_of_all_its_files(
    ranges: list[tuple[int, int] | None], joined: tuple[int, int] | None
) -> None:
    files = [_file(None if each is None else TimeRange(*each)) for each in ranges]
    assert joined_times(files) == (None if joined is None else TimeRange(*joined))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"files": [], "writers": {}, "total_rows": 1},
        {"files": [["a"]], "writers": {}, "total_rows": 1, "total_bytes": 1},
        {"files": 5, "writers": {}, "total_rows": 1, "total_bytes": 1},
        {"files": [], "writers": 5, "total_rows": 1, "total_bytes": 1},
    ],
)
def test_a_segment_that_is_no_manifest_is_refused(attributes: dict[str, Any]) -> None:
    stream = written()
    digest = Fingerprint(0, 0)
    stream.log().append(0, [], previous=START_OF_LOG, fingerprint=digest, attributes=attributes)
    with pytest.raises(DamagedSegment, match="no manifest") as caught:
        read_manifest(stream.log(), 0)
    assert "batches/00000" in caught.value.where


def test_a_manifest_that_is_not_there_is_missing() -> None:
    with pytest.raises(MissingSegment):
        read_manifest(written().log(), 0)


def test_the_manifests_of_another_stream_are_refused() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    stream.add(orders(0))
    other = written().meta
    with pytest.raises(OtherQuery):
        read_manifest(manifest_log(disk.storage(), other), 0)
