from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.support.streams import (
    ORDERS,
    SECOND,
    Counting,
    Written,
    orders,
    plain,
    rows_by_batch,
    written,
)
from trailmark.errors import DamagedSegment, MissingSegment, SettingError, UnknownFormat
from trailmark.records import Stream
from trailmark.streams.retention import Retention, trim_stream
from trailmark.streams.times import Span
from trailmark.streams.view import StreamView, open_view
from trailmark.testing.disk import SimulatedDisk


def _filled(disk: SimulatedDisk, batches: int = 6, **how: Any) -> Written:
    stream = written(disk.storage(), time_column="time", **how)
    for batch in range(batches):
        stream.add(orders(batch))
    return stream


def _read(view: StreamView, span: Span, columns: Sequence[str] | None = None) -> list[Any]:
    names = view.schema.names if columns is None else list(columns)
    parts = [
        rows
        for batch in view.batches(view.oldest(), view.end(), span)
        for chunk in batch.chunks
        for rows in view.read(chunk, names, span)
    ]
    return plain(pa.Table.from_batches(parts, pa.schema([view.schema.field(n) for n in names])))


# What there is


def test_a_view_says_what_the_stream_is() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk, keys=["item"], buckets=4)
    view = open_view(disk.storage())
    assert (view.schema, view.time_column, view.source_schema) == (ORDERS, "time", None)
    assert (view.log_id, view.stream) == (str(stream.meta.log_id), Stream.BATCHES)


def test_an_empty_stream_ends_where_it_begins() -> None:
    disk = SimulatedDisk()
    written(disk.storage())
    view = open_view(disk.storage())
    assert (view.oldest(), view.end(), view.find(0)) == (0, 0, 0)
    assert list(view.batches(0, 0, Span())) == []


def test_the_end_moves_on_with_every_commit_and_the_beginning_with_every_trim() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    view = open_view(disk.storage())
    for batch in range(5):
        assert view.end() == batch
        stream.add(orders(batch))
    assert (view.oldest(), view.end()) == (0, 5)
    trim_stream(stream.storage, stream.log(), Retention(batches=2), 0)
    assert (view.oldest(), view.end()) == (3, 5)


def test_where_there_is_no_stream_is_said() -> None:
    with pytest.raises(UnknownFormat, match="no Trailmark log here"):
        open_view(SimulatedDisk().storage())


@pytest.mark.parametrize("records", ["all", "input", "late", "rows"])
def test_a_written_stream_has_no_other_records(records: str) -> None:
    disk = SimulatedDisk()
    written(disk.storage())
    assert open_view(disk.storage(), "results").end() == 0
    with pytest.raises(SettingError, match="nothing else") as caught:
        open_view(disk.storage(), records)
    assert caught.value.where == "records"


# Batches


def test_batches_are_given_from_one_to_before_another() -> None:
    disk = SimulatedDisk()
    _filled(disk)
    view = open_view(disk.storage())
    found = list(view.batches(2, 5, Span()))
    assert [(batch.batch, batch.rows) for batch in found] == [(2, 3), (3, 3), (4, 3)]
    assert found[0].bytes == sum(chunk.bytes for chunk in found[0].chunks) > 0
    assert list(view.batches(3, 3, Span())) == []


def test_a_batch_has_a_chunk_for_each_of_its_files() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk, 1, keys=["item"], buckets=3)
    (batch,) = open_view(disk.storage()).batches(0, 1, Span())
    assert len(batch.chunks) == len({chunk.bucket for chunk in batch.chunks}) > 1
    assert sorted(rows_by_batch(stream.storage)[0]) == sorted(orders(0))


def test_a_batch_that_is_gone_is_missing() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk)
    view = open_view(disk.storage())
    trim_stream(stream.storage, stream.log(), Retention(batches=2), 0)
    with pytest.raises(MissingSegment):
        list(view.batches(3, 6, Span()))
    with pytest.raises(MissingSegment):
        list(view.batches(5, 7, Span()))
    assert [batch.batch for batch in view.batches(4, 6, Span())] == [4, 5]


