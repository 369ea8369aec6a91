"""The rows of several inputs come apart as they were sent together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trailmark.operators.protocol import Port
from trailmark.spark.united import PORT, United

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
