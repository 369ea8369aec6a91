"""Arrow columns as the kernel sees them, and NumPy arrays turned back into Arrow columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SchemaError
from trailmark.values import dataclass

_MOST_TEXT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ColumnView:
    """Addresses of a column's buffers. ``column`` keeps them alive."""

    column: pa.Array
    data: int | None
    offsets: int | None
    validity: int | None
    first: int
    width: int

    @property
    def is_text(self) -> bool:
        return self.offsets is not None


def single(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One contiguous array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def contiguous(rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """All rows as one record batch."""
    if isinstance(rows, pa.RecordBatch):
        return rows
    arrays = [single(column) for column in rows.columns]
    arrays = [a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a for a in arrays]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def view(column: pa.Array) -> ColumnView:
    """Addresses of a fixed-width, boolean, string or binary column (32-bit offsets)."""
    buffers = column.buffers()
    validity = buffers[0].address if buffers[0] is not None and column.null_count else None
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        offsets = buffers[1].address + 4 * column.offset if buffers[1] is not None else 0
        data = buffers[2].address if buffers[2] is not None else 0
        return ColumnView(column, data, offsets, validity, column.offset, -1)
    data = buffers[1].address if buffers[1] is not None else 0
    if pa.types.is_boolean(column.type):
        return ColumnView(column, data, None, validity, column.offset, 0)
    width = column.type.bit_width // 8
    return ColumnView(column, data + width * column.offset, None, validity, column.offset, width)


def plain(column: pa.Array) -> pa.Array:
    """The same values in a layout the kernel reads: no dictionaries, 32-bit string offsets."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    if pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    return column


def is_readable(kind: pa.DataType) -> bool:
    """Whether :func:`plain` and :func:`view` can give columns of this type to the kernel."""
    t = pa.types
    if t.is_dictionary(kind):
        return is_readable(kind.value_type)
    is_text = t.is_string(kind) or t.is_large_string(kind)
    is_bytes = t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind)
    return bool(is_text or is_bytes or t.is_primitive(kind) or t.is_decimal(kind))


def bitmap(is_valid: npt.NDArray[Any] | None) -> pa.Buffer | None:
    """A validity bitmap, or none when everything is valid."""
    if is_valid is None or is_valid.all():
        return None
    return pa.py_buffer(np.packbits(is_valid, bitorder="little"))


def arrow_fixed(
    values: npt.NDArray[Any], kind: pa.DataType, is_valid: npt.NDArray[Any] | None = None
) -> pa.Array:
    """An Arrow array of fixed width over the bytes of a NumPy array of the same width."""
    if pa.types.is_boolean(kind):
        data = pa.py_buffer(np.packbits(values.astype(bool), bitorder="little"))
    else:
        is_ready = values.flags.c_contiguous and values.flags.aligned
        data = pa.py_buffer(values if is_ready else values.copy())
    return pa.Array.from_buffers(kind, len(values), [bitmap(is_valid), data])


def numbers(column: pa.Array) -> npt.NDArray[Any]:
    """The values of a column of whole or floating numbers; where it is null, anything.

    Unlike Arrow's own conversion it does not import pandas, for which every new process of Spark's
    would wait longer than for most recoveries.
    """
    kind = "f" if pa.types.is_floating(column.type) else "i"
    kind = "u" if pa.types.is_unsigned_integer(column.type) else kind
    width = column.type.bit_width // 8
    data = column.buffers()[1]
    if data is None:
        return np.empty(0, dtype=f"<{kind}{width}")
    return np.frombuffer(data, f"<{kind}{width}", len(column), width * column.offset)


def validity(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values of a column are not null."""
    packed = column.buffers()[0] if column.null_count else None
    return np.ones(len(column), dtype=np.bool_) if packed is None else _unpacked(packed, column)


def truths(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values of a column of booleans are true; null is not."""
    packed = column.buffers()[1]
    if packed is None:
        return np.zeros(len(column), dtype=np.bool_)
    return _unpacked(packed, column) & validity(column)


def _unpacked(packed: pa.Buffer, column: pa.Array) -> npt.NDArray[np.bool_]:
    """The bits that a column has in one of its buffers."""
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little")
    found: npt.NDArray[np.bool_] = bits[column.offset : column.offset + len(column)] == 1
    return found


def is_plain_number(column: pa.Array) -> bool:
    """Whether a column holds whole or floating numbers, and no null."""
    t = pa.types
    return not column.null_count and (t.is_integer(column.type) or t.is_floating(column.type))


def column_type(rows: pa.RecordBatch, name: str) -> pa.DataType | None:
    """The type of a column; None if there is none of this name, or more than one."""
    places = rows.schema.get_all_field_indices(name)
    return rows.schema.field(places[0]).type if len(places) == 1 else None


def chosen_rows(rows: pa.RecordBatch, is_chosen: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """The rows that are chosen.

    Plain numbers are copied here: Arrow's own filter is in a module whose import alone takes longer
    than a small recovery.
    """
    arrays, mask = [], None
    for column in rows.columns:
        if is_plain_number(column):
            arrays.append(arrow_fixed(numbers(column)[is_chosen], column.type))
        else:
            mask = arrow_booleans(is_chosen) if mask is None else mask
            arrays.append(column.filter(mask))
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def arrow_booleans(booleans: npt.NDArray[np.bool_]) -> pa.Array:
    """Made by hand: `pa.array` imports pandas to look at an array of NumPy's."""
    packed = pa.py_buffer(np.packbits(booleans, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(booleans), [None, packed])


def check_text(size: int, where: str) -> None:
    """Refuses more bytes than a column of strings can hold."""
    if size > _MOST_TEXT:
        raise SchemaError(
            "More than 2 GiB of strings in one column of one batch.",
            where=where,
            fix="Use more buckets or smaller batches.",
        )


def text_offsets(lengths: npt.NDArray[np.int32], where: str) -> npt.NDArray[np.int32]:
    """Offsets of strings of these lengths, one after another."""
    check_text(int(lengths.sum(dtype=np.int64)), where)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def arrow_text(
    offsets: npt.NDArray[np.int32],
    data: npt.NDArray[np.uint8],
    kind: pa.DataType,
    is_valid: npt.NDArray[Any] | None = None,
) -> pa.Array:
    buffers = [bitmap(is_valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def whole_numbers(rows: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    """A column of whole numbers, however narrow it was logged."""
    return np.ascontiguousarray(numbers(single(rows.column(name))), dtype=np.int64)
