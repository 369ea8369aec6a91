"""Which rows a stream takes, and in which form."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.support.streams import ORDERS, SECOND, batch_of, orders, written
from trailmark.errors import SchemaChanged
from trailmark.streams.conform import conform

_ZONED = pa.timestamp("us", "Asia/Tokyo")
_UTC = pa.timestamp("us", "UTC")


def _one(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["a"])


def _nested(zone: str) -> pa.DataType:
    time = pa.timestamp("us", zone)
    return pa.struct(
        [
            ("at", time),
            ("all", pa.list_(time)),
            ("by", pa.map_(pa.string(), pa.struct([("when", time)]))),
        ]
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (_one([5, None], _ZONED), _UTC),
        (_one(["x", None], pa.large_string()), pa.string()),
        (_one([b"x", None], pa.large_binary()), pa.binary()),
        (_one([["x"], None], pa.large_list(pa.large_string())), pa.list_(pa.string())),
        (_one([[5, None], [], None], pa.list_(_ZONED)), pa.list_(_UTC)),
        (
            _one(
                [{"at": 5, "all": [1, None], "by": [("k", {"when": 7})]}, None],
                _nested("Asia/Tokyo"),
            ),
            _nested("UTC"),
        ),
        (_one([5], pa.int64()), pa.int64()),
    ],
)
def test_the_same_values_in_another_form_are_taken(
    given: pa.RecordBatch, wanted: pa.DataType
) -> None:
    found = conform(given, pa.schema([("a", wanted)])).column(0)
    assert found.type == wanted
    found.validate(full=True)
    assert found.equals(given.column(0).cast(wanted))
    assert found.null_count == given.column(0).null_count


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (_one([5], pa.int64()), pa.string()),
        (_one(["5"], pa.string()), pa.int32()),
        (_one([5], pa.int64()), pa.int32()),
        (_one([5], pa.int32()), pa.int64()),
        (_one([5.0], pa.float64()), pa.int64()),
        (_one([5], pa.timestamp("us")), _UTC),
        (_one([5], _UTC), pa.timestamp("us")),
        (_one([5], pa.timestamp("ns", "UTC")), _UTC),
        (
            _one([{"a": 1, "b": 2}], pa.struct([("a", pa.int32()), ("b", pa.int32())])),
            pa.struct([("a", pa.int32()), ("c", pa.int32())]),
        ),
        (
            _one([{"a": 1, "b": 2}], pa.struct([("a", pa.int32()), ("b", pa.int32())])),
            pa.struct([("a", pa.int32())]),
        ),
        (_one([[1]], pa.list_(pa.int64())), pa.list_(pa.string())),
        (_one([["x"]], pa.list_(pa.string())), pa.string()),
    ],
)
def test_other_values_are_refused_by_column(given: pa.RecordBatch, wanted: pa.DataType) -> None:
    with pytest.raises(SchemaChanged, match="Column 'a' arrives as") as caught:
        conform(given, pa.schema([("a", wanted)]))
    assert caught.value.where == "a"


@pytest.mark.parametrize("names", [["item", "price"], ["price", "item", "time"], ["a", "b", "c"]])
def test_other_columns_are_refused(names: list[str]) -> None:
    columns = [pa.array([1])] * len(names)
    with pytest.raises(SchemaChanged, match="instead of"):
        conform(pa.RecordBatch.from_arrays(columns, names=names), ORDERS)


def test_nothing_of_a_task_is_committed_if_its_rows_do_not_fit() -> None:
    stream = written()
    with pytest.raises(SchemaChanged):
        stream.writer().write([batch_of(orders(0)), _one([1], pa.int64())])
    assert stream.rows() == []


def test_times_of_every_unit_are_known_in_microseconds() -> None:
    for unit, first, last in (
        ("s", -2 * SECOND, 3 * SECOND),
        ("ms", -2_000, 3_000),
        ("us", -2, 3),
        ("ns", -1, 0),
    ):
        schema = pa.schema([("time", pa.timestamp(unit, "UTC"))])
        stream = written(schema=schema, time_column="time")
        (file,) = stream.write([(-2,), (None,), (3,)])
        assert file.time_range is not None
        assert (file.time_range.min_us, file.time_range.max_us) == (first, last)
        (file,) = stream.write([(None,)])
        assert file.time_range is None
