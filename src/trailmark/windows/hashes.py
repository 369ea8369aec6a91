"""Hashes of the values of a column, those that Spark's own ``xxhash64`` gives of one column."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, numbers, truths, validity, view
from trailmark.kernel.library import address, kernel

_T = pa.types
#: Decimals of no more digits are hashed as whole numbers of 8 bytes.
_DIGITS_OF_A_LONG = 18


def hashed(column: pa.Array) -> pa.Array:
    """The hash of every value, null where it is null: 64 bits, in whole numbers with a sign.

    The column is a `plain` one of numbers, booleans, times, decimals or strings. Zeros of both
    signs are equal, and so is every NaN.
    """
    found = np.empty(len(column), dtype=np.uint64)
    if _T.is_string(column.type):
        text = view(column)
        kernel.tm_hash_texts(text.offsets, text.data, len(column), address(found))
    elif _T.is_decimal128(column.type) and column.type.precision > _DIGITS_OF_A_LONG:
        kernel.tm_hash_16(view(column).data, len(column), address(found))
    else:
        values = _as_spark_has_them(column)
        hashes = kernel.tm_hash_4 if values.itemsize == 4 else kernel.tm_hash_8
        hashes(address(values), len(values), address(found))
    return arrow_fixed(found, pa.int64(), validity(column) if column.null_count else None)


def _as_spark_has_them(column: pa.Array) -> npt.NDArray[Any]:
    """Values of fixed width as the 4 or 8 bytes that Spark hashes."""
    kind = column.type
    if _T.is_boolean(kind):
        return truths(column).astype(np.int32)
    if _T.is_decimal128(kind):
        wide = np.frombuffer(column.buffers()[1], "<i8", 2 * len(column), 16 * column.offset)
        return np.ascontiguousarray(wide[::2])
    values: npt.NDArray[Any] = numbers(column)
    if _T.is_floating(kind):
        values = values + values.dtype.type(0)
        values[np.isnan(values)] = np.nan
        return values
    is_short = kind.bit_width < 32 or _T.is_int32(kind) or _T.is_date32(kind)
    return np.ascontiguousarray(values, dtype=np.int32 if is_short else np.int64)
