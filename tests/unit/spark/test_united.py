"""The rows of several inputs come apart as they were sent together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from trailmark.errors import TrailmarkError
from trailmark.operators.protocol import Port
from trailmark.spark.united import (
    HAS_NO_MARK,
    IS_TENTATIVE,
    MARKS,
    MOST_US,
    PORT,
    TENTATIVE,
    United,
)

_LEFT = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
_RIGHT = pa.schema([("key", pa.string()), ("value", pa.list_(pa.int8()))])
_UNITED = United((Port("left", _LEFT), Port("right", _RIGHT)), ("key",))


def _sent(*rows: tuple[object, ...]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(_UNITED.schema)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, f.type) for column, f in zip(columns, _UNITED.schema, strict=True)],
        schema=_UNITED.schema,
    )


def test_keys_are_shared_and_columns_of_one_name_are_not() -> None:
    assert _UNITED.schema.names == [PORT, "key", "$0:at", "$0:value", "$1:value"]
    assert [field.type for field in _UNITED.schema][2:] == [
        pa.timestamp("us"),
        pa.int64(),
        pa.list_(pa.int8()),
    ]


def test_rows_come_apart_in_their_order() -> None:
    parted = _UNITED.part(
        _sent(
            (1, "a", None, None, [1]),
            (0, "a", 5, 6, None),
            (0, None, None, None, None),
            (1, None, None, None, None),
            (1, "b", None, None, []),
        )
    )
    left, right = parted.tables
    assert left.schema.equals(_LEFT)
    assert right.schema.equals(_RIGHT)
    assert left.column("at").cast(pa.int64()).to_pylist() == [5, None]
    assert left.column("value").to_pylist() == [6, None]
    assert right.to_pylist() == [
        {"key": "a", "value": [1]},
        {"key": None, "value": None},
        {"key": "b", "value": []},
    ]
    assert parted.order is not None
    assert np.array_equal(parted.order, [1, 0, 0, 1, 1])


def test_an_input_without_rows_is_empty() -> None:
    for rows in ((), ((1, "a", None, None, [1]),)):
        parted = _UNITED.part(_sent(*rows))
        assert [table.num_rows for table in parted.tables] == [0, len(rows)]
        assert parted.tables[0].schema.equals(_LEFT)


def test_the_rows_of_the_only_input_are_sent_as_they_are() -> None:
    alone = United((Port("input", _LEFT),), ("key",))
    assert alone.schema is _LEFT
    given = pa.RecordBatch.from_pylist([{"key": "a", "value": 1}], _LEFT)
    assert alone.part(given).tables == (given,)


_TIMED = pa.schema([("key", pa.string()), ("at", pa.timestamp("us", "UTC")), ("value", pa.int64())])
_MARKED = United((Port("input", _TIMED, event_time="at"),), ("key",), is_marked=True)


def _as_sent(*rows: tuple[str, int | None, int, int]) -> pa.RecordBatch:
    """Rows of a key, an instant in microseconds, a value and a mark."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": key,
                "at": (-MOST_US if instant is None else instant) * MARKS + mark,
                "value": value,
            }
            for key, instant, value, mark in rows
        ],
        _MARKED.schema,
    )


def test_the_mark_of_the_only_input_travels_in_its_times() -> None:
    assert _MARKED.schema.types == [pa.string(), pa.int64(), pa.int64()]
    rows = [("a", 5, 1, 0), ("b", -7, 2, IS_TENTATIVE), ("c", None, 3, 0), ("d", MOST_US - 1, 4, 0)]
    rows += [("e", None, 5, IS_TENTATIVE), ("f", 1 - MOST_US, 6, IS_TENTATIVE)]
    stable, tentative = _MARKED.part_marked(_as_sent(*rows), "tm.aggregate")
    assert tentative is not None
    for found, is_tentative in ((stable, 0), (tentative, IS_TENTATIVE)):
        (table,) = found.tables
        assert table.schema.equals(_TIMED)
        table.validate(full=True)
        expected = [(key, at, value) for key, at, value, mark in rows if mark == is_tentative]
        instants = table.column("at").cast(pa.int64()).to_pylist()
        assert expected == list(
            zip(
                table.column("key").to_pylist(),
                instants,
                table.column("value").to_pylist(),
                strict=True,
            )
        )


def test_a_row_without_a_mark_is_refused() -> None:
    sent = _as_sent(("a", 5, 1, 0), ("b", 6, 2, HAS_NO_MARK), ("c", None, 3, HAS_NO_MARK))
    with pytest.raises(TrailmarkError, match="2 rows do not say whether they are tentative"):
        _MARKED.part_marked(sent, "tm.aggregate")


@pytest.mark.parametrize(
    "united",
    [
        United((Port("input", _TIMED),), ("key",), is_marked=True),
        United((Port("input", _TIMED, event_time="at"),), ("at",), is_marked=True),
        United((Port("a", _TIMED, event_time="at"), Port("b", _TIMED)), ("key",), is_marked=True),
    ],
    ids=["no times", "the time is the key", "several inputs"],
)
def test_elsewhere_it_has_a_column_of_its_own(united: United) -> None:
    assert united.marked_time is None
    assert united.schema.names[-1] == TENTATIVE
