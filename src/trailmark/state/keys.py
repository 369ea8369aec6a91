"""Keys as bytes: a record of fixed width per row, and for strings the bytes beside it.

Equal keys have equal bytes. A null sets a bit and leaves zeros, so nulls form one group, as in SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import UnsupportedType
from trailmark.kernel.columns import arrow_fixed, arrow_text, plain, text_offsets, view
from trailmark.kernel.library import Keys, address, kernel, reference
from trailmark.kernel.scratch import scratch
from trailmark.values import dataclass

_TEXT = -1


def _width(kind: pa.DataType) -> int | None:
    t = pa.types
    if t.is_string(kind) or t.is_large_string(kind):
        return _TEXT
    if t.is_boolean(kind):
        return 1
    if t.is_integer(kind) or t.is_date(kind) or t.is_timestamp(kind) or t.is_decimal128(kind):
        return int(kind.bit_width // 8)
    return None


@dataclass(frozen=True, slots=True)
class _Field:
    """Where a key column is kept."""

    name: str
    kind: pa.DataType
    at: int
    width: int
    null_at: int
    null_bit: int

    @property
    def is_text(self) -> bool:
        return self.width == _TEXT


@dataclass(slots=True)
class EncodedKeys:
    """The keys of a batch as the kernel reads them; valid until the next ones are encoded."""

    count: int
    records: npt.NDArray[np.uint8]
    hashes: npt.NDArray[np.uint64]
    blob_offsets: npt.NDArray[np.int64] | None
    blob_lengths: npt.NDArray[np.int32] | None
    blobs: Any
    structure: Keys


class KeyLayout:
    """Which bytes of a record hold which column."""

    def __init__(self, columns: Sequence[pa.Field]) -> None:
        at = null_bytes = (len(columns) + 7) // 8
        fields = []
        for number, column in enumerate(columns):
            width = _width(column.type)
            if width is None:
                raise UnsupportedType(
                    f"Column {column.name!r} of type {column.type} cannot be a key.",
                    where=f"key column {column.name!r}",
                    fix="Use integer, string, boolean, date, timestamp or decimal keys.",
                )
            fields.append(_Field(column.name, column.type, at, width, number // 8, number % 8))
            at += 4 if width == _TEXT else width
        assert null_bytes <= at
        self.fields = tuple(fields)
        self.record_bytes = max(8, (at + 7) // 8 * 8)
        self.has_text = any(field.is_text for field in fields)
        self.names = tuple(field.name for field in fields)

    def describe(self) -> list[list[Any]]:
        return [[f.name, str(f.kind), f.at] for f in self.fields]

    def encode(self, rows: pa.RecordBatch, seed: int) -> EncodedKeys:
        count = rows.num_rows
        records = scratch("key records", count * self.record_bytes, np.uint8)
        records.fill(0)
        records = records.reshape(count, self.record_bytes)
        lengths = np.zeros(count, dtype=np.int32) if self.has_text else None
        texts = []
        for field in self.fields if count else ():
            v = view(plain(rows.column(field.name)))
            place = (address(records), self.record_bytes, field.at, field.null_at, field.null_bit)
            if field.is_text:
                kernel.tm_encode_lengths(
                    *place, v.offsets, v.validity, v.first, count, address(lengths)
                )
                texts.append((field, v))
            else:
                kernel.tm_encode_column(*place, v.data, v.width, v.validity, v.first, count)
        offsets, blobs = self._join(records, lengths, texts)
        hashes = scratch("key hashes", count, np.uint64)
        structure = Keys(
            address(records),
            address(hashes),
            address(offsets),
            address(lengths),
            address(blobs),
            count,
            self.record_bytes,
        )
        kernel.tm_hash_keys(seed, reference(structure), address(hashes))
        return EncodedKeys(count, records, hashes, offsets, lengths, blobs, structure)

    def _join(
        self,
        records: npt.NDArray[np.uint8],
        lengths: npt.NDArray[np.int32] | None,
        texts: list[Any],
    ) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.uint8] | None]:
        if lengths is None:
            return None, None
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        blobs = np.empty(max(1, int(offsets[-1])), dtype=np.uint8)
        cursor = offsets[:-1].copy()
        for field, v in texts:
            kernel.tm_join_strings(
                address(records),
                self.record_bytes,
                field.at,
                v.offsets,
                v.data,
                len(records),
                address(cursor),
                address(blobs),
            )
        return offsets, blobs

    def decode(
        self, records: npt.NDArray[np.uint8], blobs: npt.NDArray[np.uint8] | None
    ) -> list[pa.Array]:
        """The key columns of records; ``blobs`` holds their strings one record after another."""
        columns = []
        cursor = self._blob_starts(records) if self.has_text else None
        for field in self.fields:
            if field.is_text:
                assert cursor is not None
                assert blobs is not None
                columns.append(self._decode_text(field, records, cursor, blobs))
            else:
                raw, is_valid = self._decode(field, records, field.width)
                values = raw if pa.types.is_boolean(field.kind) else raw.reshape(-1, field.width)
                columns.append(arrow_fixed(values, field.kind, is_valid))
        return columns

    def _decode(
        self, field: _Field, records: npt.NDArray[np.uint8], width: int
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_] | None]:
        """A field of the records side by side, and which are valid; None if all are."""
        count = len(records)
        raw = np.empty(count * width, dtype=np.uint8)
        is_valid = np.empty(count, dtype=np.bool_)
        nulls = kernel.tm_decode_column(
            address(records),
            self.record_bytes,
            field.at,
            width,
            field.null_at,
            field.null_bit,
            count,
            address(raw),
            address(is_valid),
        )
        return raw, is_valid if nulls else None

    def _blob_starts(self, records: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        total = np.zeros(len(records), dtype=np.int64)
        for field in self.fields:
            if field.is_text:
                total += self._decode(field, records, 4)[0].view("<i4")
        return np.cumsum(total) - total

    def _decode_text(
        self,
        field: _Field,
        records: npt.NDArray[np.uint8],
        cursor: npt.NDArray[np.int64],
        blobs: npt.NDArray[np.uint8],
    ) -> pa.Array:
        raw, is_valid = self._decode(field, records, 4)
        lengths = raw.view("<i4")
        offsets = text_offsets(lengths, f"key column {field.name!r}")
        data = np.empty(int(offsets[-1]), dtype=np.uint8)
        kernel.tm_copy_slices(
            address(blobs), address(cursor), address(lengths), len(records), address(data)
        )
        cursor += lengths
        text = arrow_text(offsets, data, pa.string(), is_valid)
        return text if pa.types.is_string(field.kind) else text.cast(field.kind)
