from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.streams import ORDERS, batch_of
from trailmark.streams.buckets import Buckets
from trailmark.streams.description import StreamDescription

_UTC = timezone.utc
_KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [0, 1, -1, 2**31 - 1, None]),
    "bool": (pa.bool_(), [True, False, None]),
    "string": (pa.string(), ["", "a", "ä", "a\0b", "long " * 50, None]),
    "large string": (pa.large_string(), ["", "a", "long " * 50, None]),
    "date": (pa.date32(), [date(2026, 1, 31), date(1969, 1, 1), None]),
    "time": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 31, tzinfo=_UTC), None]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("-7.25"), None]),
}


def _split(buckets: Buckets, rows: pa.Table) -> dict[int, list[dict[str, Any]]]:
    return {bucket: part.to_pylist() for bucket, part in buckets.split(rows)}


@pytest.mark.parametrize("kind", _KEYS)
def test_equal_keys_are_in_one_bucket(kind: str) -> None:
    type_, values = _KEYS[kind]
    schema = pa.schema([("key", type_), ("n", pa.int32())])
    given = values * 7
    rows = pa.table([pa.array(given, type_), pa.array(range(len(given)), pa.int32())], schema)
    buckets = Buckets(pa.schema([("key", type_)]), 5)
    found = _split(buckets, rows)
    for value in values:
        holding = [b for b, part in found.items() if any(row["key"] == value for row in part)]
        assert len(holding) == 1
    assert sorted(row["n"] for part in found.values() for row in part) == list(range(len(given)))


def test_rows_of_a_bucket_stay_in_their_order() -> None:
    rows = pa.table({"key": [n % 11 for n in range(500)], "n": range(500)})
    chunked = pa.concat_tables([rows.slice(0, 3), rows.slice(3, 0), rows.slice(3)])
    found = _split(Buckets(pa.schema([("key", pa.int64())]), 4), chunked)
    assert len(found) == 4
    for part in found.values():
        assert [row["n"] for row in part] == sorted(row["n"] for row in part)
    assert sum(map(len, found.values())) == 500


def test_nested_columns_go_with_their_rows() -> None:
    kind = pa.struct([("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32()))])
    values = [None if n % 5 == 0 else {"l": [n, None], "m": [("k", n)]} for n in range(40)]
    rows = pa.table({"key": pa.array(range(40)), "nested": pa.array(values, kind)})
    for part in _split(Buckets(pa.schema([("key", pa.int64())]), 3), rows).values():
        assert all(row["nested"] == values[row["key"]] for row in part)


def test_where_a_key_is_never_changes() -> None:
    schema = pa.schema([("item", pa.string()), ("price", pa.int64())])
    rows = pa.table([["a", "", None], [1, 0, 7]], schema)
    places = {
        row["price"]: b for b, part in _split(Buckets(schema, 1000), rows).items() for row in part
    }
    assert places == {1: 789, 0: 52, 7: 804}


def test_one_bucket_holds_everything() -> None:
    buckets = Buckets.of(StreamDescription(ORDERS))
    rows = pa.Table.from_batches([batch_of([("a", 1, 2)]), batch_of([("b", 1, 2)])])
    ((bucket, part),) = buckets.split(rows)
    assert bucket == 0
    assert part == rows
