"""Keys become bytes and come back as they were, for every type a key may have."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.plain import array_of, batch_of, plain_column, plain_rows
from trailmark.errors import UnsupportedType
from trailmark.kernel import scratch
from trailmark.state.keys import EncodedKeys, KeyLayout

_LONG = "long " * 200
_TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, 0, 127]),
    (pa.int16(), [-32768, 0, 32767]),
    (pa.int32(), [-(1 << 31), 0, (1 << 31) - 1]),
    (pa.int64(), [-(1 << 63), 0, (1 << 63) - 1]),
    (pa.uint8(), [0, 1, 255]),
    (pa.uint16(), [0, 1, 65535]),
    (pa.uint32(), [0, 1, (1 << 32) - 1]),
    (pa.uint64(), [0, 1, (1 << 64) - 1]),
    (pa.bool_(), [True, False, True]),
    (pa.date32(), [-1, 0, 20_000]),
    (pa.date64(), [-86_400_000, 0, 86_400_000]),
    (pa.timestamp("s"), [-1, 0, 1]),
    (pa.timestamp("us", "UTC"), [-1, 0, 1]),
    (pa.timestamp("ns"), [-1, 0, 1]),
    (pa.decimal128(38, 9), [Decimal("-1.000000000"), Decimal("0E-9"), Decimal("9.999999999")]),
    (pa.string(), ["", "a\0b", "日本語🙂" + _LONG]),
    (pa.large_string(), ["", "a\0b", "日本語🙂" + _LONG]),
]


@pytest.fixture(autouse=True)
def _encodings_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two encodings can be compared: the second does not use the memory of the first."""
    monkeypatch.setattr(scratch, "_MOST_BYTES", -1)


def _round_trip(layout: KeyLayout, encoded: EncodedKeys) -> list[pa.Array]:
    return layout.decode(encoded.records, encoded.blobs)


@pytest.mark.parametrize(("kind", "values"), _TYPES, ids=str)
@pytest.mark.parametrize("offset", [0, 1, 7, 8, 9])
def test_every_type_comes_back_as_it_was(kind: pa.DataType, values: list[Any], offset: int) -> None:
    rows = [*values, None, values[0], None, values[-1]]
    column = array_of(rows, kind, offset)
    batch = pa.RecordBatch.from_arrays([column], names=["k"])
    layout = KeyLayout(list(batch.schema))
    back = _round_trip(layout, layout.encode(batch, seed=1))[0]
    back.validate(full=True)
    assert back.type == kind
    assert plain_column(back) == rows


def test_all_types_together_come_back_as_they_were() -> None:
    schema = pa.schema([(f"k{place}", kind) for place, (kind, _) in enumerate(_TYPES)])
    rows = [tuple(values[row] for _, values in _TYPES) for row in range(3)]
    rows.append(tuple(None for _ in _TYPES))
    rows += [tuple(None if (row + p) % 2 else v for p, v in enumerate(rows[0])) for row in (0, 1)]
    for offset in (0, 3):
        batch = batch_of(schema, rows, offset)
        layout = KeyLayout(list(schema))
        back = _round_trip(layout, layout.encode(batch, seed=7))
        assert plain_rows(pa.RecordBatch.from_arrays(back, schema=schema)) == plain_rows(batch)


def test_equal_keys_have_equal_bytes_and_hashes_wherever_they_lie() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int16()), ("c", pa.bool_())])
    rows = [("x", 1, True), (None, 2, None), ("", None, False), ("y" * 600, -1, True)]
    layout = KeyLayout(list(schema))
    straight = layout.encode(batch_of(schema, rows), seed=3)
    shifted = layout.encode(batch_of(schema, rows, offset=11), seed=3)
    assert straight.records.tolist() == shifted.records.tolist()
    assert straight.hashes.tolist() == shifted.hashes.tolist()


def test_different_keys_have_different_bytes() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), (None, "abc"), ("abc", None)]
    layout = KeyLayout(list(schema))
    encoded = layout.encode(batch_of(schema, pairs), seed=3)
    assert len(set(map(tuple, encoded.records.tolist()))) == len(pairs)
    assert len(set(encoded.hashes.tolist())) == len(pairs)


def test_a_null_is_no_zero_and_no_empty_string() -> None:
    for kind, zero in ((pa.int64(), 0), (pa.bool_(), False), (pa.string(), "")):
        schema = pa.schema([("k", kind)])
        layout = KeyLayout(list(schema))
        encoded = layout.encode(batch_of(schema, [(zero,), (None,)]), seed=0)
        assert encoded.records[0].tolist() != encoded.records[1].tolist()
        assert encoded.hashes[0] != encoded.hashes[1]


def test_more_than_eight_key_columns_have_their_own_null_bits() -> None:
    schema = pa.schema([(f"k{place}", pa.int8()) for place in range(17)])
    rows = [tuple(None if place == null else 0 for place in range(17)) for null in range(17)]
    layout = KeyLayout(list(schema))
    encoded = layout.encode(batch_of(schema, rows), seed=0)
    assert len(set(map(tuple, encoded.records.tolist()))) == 17
    back = _round_trip(layout, encoded)
    assert list(zip(*(column.to_pylist() for column in back), strict=True)) == rows


def test_strings_hidden_under_nulls_are_not_part_of_the_key() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    layout = KeyLayout(list(schema))
    hidden = layout.encode(batch_of(schema, [("shown", "b"), (None, "b")]), seed=0)
    clean = layout.encode(
        pa.record_batch([pa.array(["shown", None]), pa.array(["b", "b"])], schema=schema), seed=0
    )
    assert hidden.hashes.tolist() == clean.hashes.tolist()
    assert hidden.blob_lengths is not None
    assert hidden.blob_lengths.tolist() == [6, 1]


def test_another_seed_gives_other_hashes() -> None:
    schema = pa.schema([("k", pa.int32())])
    layout = KeyLayout(list(schema))
    batch = batch_of(schema, [(n,) for n in range(50)])
    one, two = layout.encode(batch, seed=1), layout.encode(batch, seed=(1 << 64) - 1)
    assert not set(one.hashes.tolist()) & set(two.hashes.tolist())


def test_no_rows_give_no_keys() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int8())])
    layout = KeyLayout(list(schema))
    encoded = layout.encode(batch_of(schema, []), seed=0)
    assert encoded.count == 0
    assert [len(column) for column in _round_trip(layout, encoded)] == [0, 0]


def test_dictionary_encoded_keys_equal_plain_ones() -> None:
    schema = pa.schema([("k", pa.string())])
    layout = KeyLayout(list(schema))
    plain = pa.array(["a", None, "b", "a"])
    hashes = [
        layout.encode(pa.RecordBatch.from_arrays([column], names=["k"]), seed=5).hashes
        for column in (plain, plain.dictionary_encode(), plain.cast(pa.large_string()))
    ]
    assert np.array_equal(hashes[0], hashes[1])
    assert np.array_equal(hashes[0], hashes[2])


@pytest.mark.parametrize(
    "kind",
    [
        pa.float32(),
        pa.float64(),
        pa.binary(),
        pa.binary(4),
        pa.time64("us"),
        pa.duration("us"),
        pa.decimal256(40, 2),
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.null(),
        pa.string_view(),
    ],
    ids=str,
)
def test_types_without_exact_equality_or_width_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedType, match=r"'price' of type .* cannot be a key"):
        KeyLayout([pa.field("price", kind)])