def test_columns_come_in_the_order_they_are_asked_for() -> None:
    disk = SimulatedDisk()
    _filled(disk, 1)
    view = open_view(disk.storage())
    for names in (["price"], ["time", "item"], ["price", "time", "item"], ["item", "price"]):
        places = [ORDERS.get_field_index(name) for name in names]
        for span in (Span(), Span(first_us=0)):
            wanted = [tuple(row[place] for place in places) for row in orders(0)]
            assert _read(view, span, names) == wanted


# Times


def test_only_rows_of_the_times_asked_for_are_read_both_ends_included() -> None:
    disk = SimulatedDisk()
    _filled(disk)
    everything = [row for batch in range(6) for row in orders(batch)]
    view = open_view(disk.storage())
    bounds = [None, *(second * SECOND for second in (-1, 0, 1, 2, 3, 20, 22, 51, 52, 53))]
    for first in bounds:
        for last in bounds:
            if first is not None and last is not None and first > last:
                continue
            wanted = [
                row
                for row in everything
                if (first is None or row[2] >= first) and (last is None or row[2] <= last)
            ]
            assert _read(view, Span(first_us=first, last_us=last)) == wanted


def test_late_data_is_found_and_other_files_are_not_read() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage(), time_column="time")
    for times in ([50, 51], [60], [3, 61], [70], [None], [52]):
        stream.add([("a", 1, None if at is None else at * SECOND) for at in times])
    storage = Counting(disk)
    view = open_view(storage)
    _read(view, Span(first_us=0))
    for span, times, batches in (
        (Span(last_us=10 * SECOND), [3], [2]),
        (Span(first_us=50 * SECOND, last_us=52 * SECOND), [50, 51, 52], [0, 2, 5]),
        (Span(first_us=70 * SECOND), [70], [3]),
        (Span(first_us=99 * SECOND), [], []),
    ):
        found = list(view.batches(0, 6, span))
        assert [batch.batch for batch in found] == batches
        storage.reads.clear()
        assert [row[2] // SECOND for row in _read(view, span)] == times
        data = [path for path in storage.reads if path.startswith("data/")]
        assert len(data) == len(batches)
    assert len(_read(view, Span())) == 8, "rows without a time are there where none is asked for"


def test_files_of_a_batch_outside_the_times_are_left_out() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage(), time_column="time")
    files = [file for task in range(4) for file in stream.write(orders(task))]
    stream.writer().commit(files)
    span = Span(first_us=10 * SECOND, last_us=20 * SECOND)
    (batch,) = open_view(disk.storage()).batches(0, 1, span)
    assert [chunk.file for chunk in batch.chunks] == files[1:3]
    assert _read(open_view(disk.storage()), span) == orders(1) + orders(2)[:1]


def test_without_a_time_column_the_time_a_batch_was_written_counts() -> None:
    disk = SimulatedDisk()
    stream = written(disk.storage())
    moments = []
    for batch in range(5):
        stream.add(orders(batch))
        moments.append(stream.clock.now_us)
    view = open_view(disk.storage())
    assert view.time_column is None
    assert [view.find(moment) for moment in moments] == [0, 1, 2, 3, 4]
    assert view.find(moments[1] + 1) == 2
    assert view.find(moments[-1] + 1) == 5
    assert _read(view, Span(first_us=moments[1], last_us=moments[2])) == orders(1) + orders(2)
    assert _read(view, Span(first_us=moments[1] + 1, last_us=moments[2] - 1)) == []


