"""Segments whose checksums are right and whose rows are not: refused by name, by every reader."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.logs import IDENTITY, fill, footer_of, open_log
from tests.support.reseal import Opened, arrow_stream, open_segment, relink
from trailmark.errors import DamagedSegment
from trailmark.log import Codecs, LocalStorage, Origin, decode_segment, encode_segment
from trailmark.log.rows import as_bytes
from trailmark.records import FrameKind

_TEXT = pa.table({"item": pa.array(["apple", "pear", None, "plum"]), "n": pa.array([1, 2, 3, 4])})
#: Arrow writes no longer columns.
_MANY = 2**31 - 1


def _segment(rows: pa.Table) -> Opened:
    encoded = encode_segment(footer_of(), [(FrameKind.INPUT, rows)], Codecs("none"))
    return open_segment(b"".join(encoded.parts))


def _with_payload(change: Callable[[bytes], bytes], rows: pa.Table = _TEXT) -> Opened:
    opened = _segment(rows)
    ((kind, payload),) = opened.frames
    changed = change(payload)
    assert changed != payload
    return replace(opened, frames=((kind, changed),))


def _read(opened: Opened) -> pa.Table:
    segment = decode_segment(memoryview(opened.sealed()), Origin("x.seg"), expect=IDENTITY)
    table = segment.table(FrameKind.INPUT)
    assert table is not None
    return table


def _offsets(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


@pytest.mark.parametrize(
    "offsets",
    [(0, 5, 9, 9, 2**31 - 1), (0, 2**30, 9, 9, 13), (0, -5, 9, 9, 13), (2**20, 5, 9, 9, 13)],
)
def test_offsets_that_point_elsewhere_are_refused(offsets: tuple[int, ...]) -> None:
    opened = _with_payload(lambda data: data.replace(_offsets(0, 5, 9, 9, 13), _offsets(*offsets)))
    with pytest.raises(DamagedSegment, match="no Arrow stream that can be read") as caught:
        _read(opened)
    assert caught.value.where == "x.seg, byte 48"


def test_texts_may_be_any_bytes_as_in_spark() -> None:
    odd = _with_payload(lambda data: data.replace(b"pear", b"p\xff\xfer"))
    assert b"p\xff\xfer" in as_bytes(_read(odd).column(0).chunk(0)).to_pylist()


_ODD_BYTES = pa.array([b"\xff\xfe", None, b"whole"])
_ODD = _ODD_BYTES.view(pa.string())


@pytest.mark.parametrize(
    "column",
    [
        _ODD,
        _ODD.slice(1),
        pa.ListArray.from_arrays([0, 1, 1, 3], _ODD),
        pa.FixedSizeListArray.from_arrays(_ODD, 1),
        pa.StructArray.from_arrays([_ODD, pa.array([1, 2, 3])], ["text", "n"]),
        pa.MapArray.from_arrays([0, 1, 2, 3], pa.array([1, 2, 3]), _ODD),
        pa.DictionaryArray.from_arrays(pa.array([0, 2, 0]), _ODD),
        pa.array([1, 2, 3]).view(pa.date64()),
        pa.array([2**40, 0, -1]).view(pa.time64("us")),
    ],
    ids=lambda column: str(column.type),
)
def test_what_can_be_written_can_be_read(column: pa.Array) -> None:
    found = _read(_segment(pa.table({"a": column})))
    assert as_bytes(found.column(0).chunk(0)).equals(as_bytes(column))


def test_names_of_columns_that_are_no_text_are_refused() -> None:
    with pytest.raises(DamagedSegment, match="can be read"):
        _read(_with_payload(lambda data: data.replace(b"item", b"\xff\xfe\xfd\xfc")))


def test_indexes_behind_their_dictionary_are_refused() -> None:
    rows = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    index = pa.array([0, 1, 0], pa.int32()).buffers()[1].to_pybytes()[:12]
    other = pa.array([0, 77, 0], pa.int32()).buffers()[1].to_pybytes()[:12]
    with pytest.raises(DamagedSegment, match="can be read"):
        _read(_with_payload(lambda data: data.replace(index, other), rows))


def test_decimals_of_more_digits_than_their_type_are_refused() -> None:
    rows = pa.table({"a": pa.array([123], pa.decimal128(5, 2))})
    number, other = (12300).to_bytes(16, "little"), (2**100).to_bytes(16, "little")
    with pytest.raises(DamagedSegment, match="can be read"):
        _read(_with_payload(lambda data: data.replace(number, other), rows))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("length", [2**40, 2**62, -7])
def test_compressed_columns_of_terabytes_are_refused(codec: str, length: int) -> None:
    rows = pa.table({"a": pa.array([7] * 1000, pa.int64())})
    stored = struct.pack("<q", 8000)
    payload = arrow_stream(rows, codec)
    assert payload.count(stored) == 1
    opened = _segment(rows)
    changed = payload.replace(stored, struct.pack("<q", length))
    with pytest.raises(DamagedSegment, match="can be read"):
        _read(replace(opened, frames=((1, changed),)))


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"a": pa.Array.from_buffers(pa.null(), _MANY, [None])}),
        pa.table({"a": pa.FixedSizeListArray.from_arrays(pa.nulls(2**30), 2**30)}),
        pa.table(
            {
                "a": pa.RunEndEncodedArray.from_arrays(
                    pa.array([_MANY], pa.int32()), pa.array([1], pa.int8())
                )
            }
        ),
    ],
    ids=["nulls", "fixed lists", "runs"],
)
def test_rows_that_take_no_bytes_are_refused(rows: pa.Table) -> None:
    with pytest.raises(DamagedSegment, match="do not fit"):
        _read(_segment(pa.table({"a": [1]})).with_rows(FrameKind.INPUT, rows))


def test_a_footer_that_counts_other_rows_is_refused() -> None:
    opened = _segment(_TEXT)
    fields = opened.fields
    fields["rows"] = {"input": 5}
    with pytest.raises(DamagedSegment, match="the footer counts 5"):
        _read(opened.with_fields(fields))
    fields["rows"] = {}
    with pytest.raises(DamagedSegment, match="rows of other frames"):
        _read(opened.with_fields(fields))


def test_verification_refuses_what_readers_do(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    log = open_log(storage)
    fill(log, 3)
    paths = [log.reader.segment_path(batch) for batch in range(3)]
    files = {path: bytes(storage.read(path)) for path in paths}
    opened = open_segment(files[paths[1]])
    ((kind, payload),) = opened.frames
    files[paths[1]] = replace(opened, frames=((kind, payload[:-40]),)).sealed()
    relink(files, log.directory)
    for path, data in files.items():
        storage.replace(path, [data])
    assert [(each.trouble, each.batch) for each in log.verify().problems] == [("damaged", 1)]
    with pytest.raises(DamagedSegment):
        log.read(1).table(FrameKind.INPUT)
