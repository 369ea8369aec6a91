"""The fingerprint tells batches apart by their rows, and by nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.plain import array_of, batch_of
from trailmark.kernel.columns import contiguous, is_readable
from trailmark.kernel.fingerprints import fingerprint, joined

_VALUES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int8(), 1, 2),
    (pa.int16(), 1, 257),
    (pa.int32(), 1, 65537),
    (pa.int64(), 1, (1 << 32) + 1),
    (pa.uint64(), 1, 1 << 63),
    (pa.float32(), 0.0, -0.0),
    (pa.float64(), 0.0, -0.0),
    (pa.bool_(), False, True),
    (pa.date32(), 1, 2),
    (pa.timestamp("us"), 1, 2),
    (pa.decimal128(38, 2), Decimal("1.00"), Decimal("18446744073709551617.00")),
    (pa.decimal256(50, 0), Decimal("1"), Decimal("340282366920938463463374607431768211457")),
    (pa.binary(3), b"abc", b"abd"),
    (pa.binary(20), b"a" * 20, b"a" * 19 + b"b"),
    (pa.string(), "", "\0"),
    (pa.string(), "abcdefgh", "abcdefgh\0"),
    (pa.large_string(), "a", "b"),
    (pa.binary(), b"\0", b"\0\0"),
]


def _one(values: Sequence[Any], kind: pa.DataType) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["a"])


@pytest.mark.parametrize(("kind", "value", "other"), _VALUES, ids=str)
def test_any_changed_value_changes_it(kind: pa.DataType, value: Any, other: Any) -> None:
    digests = {
        fingerprint(_one(values, kind)).digest
        for values in ([value, value], [value, other], [other, other], [value, None], [None, None])
    }
    assert len(digests) == 5
    assert is_readable(kind)


@pytest.mark.parametrize(("kind", "value", "other"), _VALUES, ids=str)
def test_the_order_of_rows_does_not_matter(kind: pa.DataType, value: Any, other: Any) -> None:
    rows = [value, other, None, value]
    assert fingerprint(_one(rows, kind)) == fingerprint(_one(rows[::-1], kind))


def test_it_counts_rows_and_repetitions() -> None:
    once, twice = _one([1, 2], pa.int32()), _one([1, 2, 1, 2], pa.int32())
    assert fingerprint(once).rows == 2
    assert fingerprint(twice).rows == 4
    assert fingerprint(once).digest != fingerprint(twice).digest


def test_the_order_of_columns_matters() -> None:
    a, b = pa.array([1, 2], pa.int64()), pa.array([3, 4], pa.int64())
    forward = pa.RecordBatch.from_arrays([a, b], names=["a", "b"])
    backward = pa.RecordBatch.from_arrays([b, a], names=["a", "b"])
    assert fingerprint(forward) != fingerprint(backward)


def test_values_swapped_between_rows_change_it() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    together = batch_of(schema, [(1, "x"), (2, "y")])
    swapped = batch_of(schema, [(1, "y"), (2, "x")])
    assert fingerprint(together) != fingerprint(swapped)


def test_the_border_between_two_strings_matters() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    assert fingerprint(batch_of(schema, [("ab", "c")])) != fingerprint(
        batch_of(schema, [("a", "bc")])
    )


def test_a_null_differs_from_zero_and_from_an_empty_string() -> None:
    assert fingerprint(_one([None], pa.int64())) != fingerprint(_one([0], pa.int64()))
    assert fingerprint(_one([None], pa.string())) != fingerprint(_one([""], pa.string()))
    assert fingerprint(_one([None], pa.bool_())) != fingerprint(_one([False], pa.bool_()))


@pytest.mark.parametrize(("kind", "value", "other"), _VALUES, ids=str)
def test_slices_have_the_fingerprint_of_a_copy(kind: pa.DataType, value: Any, other: Any) -> None:
    values = [value, None, other, other, value, None, other, value, None, value, other]
    whole = _one(values, kind)
    for start in range(len(values)):
        for length in (0, 1, len(values) - start):
            part = whole.slice(start, length)
            assert fingerprint(part) == fingerprint(_one(values[start : start + length], kind))


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.string(), pa.bool_(), pa.decimal128(9, 2)], ids=str
)
def test_what_lies_under_a_null_does_not_matter(kind: pa.DataType) -> None:
    hidden = array_of([None, None, None], kind, offset=5)
    assert hidden.null_count == 3
    plain = pa.nulls(3, kind)
    assert fingerprint(pa.RecordBatch.from_arrays([hidden], names=["a"])) == fingerprint(
        pa.RecordBatch.from_arrays([plain], names=["a"])
    )


def test_chunks_do_not_matter() -> None:
    values = ["a", None, "", "long" * 200, "b"]
    whole = _one(values, pa.string())
    chunked = pa.Table.from_batches([whole.slice(0, 2), whole.slice(2, 0), whole.slice(2)])
    assert chunked.column(0).num_chunks == 3
    assert fingerprint(contiguous(chunked)) == fingerprint(whole)


def test_large_and_dictionary_strings_equal_strings() -> None:
    values = ["a", None, "", "b", "a"]
    plain = fingerprint(_one(values, pa.string()))
    assert fingerprint(_one(values, pa.large_string())) == plain
    encoded = pa.array(values, pa.string()).dictionary_encode()
    assert fingerprint(pa.RecordBatch.from_arrays([encoded], names=["a"])) == plain


def test_a_batch_without_rows_has_one() -> None:
    assert fingerprint(_one([], pa.int32())) == fingerprint(_one([], pa.string()))
    assert fingerprint(_one([], pa.int32())).rows == 0


@pytest.mark.parametrize(
    "kind",
    [pa.null(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.string_view()],
    ids=str,
)
def test_nested_and_view_types_are_known_to_be_unreadable(kind: pa.DataType) -> None:
    assert not is_readable(kind)
    assert not is_readable(pa.dictionary(pa.int8(), pa.list_(kind)))


_BITS = (1 << 64) - 1
_NULL = 0xA5A5A5A55A5A5A5A


def _absorb(digest: int, word: int) -> int:
    digest = (digest ^ word) * 0x9E3779B97F4A7C15 & _BITS
    return digest ^ digest >> 29


def _finish(digest: int) -> int:
    digest = (digest ^ digest >> 33) * 0xFF51AFD7ED558CCD & _BITS
    digest = (digest ^ digest >> 33) * 0xC4CEB9FE1A85EC53 & _BITS
    return digest ^ digest >> 33


def _absorb_value(digest: int, value: int | str | bool | None) -> int:
    if value is None:
        return _absorb(~digest & _BITS, _NULL)
    if isinstance(value, str):
        text = value.encode()
        digest = _absorb(digest, len(text))
        for at in range(0, len(text), 8):
            digest = _absorb(digest, int.from_bytes(text[at : at + 8], "little"))
        return digest
    return _absorb(digest, value & 0xFFFFFFFF)


def test_the_digest_is_the_one_that_the_format_documents() -> None:
    rows = pa.record_batch(
        {
            "whole": pa.array([1, None, -3], pa.int32()),
            "text": pa.array(["", "hello world", None]),
            "truth": pa.array([True, False, None]),
        }
    )
    total = 0
    for row in rows.to_pylist():
        digest = 0x243F6A8885A308D3
        for value in row.values():
            digest = _absorb_value(digest, value)
        total = (total + _finish(digest)) & _BITS
    assert fingerprint(rows).digest == total


# Columns with columns in them.

_STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])
_NESTED: list[tuple[pa.DataType, list[Any]]] = [
    (_STRUCT, [None, {"a": None, "b": None}, {"a": 1, "b": "x"}, {"a": 1, "b": None}]),
    (pa.list_(pa.int32()), [None, [], [None], [1, 2], [2, 1], [1], [1, 2, None]]),
    (pa.large_list(pa.string()), [None, [], ["ab", "c"], ["a", "bc"], ["abc"]]),
    (pa.list_(pa.float64(), 2), [None, [0.0, 1.0], [-0.0, 1.0], [float("nan"), 1.0], [None, 1.0]]),
    (pa.list_(pa.list_(pa.int8())), [None, [], [[]], [None], [[], []], [[1, 2]], [[1], [2]]]),
    (pa.map_(pa.string(), pa.int64()), [None, [], [("a", 1)], [("a", 2)], [("a", 1), ("b", 2)]]),
    (pa.map_(pa.string(), pa.list_(_STRUCT)), [None, [("a", [])], [("a", [{"a": 1, "b": "x"}])]]),
    (pa.list_(pa.timestamp("us", "UTC")), [[1], [2], [None]]),
    (pa.struct([("d", pa.decimal128(38, 2))]), [{"d": Decimal("1.00")}, {"d": None}, None]),
]


@pytest.mark.parametrize(("kind", "values"), _NESTED, ids=str)
def test_nested_values_that_differ_have_different_ones(kind: pa.DataType, values: Any) -> None:
    assert len({fingerprint(_one([value], kind)).digest for value in values}) == len(values)


@pytest.mark.parametrize(("kind", "values"), _NESTED, ids=str)
def test_nested_values_have_them_wherever_they_lie(kind: pa.DataType, values: Any) -> None:
    values = values * 5
    whole = _one(values, kind)
    assert fingerprint(_one(values[::-1], kind)) == fingerprint(whole)
    for start in range(len(values)):
        for length in (0, 1, 3, len(values) - start):
            part = whole.slice(start, length)
            assert fingerprint(part) == fingerprint(_one(values[start : start + length], kind))


@pytest.mark.parametrize("count", [1, 2, 7])
def test_rows_have_one_however_they_are_cut(count: int) -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"a": n % 3, "b": [str(n)] * (n % 4), "c": {"d": None if n % 5 else n}} for n in range(50)]
    )
    parts = [rows.slice(first, count) for first in range(0, rows.num_rows, count)]
    assert joined(fingerprint(part) for part in reversed(parts)) == fingerprint(rows)


def test_entries_of_a_map_have_no_order() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    one, other = [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]
    assert fingerprint(_one([one], kind)) == fingerprint(_one([other], kind))
    swapped = [("a", 2), ("b", 1)]
    assert fingerprint(_one([one], kind)) != fingerprint(_one([swapped], kind))


def test_a_column_of_nothing_but_nulls_has_one() -> None:
    assert fingerprint(_one([None, None], pa.null())).rows == 2


def test_wider_offsets_and_dictionaries_do_not_matter() -> None:
    words = ["a", None, "bc", "a"]
    expected = fingerprint(_one(words, pa.string()))
    assert fingerprint(_one(words, pa.large_string())) == expected
    encoded = pa.array(words).dictionary_encode()
    assert fingerprint(pa.RecordBatch.from_arrays([encoded], names=["a"])) == expected


def test_what_lies_under_a_null_list_does_not_matter() -> None:
    offsets, values = pa.array([0, 2, 3], pa.int32()), pa.array([1, 2, 3], pa.int32())
    hidden = pa.ListArray.from_arrays(offsets, values, mask=pa.array([True, False]))
    assert fingerprint(pa.RecordBatch.from_arrays([hidden], names=["a"])) == fingerprint(
        _one([None, [3]], pa.list_(pa.int32()))
    )