def test_the_first_batch_that_may_hold_a_time_is_found() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk)
    stream.add([("late", 0, 15 * SECOND)])
    view = open_view(disk.storage())
    assert [view.find(s * SECOND) for s in (-5, 0, 2, 3, 25, 52, 53)] == [0, 0, 0, 1, 3, 5, 7]


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_are_compared_exactly(unit: str, zone: str | None) -> None:
    """Bounds are microseconds; those outside what the unit holds are bounds all the same."""
    per_us = {"s": 10**6, "ms": 10**3, "us": 1}
    most = 2**63 - 1
    values = [-most, -2000, -1999, -1001, -1000, -1, 0, 1, 999, 1000, 1001, 1999, 2000, most]
    schema = pa.schema([("time", pa.timestamp(unit, zone))])
    disk = SimulatedDisk()
    stream = written(disk.storage(), schema, time_column="time")
    stream.add([(value,) for value in (*values, None)])
    view = open_view(disk.storage())
    bounds = [-(10**17), -2 * 10**9, -2000, -2, -1, 0, 1, 2, 1000, 2000, 2 * 10**9, 10**17]
    for first in [None, *bounds]:
        for last in [None, *bounds]:
            if first is not None and last is not None and first > last:
                continue
            if first is None and last is None:
                continue
            factor = 1 if unit == "ns" else 1000 * per_us[unit]
            wanted = [
                (value,)
                for value in values
                if (first is None or value * factor >= first * 1000)
                and (last is None or value * factor <= last * 1000)
            ]
            assert _read(view, Span(first_us=first, last_us=last)) == wanted, (first, last)


# Following


def test_following_a_stream_that_does_not_change_lists_no_directory() -> None:
    disk = SimulatedDisk()
    _filled(disk)
    storage = Counting(disk)
    view = open_view(storage)
    assert view.end() == 6
    storage.lists.clear()
    storage.reads.clear()
    calls = disk.calls
    for _ in range(10):
        assert view.end() == 6
    assert (storage.lists, storage.reads) == ([], [])
    assert disk.calls - calls <= 20


def test_following_a_stream_that_grows_lists_no_directory() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk)
    storage = Counting(disk)
    view = open_view(storage)
    assert view.end() == 6
    storage.lists.clear()
    for batch in range(6, 12):
        stream.add(orders(batch))
        assert view.end() == batch + 1
        (found,) = view.batches(batch, batch + 1, Span())
        assert found.rows == 3
    assert storage.lists == []


@pytest.mark.parametrize("behind", [1, 2, 7])
def test_whoever_follows_finds_the_end_again_after_a_trim_beyond_it(behind: int) -> None:
    disk = SimulatedDisk()
    stream = _filled(disk)
    view = open_view(disk.storage())
    assert view.end() == 6
    for batch in range(6, 6 + behind):
        stream.add(orders(batch))
    trim_stream(stream.storage, stream.log(), Retention(batches=1), 0)
    assert view.end() == 6 + behind
    stream.add(orders(6 + behind))
    assert view.end() == 7 + behind
    assert view.oldest() == 5 + behind


def test_whoever_comes_back_after_a_merge_lists_once() -> None:
    disk = SimulatedDisk()
    stream = _filled(disk)
    storage = Counting(disk)
    view = open_view(storage)
    assert view.end() == 6
    for batch in range(6, 60):
        stream.add(orders(batch))
    stream.log().merge(50)
    storage.lists.clear()
    assert view.end() == 60
    assert len(storage.lists) <= 2


# Damage


def test_damage_is_said_when_it_is_read_and_not_before() -> None:
    disk = SimulatedDisk()
    _filled(disk)
    disk.flip("batches/00000/00000000000000000002.seg", 70, 1)
    (file,) = (c.file for b in open_view(disk.storage()).batches(4, 5, Span()) for c in b.chunks)
    assert file is not None
    disk.flip(file.path, 70, 1)
    view = open_view(disk.storage())
    assert [batch.batch for batch in view.batches(0, 2, Span())] == [0, 1]
    with pytest.raises(DamagedSegment, match="00000000000000000002"):
        list(view.batches(0, 6, Span()))
    with pytest.raises(DamagedSegment):
        list(view.batches(0, 6, Span(first_us=50 * SECOND)))
    ((chunk,),) = (batch.chunks for batch in view.batches(4, 5, Span()))
    with pytest.raises(DamagedSegment, match="data/"):
        list(view.read(chunk, ["price"], Span()))
