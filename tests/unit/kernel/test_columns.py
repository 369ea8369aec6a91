"""Columns between Arrow and the kernel keep their values, wherever they lie in their buffers."""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, contiguous, plain, single, view


def test_a_view_of_a_slice_begins_at_the_slice() -> None:
    column = pa.array([1, None, 3, 4], pa.int32()).slice(2)
    seen = view(column)
    assert seen.first == 2
    assert seen.width == 4
    assert seen.validity is None, "the slice has no nulls"
    assert seen.data is not None
    assert list((ctypes.c_int32 * 2).from_address(seen.data)) == [3, 4]


def test_booleans_and_nulls_survive_the_way_back_to_arrow() -> None:
    values = np.array([1, 0, 1, 1, 0, 0, 0, 1, 1], dtype=np.uint8)
    is_valid = np.array([1, 1, 0, 1, 1, 1, 1, 1, 0], dtype=np.bool_)
    column = arrow_fixed(values, pa.bool_(), is_valid)
    expected = [bool(v) if ok else None for v, ok in zip(values, is_valid, strict=True)]
    assert column.to_pylist() == expected


def test_strided_fields_become_contiguous_columns() -> None:
    rows = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "<i8"), ("b", "<f8")])
    assert arrow_fixed(rows["b"], pa.float64()).to_pylist() == [2.5, 4.5]


def test_tables_of_any_chunking_become_one_batch() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, 3]), pa.array(["a", None, "c"])], ["n", "t"]
    )
    for table in (
        pa.Table.from_batches([batch]),
        pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]),
        pa.Table.from_batches([], schema=batch.schema),
    ):
        whole = contiguous(table)
        assert isinstance(whole, pa.RecordBatch)
        assert whole.to_pylist() == table.to_pylist()
    assert contiguous(batch) is batch


def test_a_chunked_column_becomes_one_array() -> None:
    chunked = pa.chunked_array([[1, 2], [], [3]], pa.int64())
    assert single(chunked).to_pylist() == [1, 2, 3]
    assert single(pa.chunked_array([], pa.int64())).to_pylist() == []


def test_plain_undoes_dictionaries_and_long_offsets() -> None:
    encoded = pa.array(["a", None, "a"], pa.large_string()).dictionary_encode().slice(1)
    assert plain(encoded).type == pa.string()
    assert plain(encoded).to_pylist() == [None, "a"]
    assert plain(pa.array([b"x"], pa.large_binary())).type == pa.binary()
