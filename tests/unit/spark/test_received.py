"""A task finds its bucket, and takes exactly one control row out, wherever it is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from trailmark.errors import SchemaChanged, TrailmarkError
from trailmark.spark import received
from trailmark.spark.received import ControlKeys, control_value

_SCHEMA = pa.schema([("item", pa.int32()), ("price", pa.int32())])
_CONTROL = ControlKeys("item", (7, 8, 9))


def _take_bucket(
    batches: list[pa.RecordBatch], schema: pa.Schema, control: ControlKeys
) -> tuple[int, pa.RecordBatch]:
    return received.take_bucket(batches, schema, control, where="tm.join")


def _chunk(*rows: tuple[Any, Any]) -> pa.RecordBatch:
    items, prices = ([row[n] for row in rows] for n in range(2))
    return pa.record_batch(
        [pa.array(items, pa.int32()), pa.array(prices, pa.int32())], names=["item", "price"]
    )


def _rows(batch: pa.RecordBatch) -> list[tuple[Any, Any]]:
    return list(zip(*batch.to_pydict().values(), strict=True))


def test_an_empty_bucket_has_its_control_row_only() -> None:
    bucket, rows = _take_bucket([_chunk((8, None))], _SCHEMA, _CONTROL)
    assert (bucket, rows.num_rows) == (1, 0)
    assert rows.schema == _SCHEMA


@pytest.mark.parametrize("place", range(5))
def test_the_control_row_may_be_anywhere(place: int) -> None:
    data: list[tuple[Any, Any]] = [(8, 1), (None, None), (3, None), (8, 2)]
    sent = [*data[:place], (8, None), *data[place:]]
    chunks = [_chunk(*sent[:2]), _chunk(), _chunk(*sent[2:])]
    bucket, rows = _take_bucket(chunks, _SCHEMA, _CONTROL)
    assert (bucket, _rows(rows)) == (1, data)


def test_rows_that_equal_the_control_row_stay_but_for_one() -> None:
    _, rows = _take_bucket([_chunk((7, None), (7, None), (7, 1))], _SCHEMA, _CONTROL)
    assert sorted(map(str, _rows(rows))) == ["(7, 1)", "(7, None)"]


def test_rows_of_two_buckets_are_refused() -> None:
    with pytest.raises(TrailmarkError, match="rows of 2 buckets") as refused:
        _take_bucket([_chunk((7, None)), _chunk((8, None))], _SCHEMA, _CONTROL)
    assert refused.value.where == "tm.join"


def test_a_bucket_without_its_control_row_is_refused() -> None:
    with pytest.raises(TrailmarkError, match="rows of 0 buckets"):
        _take_bucket([_chunk((6, None), (7, 3))], _SCHEMA, _CONTROL)


def test_no_rows_at_all_are_refused() -> None:
    with pytest.raises(TrailmarkError, match="rows of 0 buckets"):
        _take_bucket([], _SCHEMA, _CONTROL)


_KEYS = [
    pa.bool_(),
    pa.int8(),
    pa.int64(),
    pa.string(),
    pa.date32(),
    pa.timestamp("us", tz="UTC"),
    pa.timestamp("us"),
    pa.decimal128(12, 3),
]


@pytest.mark.parametrize("kind", _KEYS, ids=str)
def test_control_rows_are_found_by_keys_of_every_type(kind: pa.DataType) -> None:
    key = pa.scalar(control_value(kind, 1), kind)
    other = pa.scalar(control_value(kind, 0), kind)
    keys = pa.array([other, None, key, other], kind)
    chunk = pa.record_batch([keys], names=["k"])
    control = ControlKeys("k", (1,))
    _, rows = _take_bucket([chunk], pa.schema([("k", kind)]), control)
    assert rows.column("k").to_pylist() == pa.array([other, None, other], kind).to_pylist()


def test_time_zones_and_large_strings_are_taken_as_the_log_has_them() -> None:
    zoned = pa.array([1, None], pa.timestamp("us", tz="Pacific/Chatham"))
    large = pa.array(["1", "x"], pa.large_string())
    chunk = pa.record_batch([large, zoned], names=["k", "t"])
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", tz="UTC"))])
    swapped = pa.record_batch([large.take(pa.array([1, 0])), zoned], names=["k", "t"])
    _, rows = _take_bucket([swapped], schema, ControlKeys("k", (1,)))
    assert rows.schema == schema
    assert rows.column("k").to_pylist() == ["x"]
    with pytest.raises(SchemaChanged, match="instead of") as refused:
        _take_bucket([chunk], pa.schema([("k", pa.int32())]), ControlKeys("k", (1,)))
    assert refused.value.where == "tm.join"
