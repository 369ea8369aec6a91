"""Tuples of a batch are taken in the order of columns, as Spark would sort them."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.plain import plain_rows
from trailmark.engine import OperatorLogs
from trailmark.errors import SchemaChanged, SettingError, UnsupportedType
from trailmark.log import PortRows
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.order import in_order
from trailmark.testing.disk import SimulatedDisk
from trailmark.windows import functions as f
from trailmark.windows.spec import count_window

_NAN = float("nan")
_INF = float("inf")

_SCHEMA = pa.schema(
    [
        ("item", pa.int32()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("nested", pa.list_(pa.int8())),
        ("bytes", pa.binary()),
        ("twice", pa.int8()),
        ("twice", pa.int8()),
    ]
)


def _aggregate(**change: Any) -> Aggregate:
    arguments: dict[str, Any] = {
        "by": "item",
        "window": count_window(2),
        "values": {"first": f.first("price")},
    }
    return Aggregate(_SCHEMA, **arguments | change)


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        (pa.int8(), [None, -128, -1, 0, 127]),
        (pa.int64(), [None, -(1 << 63), 0, (1 << 63) - 1]),
        (pa.uint32(), [None, 0, 1, (1 << 32) - 1]),
        (pa.float32(), [None, -_INF, -1.5, 0.0, 1.5, _INF, _NAN]),
        (pa.float64(), [None, -_INF, -1e300, 5e-324, 1e300, _INF, _NAN]),
        (pa.bool_(), [None, False, True]),
        (pa.string(), [None, "", "\0", "A", "a", "aa", "b", "z", "ä", "日", "\uffff", "🙂"]),
        (pa.large_string(), [None, "", "a", "🙂"]),
        (pa.date32(), [None, date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29)]),
        (pa.timestamp("us"), [None, datetime(1969, 12, 31, 23), datetime(2024, 1, 1)]),
        (pa.timestamp("us", "Asia/Tokyo"), [None, datetime(1970, 1, 1, tzinfo=UTC)]),
        (pa.decimal128(38, 2), [None, *map(Decimal, ("-99999999999999999999", "-0.01", "0.10"))]),
    ],
    ids=str,
)
def test_every_type_is_ordered_as_spark_orders_it(kind: pa.DataType, ascending: list[Any]) -> None:
    wanted = [pair for value in ascending for pair in ((value, 0), (value, 1), (value, 2))]
    came = sorted(wanted, key=lambda pair: pair[1])
    random.Random(1).shuffle(came)
    came.sort(key=lambda pair: pair[1])  # so equal values come as 0, 1, 2
    values, places = zip(*came, strict=True)
    rows = pa.RecordBatch.from_arrays(
        [pa.array(values, kind), pa.array(places, pa.int8())], ["value", "place"]
    )
    found = in_order(rows, ["value"])
    expected = pa.array([value for value, _ in wanted], kind)
    assert repr(found.column("value").to_pylist()) == repr(expected.to_pylist())
    assert found.column("place").to_pylist() == [place for _, place in wanted]


def test_zero_has_no_sign_and_all_nan_are_equal() -> None:
    values = [0.0, _NAN, -0.0, 0.0, -_NAN, -0.0]
    rows = pa.RecordBatch.from_arrays([pa.array(values), pa.array(range(6))], ["value", "place"])
    assert in_order(rows, ["value"]).column("place").to_pylist() == [0, 2, 3, 5, 1, 4]


@pytest.mark.parametrize("columns", [1, 2, 3, 10])
def test_ties_stay_as_they_came_however_many_columns_and_rows(columns: int) -> None:
    rng = random.Random(columns)
    drawn = [
        [rng.choice((None, 0.0, -0.0, 1.0, _NAN)) for _ in range(5_000)] for _ in range(columns)
    ]
    names = [f".odd {place}" for place in range(columns)]
    arrays = [*map(pa.array, drawn), pa.array(range(5_000))]
    rows = pa.RecordBatch.from_arrays(arrays, [*names, "place"])
    rank = {None: 0, 0.0: 1, 1.0: 2}
    wanted = sorted(range(5_000), key=lambda i: [rank.get(column[i], 3) for column in drawn])
    assert in_order(rows, names).column("place").to_pylist() == wanted


def test_what_orders_is_read_and_logged_and_described_only_if_asked_for() -> None:
    plain, ordered = _aggregate(), _aggregate(order_by=["at", "price"])
    assert plain.input_schema.names == ["item", "price"]
    assert "order_by" not in plain.describe()
    assert ordered.input_schema.names == ["item", "price", "at"]
    assert ordered.describe() == plain.describe() | {"order_by": ["at", "price"]}
    assert ordered.result_schema == plain.result_schema
    assert _aggregate(order_by="price").describe()["order_by"] == ["price"]


def test_without_an_order_rows_are_left_as_they_are() -> None:
    rows = pa.RecordBatch.from_pylist([{"item": 2}, {"item": 1}])
    assert _aggregate().arrange(PortRows((rows,))).tables[0] is rows
    assert plain_rows(in_order(rows, ["item"])) == [{"item": 1}, {"item": 2}]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "price"),
        ("price", None),
        ("price", ["price", "item"]),
        (["at", "item"], ["item", "at"]),
    ],
)
def test_another_order_is_another_operator(before: Any, after: Any) -> None:
    disk = SimulatedDisk()
    OperatorLogs(disk.storage(), _aggregate(order_by=before), buckets=1)
    OperatorLogs(disk.storage(), _aggregate(order_by=before), buckets=1)
    with pytest.raises(SchemaChanged):
        OperatorLogs(disk.storage(), _aggregate(order_by=after), buckets=1)


@pytest.mark.parametrize(
    ("order_by", "error", "text"),
    [
        ([], SettingError, "order_by names no column"),
        ("no", SettingError, "There is no column 'no'"),
        ("twice", SettingError, r"There is no column 'twice' \(or more than one\)"),
        (["price", "price"], SettingError, r"A column is named twice: \['price', 'price'\]"),
        (5, SettingError, "order_by must be the name of a column or a list of names, got 5"),
        ([5], SettingError, r"order_by must be the name of a column or a list of names, got \[5\]"),
        ({"price": 1}, SettingError, "order_by must be the name of a column or a list of names"),
        ("nested", UnsupportedType, r"cannot be ordered by column 'nested' of type list<"),
        ("bytes", UnsupportedType, r"cannot be ordered by column 'bytes' of type binary"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(
    order_by: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=rf"(?s){text}.*where: order_by"):
        _aggregate(order_by=order_by)
