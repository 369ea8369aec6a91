"""Functions that hold the values of a window, one window at a time, across several batches."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.compare import exact
from tests.support.plain import plain_column
from tests.unit.windows.test_functions import result_of
from trailmark.errors import SettingError, UnsupportedType
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import BatchInput
from trailmark.records import FOOTPRINT
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable
from trailmark.windows import functions as f
from trailmark.windows.functions import AnyFunction
from trailmark.windows.spec import CountWindow

_NAN, _INF = float("nan"), float("inf")
_MANY = (0.0, 0.5, 1.0)


@pytest.mark.parametrize("split", [1, 2, 100])
@pytest.mark.parametrize(
    ("call", "kind", "values", "expected"),
    [
        (f.collect_list("v"), pa.int16(), [3, None, 1, 3], [3, 1, 3]),
        (
            f.collect_list("v"),
            pa.string(),
            ["b", "", None, "ä" * 40, "b"],
            ["b", "", "ä" * 40, "b"],
        ),
        (f.collect_list("v"), pa.large_string(), ["b", None], ["b"]),
        (f.collect_list("v"), pa.bool_(), [True, None, False], [True, False]),
        (f.collect_list("v"), pa.float32(), [1.5, _NAN, -0.0], [1.5, _NAN, -0.0]),
        (f.collect_list("v"), pa.string(), [None, None], []),
        (f.collect_set("v"), pa.int64(), [3, None, 1, 3, 1 << 62], [3, 1, 1 << 62]),
        (f.collect_set("v"), pa.string(), ["x", "", "x", None, ""], ["x", ""]),
        (f.collect_set("v"), pa.float64(), [_NAN, -0.0, 0.0, _NAN, _INF], [_NAN, 0.0, _INF]),
        (
            f.collect_set("v"),
            pa.decimal128(5, 2),
            [Decimal("1.10"), Decimal("1.10")],
            [Decimal("1.10")],
        ),
        (f.count_distinct("v"), pa.date32(), [5, 5, None, 7], 2),
        (f.count_distinct("v"), pa.timestamp("us", "UTC"), [5, 5, 7, 8], 3),
        (f.count_distinct("v"), pa.int8(), [None], 0),
        (f.percentile("v"), pa.int32(), [4, 1, None, 2, 3], 2.5),
        (f.percentile("v", 1), pa.float64(), [1.0, _NAN, _INF], _NAN),
        (f.percentile("v", 0.25), pa.decimal128(5, 1), [Decimal("0.1"), Decimal("0.3")], 0.15),
        (f.percentile("v", _MANY), pa.int64(), [10, 20, 40], [10.0, 20.0, 40.0]),
        (f.percentile("v", _MANY), pa.int64(), [None, None], None),
        (f.percentile("v"), pa.int64(), [None, None], None),
    ],
)
def test_values_that_are_held(
    call: AnyFunction, kind: pa.DataType, values: list[Any], expected: Any, split: int
) -> None:
    column = result_of(call, kind, values, split)
    assert exact(plain_column(column)[0]) == exact(expected)
    if pa.types.is_list(column.type) and call.columns and not isinstance(call.at, tuple):  # type: ignore[union-attr]
        assert column.type == pa.list_(kind)


def test_a_value_that_cannot_be_held_is_refused() -> None:
    for call in (f.collect_list("v"), f.collect_set("v"), f.count_distinct("v"), f.percentile("v")):
        with pytest.raises(UnsupportedType, match=f"{call.name} cannot take column 'v'"):
            result_of(call, pa.list_(pa.int8()), [[1]], 1)
    with pytest.raises(UnsupportedType, match="percentile cannot take column 'v' of type string"):
        result_of(f.percentile("v"), pa.string(), ["x"], 1)


@pytest.mark.parametrize("at", [-0.1, 1.1, _NAN, "0.5", None, True, [], [0.5, 2]], ids=str)
def test_a_percentile_lies_between_0_and_1(at: Any) -> None:
    with pytest.raises(SettingError, match="A percentile lies between 0 and 1"):
        f.percentile("v", at)


def test_footprints_are_as_heavy_as_what_they_hold_and_lists_without_nulls() -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    values: dict[str, AnyFunction] = {"all": f.collect_list("v"), "n": f.count()}
    operator = Aggregate(schema, by="k", window=CountWindow(10_000, 10_000), values=values)
    table = StateTable(operator.layout, Memory())
    words = [f"a rather long word with number {n}" for n in range(2_000)]
    rows = pa.record_batch(
        [pa.array([n % 2 for n in range(2_000)]), pa.array(words)], schema=schema
    )
    operator.process(table, BatchInput(0, rows))
    footprints = operator.footprints(table, table.slots(), 0)
    assert operator.weigh(footprints) > 1_000
    assert sorted(footprints.column("all.values").flatten().to_pylist()) == sorted(words)
    assert not operator.trouble(footprints, 0)
    broken = footprints.set_column(
        footprints.schema.get_field_index("all.values"),
        "all.values",
        pa.array([["x", None], []], pa.list_(pa.string())),
    )
    assert "nulls among the values" in operator.trouble(broken, 0)
    loaded = StateTable(operator.layout, Memory())
    stamped = footprints.append_column(FOOTPRINT, pa.array([0, 0]))
    operator.load(loaded, stamped, "test")
    assert operator.content(loaded).equals(operator.content(table))


def test_what_windows_held_is_given_back_when_they_close() -> None:
    """However many windows come and go, the heap does not grow."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    operator = Aggregate(
        schema, by="k", window=CountWindow(60, 60), values={"all": f.collect_set("v")}
    )
    table = StateTable(operator.layout, Memory())
    tops = []
    for batch in range(60):
        numbers = pa.array([batch * 7 + n for n in range(20)])
        rows = pa.record_batch([pa.array([0] * 20), numbers], schema=schema)
        operator.process(table, BatchInput(batch, rows))
        tops.append(int(table.header.heap_top))
    assert max(tops) == max(tops[:6])
