from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.support.logs import LOG_ID, OTHER_ID
from tests.support.streams import ORDERS, SECOND, batch_of, orders
from trailmark.errors import DamagedSegment, MissingSegment, OtherQuery
from trailmark.log import Codecs, Storage, TimeRange
from trailmark.streams.files import (
    DataFile,
    files_written_before,
    read_file,
    write_file,
    written_at,
)
from trailmark.testing.disk import SimulatedDisk


def _write(storage: Storage, rows: pa.Table, bucket: int = 0, now_us: int = SECOND) -> DataFile:
    times = TimeRange(1, 5)
    return write_file(storage, LOG_ID, bucket, rows, times, Codecs("auto"), now_us)


def _table(batch: int, count: int = 3) -> pa.Table:
    return pa.Table.from_batches([batch_of(orders(batch, count))])


def test_a_file_is_read_as_it_was_written() -> None:
    storage = SimulatedDisk().storage()
    file = _write(storage, _table(4), bucket=7)
    assert (file.bucket, file.rows, written_at(file.name)) == (7, 3, SECOND)
    assert file.bytes == storage.size(file.path)
    assert file.path.startswith("data/00007/00000000000001000000-")
    read = list(read_file(storage, LOG_ID, file, ORDERS, ORDERS.names))
    assert pa.Table.from_batches(read) == _table(4)


@pytest.mark.parametrize("count", [3, 2000])
@pytest.mark.parametrize("places", [[0], [1], [2], [0, 2], [1, 2]])
def test_only_the_columns_asked_for_are_read(places: list[int], count: int) -> None:
    storage = SimulatedDisk().storage()
    table = _table(1, count)
    wanted = table.select(places)
    file = _write(storage, table)
    read = read_file(storage, LOG_ID, file, table.schema, wanted.schema.names)
    assert pa.Table.from_batches(read) == wanted


def test_columns_inside_nested_types_do_not_shift_the_places() -> None:
    storage = SimulatedDisk().storage()
    kind = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.timestamp("us", "UTC")))])
    table = pa.table(
        {
            "a": pa.array([{"x": 1, "y": [5, None]}, None], kind),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "b": pa.array(["p", None]),
        }
    )
    file = _write(storage, table)
    for places in ([2], [1], [0], [0, 2], [1, 2], [0, 1, 2]):
        wanted = table.select(places)
        read = read_file(storage, LOG_ID, file, table.schema, wanted.schema.names)
        assert pa.Table.from_batches(read) == wanted


def test_every_file_has_a_name_of_its_own() -> None:
    storage = SimulatedDisk().storage()
    files = [_write(storage, _table(0)) for _ in range(20)]
    assert len({file.path for file in files}) == 20


def test_a_file_is_in_a_manifest_as_it_is() -> None:
    storage = SimulatedDisk().storage()
    file = _write(storage, _table(0), bucket=3)
    for each in (file, replace(file, time_range=None)):
        assert DataFile.from_json(each.to_json(), each.digest) == each


def test_a_file_that_is_gone_is_missing() -> None:
    storage = SimulatedDisk().storage()
    file = _write(storage, _table(0))
    storage.delete(file.path)
    with pytest.raises(MissingSegment) as caught:
        list(read_file(storage, LOG_ID, file, ORDERS, ORDERS.names))
    assert caught.value.where == file.path


def test_a_file_of_another_stream_or_bucket_is_refused() -> None:
    disk = SimulatedDisk()
    file = _write(disk.storage(), _table(0))
    with pytest.raises(OtherQuery):
        list(read_file(disk.storage(), OTHER_ID, file, ORDERS, ORDERS.names))
    elsewhere = replace(file, bucket=1)
    disk.storage().publish(elsewhere.path, [disk.content(file.path)])
    with pytest.raises(OtherQuery):
        list(read_file(disk.storage(), LOG_ID, elsewhere, ORDERS, ORDERS.names))


def test_a_whole_file_that_is_not_the_one_named_is_refused() -> None:
    disk = SimulatedDisk()
    file, other = (_write(disk.storage(), _table(batch)) for batch in range(2))
    disk.overwrite(file.path, disk.content(other.path))
    with pytest.raises(DamagedSegment, match="not the one that the manifest names"):
        list(read_file(disk.storage(), LOG_ID, file, ORDERS, ORDERS.names))


def test_a_file_with_other_columns_than_the_stream_is_refused() -> None:
    storage = SimulatedDisk().storage()
    file = _write(storage, _table(0))
    other = pa.schema([(ORDERS.names[0], pa.date32()), *list(ORDERS)[1:]])
    with pytest.raises(DamagedSegment, match="other columns"):
        list(read_file(storage, LOG_ID, file, other, other.names[:1]))


@pytest.mark.parametrize("name", ["../../../etc/passwd", "", "x.seg", 7, None])
def test_a_manifest_names_no_other_files(name: object) -> None:
    with pytest.raises(ValueError, match="no name of a data file"):
        DataFile.from_json([name, 0, 1, 1, 1, None, None])


def test_files_are_told_by_the_time_they_were_written() -> None:
    storage = SimulatedDisk().storage()
    files = [_write(storage, _table(n), n % 2, n * SECOND) for n in range(6)]
    storage.publish("data/00000/notes.txt", [b"x"])
    found = files_written_before(storage, 2, 3 * SECOND)
    assert sorted(found) == sorted(file.path for file in files[:3])
    assert files_written_before(storage, 1, 3 * SECOND) == [files[0].path, files[2].path]
    assert files_written_before(SimulatedDisk().storage(), 2, SECOND) == []


def test_rows_are_compressed_where_it_is_worth_it() -> None:
    storage = SimulatedDisk().storage()
    table = pa.table({"a": pa.array([7] * 5000, pa.int64())})
    file = _write(storage, table)
    assert file.bytes < 5000
    assert pa.Table.from_batches(read_file(storage, LOG_ID, file, table.schema, ["a"])) == table
