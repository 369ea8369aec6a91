"""Finding a place in a long stream, by counting what is read for it."""

from __future__ import annotations

import pytest

from tests.support.streams import SECOND, Counting, Written, orders, written
from trailmark.log import TimeRange
from trailmark.records import START_OF_LOG, Fingerprint
from trailmark.streams.files import DataFile
from trailmark.streams.manifest import Manifest, manifest_attributes
from trailmark.streams.times import Span
from trailmark.streams.view import open_view
from trailmark.testing.disk import SimulatedDisk

_BATCHES = 2000


@pytest.fixture(scope="module")
def disk() -> SimulatedDisk:
    """Most manifests are in packs, as in a stream that was tended."""
    disk = SimulatedDisk()
    stream = written(disk.storage(), time_column="time")
    (file,) = stream.write(orders(0))
    log = stream.log()
    before, link = None, START_OF_LOG
    for batch in range(_BATCHES):
        at = TimeRange(batch * 10 * SECOND, (batch * 10 + 9) * SECOND)
        each = DataFile(file.name, 0, 3, file.bytes, file.checksum, at)
        link = log.append(
            batch,
            [],
            previous=link,
            fingerprint=Fingerprint(3, 0),
            time_range=at,
            attributes=manifest_attributes([each], before, None),
        ).link
        before = Manifest(batch, [each], 0, {}, 3 * batch + 3, file.bytes * (batch + 1))
        if batch % 256 == 255:
            log.merge(batch - 64)
    log.time_index()
    return disk


@pytest.mark.parametrize("place", [0, 1000, 1234, _BATCHES - 70, _BATCHES - 1])
def test_starting_in_the_middle_of_a_long_stream_reads_next_to_nothing(
    disk: SimulatedDisk, place: int
) -> None:
    storage = Counting(disk)
    view = open_view(storage)
    storage.reads.clear()
    assert view.find((place * 10 + 5) * SECOND) == place
    assert storage.reads == ["batches/00000/index.json"]
    (batch,) = view.batches(place, place + 1, Span())
    assert batch.batch == place
    assert len(storage.reads) <= 4, "the index, and of the pack its index and one manifest"


def test_a_short_time_in_a_long_stream_reads_only_its_batches(disk: SimulatedDisk) -> None:
    storage = Counting(disk)
    view = open_view(storage)
    storage.reads.clear()
    span = Span(first_us=10_000 * SECOND, last_us=10_015 * SECOND)
    assert [batch.batch for batch in view.batches(0, view.end(), span)] == [1000, 1001]
    assert len(storage.reads) <= 5


def test_the_end_of_a_long_stream_is_found_by_one_listing_and_then_by_none(
    disk: SimulatedDisk,
) -> None:
    storage = Counting(disk)
    view = open_view(storage)
    assert view.end() == _BATCHES
    assert len(storage.lists) == 2, "a listing is done twice"
    storage.lists.clear()
    storage.reads.clear()
    for _ in range(5):
        assert view.end() == _BATCHES
    assert (storage.lists, storage.reads) == ([], [])


def test_new_batches_cost_one_read_each(disk: SimulatedDisk) -> None:
    grown = disk.copy()
    storage = Counting(grown)
    view = open_view(storage)
    meta = written(grown.storage(), time_column="time")
    stream = Written(grown.storage(), meta.meta, meta.clock)
    for batch in range(_BATCHES, _BATCHES + 3):
        stream.add(orders(batch))
    storage.reads.clear()
    assert view.find((_BATCHES * 10 + 12) * SECOND) == _BATCHES + 1
    assert len(storage.reads) == 4
