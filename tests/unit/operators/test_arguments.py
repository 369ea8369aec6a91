"""What an aggregate is told must make sense; what does not is refused with the reason."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.support.userfunctions import spread
from trailmark.errors import SettingError, UnsupportedType
from trailmark.operators.aggregate import Aggregate
from trailmark.windows import functions as f
from trailmark.windows.spec import count_window, time_window

_SCHEMA = pa.schema(
    [
        ("item", pa.int32()),
        ("price", pa.float64()),
        ("time", pa.timestamp("us", "UTC")),
        ("twice", pa.int8()),
        ("twice", pa.int8()),
        ("$odd", pa.int8()),
        ("window_start", pa.int8()),
        ("x.count", pa.int8()),
    ]
)
_GOOD: dict[str, Any] = {"by": "item", "window": count_window(10), "values": {"n": f.count()}}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"by": []}, "Without keys, windows of a count of tuples .* read no column"),
        ({"by": None}, "by must be the name of a column or a list of names, got None"),
        ({"by": [5]}, r"by must be the name of a column or a list of names, got \[5\]"),
        ({"by": {"item": 1}}, "by must be the name of a column or a list of names"),
        ({"by": ["item", "item"]}, "A key column is named twice"),
        ({"by": "no"}, r"There is no column 'no' \(or more than one\); the input has \['item'"),
        ({"by": "twice"}, "There is no column 'twice' .or more than one."),
        ({"by": "$odd"}, r"Names that begin with \$ are used by the log: '\$odd'"),
        (
            {"window": None},
            "window must be a count_window, a time_window or a session_window, got None",
        ),
        (
            {"window": 10},
            "window must be a count_window, a time_window or a session_window, got 10",
        ),
        ({"window": time_window("no", "1 second")}, "There is no column 'no'"),
        (
            {"window": time_window("time", "1 second"), "by": "window_start"},
            "'window_start' is a result column with the bounds",
        ),
        (
            {"window": time_window("time", "1 second"), "values": {"window_end": f.count()}},
            "'window_end' is a result column with the bounds",
        ),
        ({"values": {}}, "values must name at least one function, got {}"),
        ({"values": None}, "values must name at least one function, got None"),
        ({"values": [f.count()]}, "values must name at least one function"),
        ({"values": {"": f.count()}}, "A value needs a name, got ''"),
        ({"values": {3: f.count()}}, "A value needs a name, got 3"),
        ({"values": {"n": "count"}}, r"'n' must be a function such as avg\('price'\), got 'count'"),
        ({"values": {"n": f.avg("no")}}, r"(?s)There is no column 'no'.*where: values\['n'\]"),
        ({"values": {"n": f.sum(5)}}, "given by its name, as text, got 5"),  # type: ignore[arg-type]
        ({"values": {"n": f.min(None)}}, "min needs a column"),  # type: ignore[arg-type]
        ({"values": {"n": spread("no")}}, "There is no column 'no'"),
        ({"values": {"item": f.count()}}, "'item' is the name of another column of the result"),
        ({"values": {"$n": f.count()}}, r"Names that begin with \$"),
        (
            {"by": "x.count", "values": {"x": f.count()}},
            "Two columns of the log would be called 'x.count'",
        ),
        ({"late": "ignore"}, "late must be 'drop' or 'keep', got 'ignore'"),
    ],
)
def test_a_wrong_argument_is_refused_with_the_reason(change: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError, match=text):
        Aggregate(_SCHEMA, **(_GOOD | change))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"by": "price"}, "Column 'price' of type double cannot be a key"),
        ({"window": time_window("item", "1 second")}, "need a timestamp column; 'item' is int32"),
        ({"values": {"n": f.sum("time")}}, "sum cannot take column 'time' of type timestamp"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(UnsupportedType, match=text):
        Aggregate(_SCHEMA, **(_GOOD | change))


def test_count_windows_may_use_the_names_of_window_bounds() -> None:
    operator = Aggregate(
        _SCHEMA, by="window_start", window=count_window(3), values={"window_end": f.count()}
    )
    assert operator.result_schema.names == ["window_start", "window_end"]


def test_only_the_columns_that_are_read_are_asked_for_each_once() -> None:
    operator = Aggregate(
        _SCHEMA,
        by=["item", "x.count"],
        window=time_window("time", "1 second"),
        values={"a": f.avg("price"), "b": f.max("item"), "c": f.count(), "d": spread("price")},
    )
    assert operator.input_schema.names == ["item", "x.count", "time", "price"]
    assert operator.result_schema == pa.schema(
        [
            ("item", pa.int32()),
            ("x.count", pa.int8()),
            ("window_start", pa.timestamp("us", "UTC")),
            ("window_end", pa.timestamp("us", "UTC")),
            ("a", pa.float64()),
            ("b", pa.int32()),
            ("c", pa.int64()),
            ("d", pa.float64()),
        ]
    )


def test_a_description_changes_with_every_argument() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"by": "x.count"},
        {"by": ["item", "x.count"]},
        {"window": count_window(11)},
        {"window": count_window(10, 5)},
        {"window": time_window("time", "1 second")},
        {"window": time_window("time", "1 second", delay="1 second")},
        {"values": {"m": f.count()}},
        {"values": {"n": f.count("price")}},
        {"late": "keep"},
    ]
    described = [repr(Aggregate(_SCHEMA, **(_GOOD | change)).describe()) for change in changes]
    assert len(set(described)) == len(changes)
