"""Each function's rules, one window at a time, across one batch and across several."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.compare import exact
from tests.support.plain import batch_of, plain_column
from trailmark.errors import SettingError, UnsupportedType, ValueOverflow
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import BatchInput
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable
from trailmark.windows import functions as f
from trailmark.windows.functions import AnyFunction
from trailmark.windows.spec import CountWindow

_INF, _NAN = float("inf"), float("nan")
_MAX, _MIN = (1 << 63) - 1, -(1 << 63)


def result_of(call: AnyFunction, kind: pa.DataType, values: list[Any], split: int) -> pa.Array:
    """The function over one window that holds the values, ``split`` of them per batch."""
    schema = pa.schema([("k", pa.int8()), ("v", kind)])
    window = CountWindow(len(values), len(values))
    operator = Aggregate(schema, by="k", window=window, values={"x": call})
    table = StateTable(operator.layout, Memory())
    for batch, start in enumerate(range(0, len(values), split)):
        rows = batch_of(schema, [(1, value) for value in values[start : start + split]], offset=3)
        results = operator.process(table, BatchInput(batch, rows)).results
    assert results.num_rows == 1
    results.validate(full=True)
    return results.column("x")


def check(call: AnyFunction, kind: pa.DataType, values: list[Any], expected: Any) -> None:
    for split in (len(values), 1, 2):
        found = result_of(call, kind, values, split)
        assert exact(plain_column(found)[0]) == exact(expected), f"{split} tuples per batch"


def test_count_counts_tuples_and_count_of_a_column_counts_values() -> None:
    check(f.count(), pa.int32(), [1, None, None], 3)
    check(f.count("v"), pa.int32(), [1, None, None], 1)
    check(f.count("v"), pa.string(), [None, None], 0)
    check(f.count("v"), pa.bool_(), [False, None, True], 2)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.uint64(), 1),
        (pa.float16(), 0.5),
        (pa.time64("us"), 5),
        (pa.binary(), b""),
        (pa.binary(3), b"abc"),
    ],
    ids=str,
)
def test_values_of_any_flat_type_can_be_counted(kind: pa.DataType, value: Any) -> None:
    check(f.count("v"), kind, [value, None, value], 2)


def test_values_of_nested_types_cannot_be_counted() -> None:
    with pytest.raises(UnsupportedType, match="count cannot take column 'v' of type list"):
        result_of(f.count("v"), pa.list_(pa.int8()), [None], 1)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int8(), [127, 127, None, -1], 253),
        (pa.uint32(), [(1 << 32) - 1, 1], 1 << 32),
        (pa.int64(), [_MAX, _MAX, _MIN, _MIN, 5], 3),
        (pa.int64(), [None, None], None),
        (pa.float64(), [0.1, 0.2, 0.3], 0.1 + 0.2 + 0.3),
        (pa.float64(), [-0.0, None], 0.0),
        (pa.float64(), [_INF, -_INF], _NAN),
        (pa.float64(), [1e308, 1e308, -1e308], _INF),
        (pa.float32(), [0.5, None, 0.25], 0.75),
        (pa.float64(), [None], None),
        (pa.decimal128(5, 2), [Decimal("999.99"), Decimal("0.01")], Decimal("1000.00")),
        (pa.decimal128(5, 2), [None], None),
    ],
)
def test_sum_adds_the_values_that_are_not_null(
    kind: pa.DataType, values: list[Any], expected: Any
) -> None:
    check(f.sum("v"), kind, values, expected)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int32(), [1, 2, None], 1.5),
        (pa.int64(), [_MAX, _MAX, _MAX], float(3 * _MAX) / 3.0),
        (pa.int64(), [None], None),
        (pa.float64(), [0.1, 0.2, None], (0.1 + 0.2) / 2.0),
        (pa.float64(), [_NAN, 1.0], _NAN),
        (pa.decimal128(5, 2), [Decimal("1.00"), Decimal("0.01")], Decimal("0.505000")),
        (pa.decimal128(5, 2), [Decimal("1.00"), None, Decimal("0.00")], Decimal("0.500000")),
        (pa.decimal128(3, 0), [Decimal(1), Decimal(1), Decimal(0)], Decimal("0.6667")),
        (pa.decimal128(3, 0), [Decimal(-1), Decimal(-1), Decimal(0)], Decimal("-0.6667")),
    ],
)
def test_avg_divides_the_exact_sum(kind: pa.DataType, values: list[Any], expected: Any) -> None:
    check(f.avg("v"), kind, values, expected)


def test_avg_of_decimals_rounds_a_half_away_from_zero() -> None:
    kind = pa.decimal128(38, 34)
    one = Decimal((0, (1,), -34))
    none = Decimal((0, (0,), -34))
    assert result_of(f.avg("v"), kind, [one, none], 2).type == pa.decimal128(38, 38)
    kind = pa.decimal128(38, 38)
    ones = [Decimal((sign, (1,), -38)) for sign in (0, 1)]
    none = Decimal((0, (0,), -38))
    check(f.avg("v"), kind, [ones[0], none], ones[0])
    check(f.avg("v"), kind, [ones[1], none], ones[1])
    check(f.avg("v"), kind, [ones[0], none, none], none)


@pytest.mark.parametrize(
    ("call", "kind", "expected"),
    [
        (f.sum("v"), pa.int8(), pa.int64()),
        (f.sum("v"), pa.uint16(), pa.int64()),
        (f.sum("v"), pa.float32(), pa.float64()),
        (f.sum("v"), pa.decimal128(5, 2), pa.decimal128(15, 2)),
        (f.sum("v"), pa.decimal128(30, 2), pa.decimal128(38, 2)),
        (f.avg("v"), pa.int64(), pa.float64()),
        (f.avg("v"), pa.decimal128(5, 2), pa.decimal128(9, 6)),
        (f.avg("v"), pa.decimal128(36, 35), pa.decimal128(38, 38)),
        (f.min("v"), pa.float32(), pa.float32()),
        (f.max("v"), pa.timestamp("ms", "UTC"), pa.timestamp("ms", "UTC")),
        (f.first("v"), pa.large_string(), pa.large_string()),
        (f.last("v"), pa.date64(), pa.date64()),
        (f.min("v"), pa.bool_(), pa.bool_()),
        (f.max("v"), pa.decimal128(5, 2), pa.decimal128(5, 2)),
        (f.stddev("v"), pa.int8(), pa.float64()),
        (f.variance("v"), pa.decimal128(5, 2), pa.float64()),
        (f.count("v"), pa.string(), pa.int64()),
    ],
)
def test_results_have_the_types_spark_gives_them(
    call: AnyFunction, kind: pa.DataType, expected: pa.DataType
) -> None:
    assert result_of(call, kind, [None], 1).type == expected
    schema = pa.schema([("k", pa.int8()), ("v", kind)])
    operator = Aggregate(schema, by="k", window=CountWindow(1, 1), values={"x": call})
    assert operator.result_schema.field("x").type == expected


@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [_MAX, 1]),
        (pa.int64(), [_MIN, -1]),
        (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1)]),
        (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(10**38 - 1)]),
        (pa.decimal128(38, 2), [Decimal((1, (9,) * 38, -2)), Decimal((1, (9,) * 38, -2))]),
        (pa.decimal128(37, 0), [Decimal(10**37 - 1)] * 11),
    ],
)
def test_a_sum_that_does_not_fit_is_an_error_or_null(
    kind: pa.DataType, values: list[Any], split: int
) -> None:
    with pytest.raises(ValueOverflow, match=r"sum of column 'v' does not fit .* in 1 window"):
        result_of(f.sum("v"), kind, values, split)
    assert result_of(f.sum("v", overflow="null"), kind, values, split).to_pylist() == [None]


def test_an_average_that_does_not_fit_is_an_error_or_null() -> None:
    values = [Decimal(10**38 - 1), Decimal(10**38 - 2)]
    kind = pa.decimal128(38, 0)
    with pytest.raises(ValueOverflow, match="avg of column 'v' does not fit"):
        result_of(f.avg("v"), kind, values[:1], 1)
    check(f.avg("v", overflow="null"), kind, values[:1], None)
    check(f.avg("v", overflow="null"), kind, values, None)


def test_a_lost_decimal_sum_stays_lost() -> None:
    most = Decimal(10**38 - 1)
    values = [most, most, -most, -most, Decimal(1)]
    check(f.sum("v", overflow="null"), pa.decimal128(38, 0), values, None)


@pytest.mark.parametrize(
    ("kind", "values", "least", "greatest"),
    [
        (pa.int64(), [3, None, _MIN, _MAX], _MIN, _MAX),
        (pa.uint8(), [200, 3], 3, 200),
        (pa.float64(), [1.0, _NAN, -_INF], -_INF, _NAN),
        (pa.float64(), [_NAN, _NAN], _NAN, _NAN),
        (pa.float64(), [_NAN, _INF], _INF, _NAN),
        (pa.float64(), [0.0, -0.0], 0.0, 0.0),
        (pa.float64(), [-0.0, 0.0], -0.0, -0.0),
        (pa.float32(), [0.5, 0.25, None], 0.25, 0.5),
        (pa.bool_(), [True, None, False], False, True),
        (pa.date32(), [-5, 7], -5, 7),
        (pa.date64(), [-86_400_000, 86_400_000], -86_400_000, 86_400_000),
        (pa.timestamp("ns", "UTC"), [-1, 1], -1, 1),
        (
            pa.decimal128(38, 2),
            [Decimal("-1.50"), Decimal("2.25")],
            Decimal("-1.50"),
            Decimal("2.25"),
        ),
        (pa.string(), ["b", "", None, "ab", "B"], "", "b"),
        (pa.string(), ["\U0001f642", "\uffff"], "\uffff", "\U0001f642"),
        (pa.string(), ["aa", "a"], "a", "aa"),
        (pa.large_string(), ["z" * 700, "z" * 701], "z" * 700, "z" * 701),
        (pa.string(), [None, None], None, None),
        (pa.int8(), [None], None, None),
    ],
)
def test_min_and_max_pass_over_nulls_and_put_nan_last(
    kind: pa.DataType, values: list[Any], least: Any, greatest: Any
) -> None:
    check(f.min("v"), kind, values, least)
    check(f.max("v"), kind, values, greatest)


@pytest.mark.parametrize(
    ("kind", "a", "b"),
    [
        (pa.int32(), 1, 2),
        (pa.float64(), -0.0, _NAN),
        (pa.bool_(), False, True),
        (pa.decimal128(20, 3), Decimal("1.500"), Decimal("-2.000")),
        (pa.string(), "", "long" * 300),
        (pa.timestamp("us"), 0, -1),
    ],
    ids=str,
)
def test_first_and_last_take_nulls_unless_told_to_ignore_them(
    kind: pa.DataType, a: Any, b: Any
) -> None:
    check(f.first("v"), kind, [a, b], a)
    check(f.last("v"), kind, [a, b], b)
    check(f.first("v"), kind, [None, a, b], None)
    check(f.last("v"), kind, [a, b, None], None)
    check(f.last("v"), kind, [None, a], a)
    check(f.first("v", ignore_nulls=True), kind, [None, a, b], a)
    check(f.last("v", ignore_nulls=True), kind, [a, b, None], b)
    check(f.last("v", ignore_nulls=True), kind, [None, None], None)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.float64(), [1.0, 2.0, 3.0, 4.0, None], 5.0 / 3.0),
        (pa.int64(), [2, 2, 2], 0.0),
        (pa.int64(), [1], None),
        (pa.int64(), [None, 1, None], None),
        (pa.float64(), [1.0, _INF], _NAN),
        (pa.decimal128(5, 2), [Decimal("-99.99"), Decimal("-99.99")], 0.0),
        (pa.float32(), [0.5, 1.5], 0.5),
    ],
)
def test_variance_and_stddev_are_of_a_sample_and_need_two_values(
    kind: pa.DataType, values: list[Any], expected: float | None
) -> None:
    check(f.variance("v"), kind, values, expected)
    check(f.stddev("v"), kind, values, None if expected is None else math.sqrt(expected))


def test_decimals_become_the_nearest_double_before_their_variance_is_taken() -> None:
    decimals = [Decimal("-99.99"), Decimal("0.01"), Decimal("867046.37"), Decimal("9.99")]
    floats = [float(value) for value in decimals]
    expected = result_of(f.variance("v"), pa.float64(), floats, 4)
    check(f.variance("v"), pa.decimal128(9, 2), decimals, expected[0].as_py())


@pytest.mark.parametrize("call", [f.sum("v"), f.avg("v"), f.stddev("v"), f.variance("v")], ids=str)
@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.bool_(), pa.timestamp("us"), pa.date32(), pa.uint64(), pa.binary()],
    ids=str,
)
def test_arithmetic_on_what_is_no_number_is_refused(call: AnyFunction, kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedType, match=r"cannot take column 'v' of type .*"):
        result_of(call, kind, [None], 1)


@pytest.mark.parametrize("call", [f.min("v"), f.max("v"), f.first("v"), f.last("v")], ids=str)
@pytest.mark.parametrize(
    "kind", [pa.uint64(), pa.binary(), pa.time64("us"), pa.float16(), pa.list_(pa.int8())], ids=str
)
def test_values_that_cannot_be_held_are_refused(call: AnyFunction, kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedType, match=f"{call.describe()['function']} cannot take column"):
        result_of(call, kind, [None], 1)


@pytest.mark.parametrize("make", [f.sum, f.avg])
def test_overflow_is_error_or_null(make: Any) -> None:
    assert make("v").overflow == "error"
    with pytest.raises(SettingError, match=r"overflow must be 'error' or 'null', got 'wrap'"):
        make("v", overflow="wrap")


def test_a_description_tells_every_option() -> None:
    assert f.last("v", ignore_nulls=True).describe() == {
        "function": "last",
        "column": "v",
        "overflow": "error",
        "skip_nulls": True,
    }
    assert f.sum("v", overflow="null").describe()["overflow"] == "null"
    assert f.count().columns == ()
