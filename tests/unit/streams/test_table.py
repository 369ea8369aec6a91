from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trailmark as tm
from tests.support.streams import ORDERS, SECOND, Written, orders, plain, written
from trailmark.errors import SettingError, UnknownFormat
from trailmark.log import LocalStorage
from trailmark.streams.description import open_stream
from trailmark.streams.retention import Retention, trim_stream
from trailmark.streams.table import read_table
from trailmark.streams.writer import StreamWriter


def _filled(path: Path, batches: int = 6, **how: Any) -> Written:
    stream = written(LocalStorage(path), **how)
    for batch in range(batches):
        stream.add(orders(batch))
    return stream


def _rows(*batches: int) -> list[Any]:
    return [row for batch in batches for row in orders(batch)]


def test_a_stream_is_read_as_one_table(tmp_path: Path) -> None:
    _filled(tmp_path)
    table = tm.read_table(tmp_path)
    assert table.schema == ORDERS
    assert plain(table) == _rows(0, 1, 2, 3, 4, 5)
    assert read_table(str(tmp_path)) == table


@pytest.mark.parametrize(
    ("first", "last", "batches"),
    [
        (None, None, [0, 1, 2, 3, 4, 5]),
        (2, None, [2, 3, 4, 5]),
        (None, 2, [0, 1, 2]),
        (2, 2, [2]),
        (1, 99, [1, 2, 3, 4, 5]),
        (6, None, []),
        (99, 100, []),
        (-5, 1, [0, 1]),
    ],
)
def test_batches_are_asked_for_both_ends_included(
    tmp_path: Path, first: int | None, last: int | None, batches: list[int]
) -> None:
    _filled(tmp_path)
    found = read_table(tmp_path, starting_batch=first, ending_batch=last)
    assert plain(found) == _rows(*batches)
    assert found.schema == ORDERS


def test_what_is_trimmed_is_left_out(tmp_path: Path) -> None:
    stream = _filled(tmp_path)
    trim_stream(stream.storage, stream.log(), Retention(batches=3), 0)
    assert plain(read_table(tmp_path, starting_batch=1)) == _rows(3, 4, 5)
    assert plain(read_table(tmp_path, ending_batch=1)) == []


def test_times_are_asked_for_both_ends_included(tmp_path: Path) -> None:
    _filled(tmp_path, time_column="time")
    at = "1970-01-01T00:00:"
    for first, last, wanted in (
        (f"{at}10Z", f"{at}21Z", _rows(1) + _rows(2)[:2]),
        (f"{at}10", f"{at}10.000000", _rows(1)[:1]),
        (datetime(1970, 1, 1, 0, 0, 51), None, _rows(5)[1:]),
        (None, datetime(1970, 1, 1, 0, 0, 0, tzinfo=timezone.utc), _rows(0)[:1]),
        ("1970-01-01T01:00:51+01:00", "1970-01-02", _rows(5)[1:]),
        (f"{at}03", f"{at}09.999999", []),
    ):
        found = read_table(tmp_path, starting_timestamp=first, ending_timestamp=last)
        assert plain(found) == wanted
    some = read_table(tmp_path, starting_timestamp=f"{at}10", ending_batch=1, columns=["price"])
    assert some.to_pydict() == {"price": [10, 11, 12]}


def test_without_a_time_column_whole_batches_are_found_by_when_they_were_written(
    tmp_path: Path,
) -> None:
    stream = _filled(tmp_path)
    newest = datetime.fromtimestamp(stream.clock.now_us / SECOND, timezone.utc)
    assert plain(read_table(tmp_path, starting_timestamp=newest)) == _rows(5)
    assert plain(read_table(tmp_path, ending_timestamp=newest)) == _rows(0, 1, 2, 3, 4, 5)
    assert read_table(tmp_path, ending_timestamp="2001-01-01").num_rows == 0


def test_columns_are_given_as_they_are_asked_for(tmp_path: Path) -> None:
    _filled(tmp_path, 1)
    assert read_table(tmp_path, columns=["time", "item"]).schema.names == ["time", "item"]
    assert read_table(tmp_path, columns=["price"]).to_pydict() == {"price": [0, 1, 2]}
    assert read_table(tmp_path, columns=[]).num_rows == 3


@pytest.mark.parametrize(
    ("asked", "what", "where"),
    [
        ({"columns": ["item", "cost"]}, "no column 'cost'", "columns"),
        ({"starting_batch": 3, "ending_batch": 2}, "ends before it begins", "Batch"),
        ({"starting_timestamp": "soon"}, "not a time", "starting_timestamp"),
        ({"ending_timestamp": "2026-02-30"}, "not a time", "ending_timestamp"),
        (
            {"starting_timestamp": "2026-02-02", "ending_timestamp": "2026-02-01"},
            "ends before it begins",
            "Timestamp",
        ),
        ({"records": "all"}, "nothing else", "records"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, asked: dict[str, Any], what: str, where: str
) -> None:
    _filled(tmp_path, 1)
    with pytest.raises(SettingError, match=what) as caught:
        read_table(tmp_path, **asked)
    assert where in caught.value.where


def test_where_nothing_is_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "nothing", "nothing", f"file:{tmp_path}/nothing"):
        with pytest.raises(UnknownFormat, match=f"There is no stream at .*{tmp_path}/nothing"):
            read_table(path)
    assert list(tmp_path.iterdir()) == []


_ZONED = pa.timestamp("us", "UTC")
_NESTED = pa.schema(
    [
        pa.field("key", pa.decimal128(20, 4)),
        pa.field("list", pa.list_(_ZONED)),
        pa.field("map", pa.map_(pa.string(), pa.list_(pa.struct([("at", _ZONED)])))),
        pa.field(
            "struct", pa.struct([("b", pa.binary()), ("d", pa.date32()), ("f", pa.float32())])
        ),
        pa.field("n", pa.int8(), nullable=False),
        pa.field("empty", pa.null()),
    ]
)


@pytest.mark.parametrize("count", [1, 900])
def test_nested_types_nulls_and_zoned_times_are_read_as_they_were_written(
    tmp_path: Path, count: int
) -> None:
    rows = [
        {
            "key": None if n % 3 == 0 else n,
            "list": None if n % 4 == 0 else [n, None, -n],
            "map": None if n % 5 == 0 else [("k", [{"at": n}, None, {"at": None}]), ("", None)],
            "struct": None if n % 7 == 0 else {"b": bytes([n % 256]), "f": n / 3},
            "n": n % 100,
            "empty": None,
        }
        for n in range(count)
    ]
    table = pa.Table.from_pylist(rows, _NESTED)
    storage = LocalStorage(tmp_path)
    meta = open_stream(storage, _NESTED, keys=["key"], buckets=3)
    writer = StreamWriter(storage, meta)
    writer.commit(writer.write(table.to_batches()))
    found = read_table(tmp_path)
    assert found.schema == _NESTED
    found.validate(full=True)
    by_key = sorted(found.to_pylist(), key=repr)
    assert by_key == sorted(table.to_pylist(), key=repr)
    for name in _NESTED.names:
        assert read_table(tmp_path, columns=[name]).column(0) == found[name]
