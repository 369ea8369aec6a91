from __future__ import annotations

import json
import struct
import uuid
from dataclasses import replace
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest

from tests.support.logs import IDENTITY, LOG_ID, OTHER_ID, footer_of, rows_of
from tests.support.reseal import Opened, open_segment
from trailmark.errors import DamagedSegment, OtherQuery, SettingError, UnknownFormat
from trailmark.log import (
    Codecs,
    Footer,
    Origin,
    Segment,
    decode_footer,
    decode_segment,
    encode_segment,
)
from trailmark.records import Fingerprint, FrameKind, SegmentLink, Stream
from trailmark.settings import Compression

ORIGIN = Origin("in/00003/x.seg")


def joined(footer: Footer, *frames: tuple[FrameKind, pa.Table]) -> bytes:
    return b"".join(encode_segment(footer, frames, Codecs("lz4")).parts)


def decoded(data: bytes) -> Segment:
    return decode_segment(memoryview(data), ORIGIN)


@pytest.mark.parametrize("compression", ["auto", "lz4", "zstd", "none"])
def test_every_table_comes_back_as_it_was(compression: Compression) -> None:
    tables = {
        FrameKind.RESULTS: rows_of(1, 1000),
        FrameKind.FOOTPRINTS: pa.table({"state": pa.array([b"x", None], pa.binary())}),
        FrameKind.CLOSED: rows_of(2, 0),
    }
    encoded = encode_segment(footer_of(), list(tables.items()), Codecs(compression))
    data = b"".join(encoded.parts)
    segment = decoded(data)
    assert len(data) == encoded.bytes
    assert segment.checksum == encoded.checksum
    assert {kind: segment.table(kind) for kind in tables} == tables
    assert segment.table(FrameKind.INPUT) is None
    assert segment.footer.rows == {
        FrameKind.RESULTS: 1000,
        FrameKind.FOOTPRINTS: 2,
        FrameKind.CLOSED: 0,
    }


def test_a_record_batch_is_written_like_a_table() -> None:
    batch = rows_of(1).to_batches()[0]
    assert decoded(joined(footer_of(), (FrameKind.INPUT, batch))).table(FrameKind.INPUT) == rows_of(
        1
    )


def test_every_field_of_the_footer_comes_back() -> None:
    footer = footer_of(previous=SegmentLink(6, 2**32 - 1))
    found = decoded(joined(footer, (FrameKind.INPUT, rows_of(7)))).footer
    assert found == replace(footer, rows={FrameKind.INPUT: 3})
    assert found.fingerprint == Fingerprint(3, 2**127 + 5)
    assert found.attributes["large"] == 2**127 + 1


def test_a_segment_without_rows_is_a_segment() -> None:
    segment = decoded(joined(footer_of()))
    assert segment.footer.rows == {}
    assert segment.batch == 7


def test_header_frames_and_trailer_lie_where_the_format_says() -> None:
    data = joined(footer_of(), (FrameKind.INPUT, rows_of(7)))
    assert data[:8] == b"TMSG\x02\x00\x01\x00"
    assert data[8:24] == LOG_ID.bytes
    assert struct.unpack_from("<IIqI", data, 24) == (3, 0, 7, 0)
    header_crc = crc32(data[:44])
    assert struct.unpack_from("<I", data, 44) == (header_crc,)
    length, kind, padding, zero, checksum = struct.unpack_from("<QBBHI", data, 48)
    assert (length % 8, kind, zero) == (0, 1, 0)
    payload = data[64 : 64 + length]
    assert checksum == crc32(payload, crc32(data[48:60], header_crc))
    assert pa.ipc.open_stream(payload[: length - padding]).read_all() == rows_of(7)
    footer_at, footer_crc, whole, own_crc, magic = struct.unpack("<QIII4s", data[-24:])
    assert footer_at == 64 + length
    footer_length, kind, padding, _, footer_checksum = struct.unpack_from("<QBBHI", data, footer_at)
    footer = data[footer_at + 16 : footer_at + 16 + footer_length]
    assert (kind, magic) == (255, b"TMED")
    assert len(data) == footer_at + 16 + footer_length + 24
    assert footer_crc == crc32(footer)
    assert whole == footer_checksum == crc32(footer, crc32(data[footer_at:][:12], checksum))
    assert own_crc == crc32(data[-24:-8])
    text = footer[: footer_length - padding]
    assert json.loads(text)["batch"] == 7
    assert (
        text
        == json.dumps(
            json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()
    )


def test_uncompressed_columns_are_not_copied() -> None:
    data = b"".join(
        encode_segment(footer_of(), [(FrameKind.INPUT, rows_of(7, 1000))], Codecs("none")).parts
    )
    source = pa.py_buffer(data)
    table = decode_segment(memoryview(source).cast("B"), ORIGIN).table(FrameKind.INPUT)
    assert table is not None
    column = table["item"].chunk(0).buffers()[1]
    assert source.address <= column.address < source.address + source.size


def test_a_footer_is_read_from_the_tail_alone() -> None:
    data = joined(footer_of(), (FrameKind.INPUT, rows_of(7, 5000)))
    footer_at = struct.unpack("<Q", data[-24:-16])[0]
    footer, checksum = decode_footer(memoryview(data[footer_at:]), len(data), ORIGIN)
    assert (footer, checksum) == (decoded(data).footer, decoded(data).checksum)


def test_fields_of_a_footer_that_are_not_known_are_passed_over() -> None:
    text = json.loads(footer_of().to_json())
    text["from_a_later_release"] = {"x": 1}
    assert Footer.from_json(json.dumps(text).encode(), ORIGIN) == footer_of()


@pytest.mark.parametrize("field", ["batch", "previous", "log_id", "rows", "fingerprint"])
def test_a_footer_without_a_field_is_refused(field: str) -> None:
    text = json.loads(footer_of().to_json())
    del text[field]
    with pytest.raises(DamagedSegment, match=field):
        Footer.from_json(json.dumps(text).encode(), ORIGIN)


def resealed(data: bytes, offset: int, value: bytes) -> bytes:
    """The segment with other header bytes and a header checksum that fits them."""
    changed = bytearray(data)
    changed[offset : offset + len(value)] = value
    changed[44:48] = struct.pack("<I", crc32(changed[:44]))
    return bytes(changed)


def whole() -> Opened:
    return open_segment(joined(footer_of(), (FrameKind.INPUT, rows_of(7))))


def in_header(place: int, value: int) -> Opened:
    header = list(whole().header)
    header[place] = value
    return replace(whole(), header=tuple(header))


def with_footer(**changed: object) -> Opened:
    return whole().with_fields({**whole().fields, **changed})


@pytest.mark.parametrize(
    ("news", "said"),
    [
        (whole().of_version(3), "version 3 of the log format"),
        (whole().of_version(0), "version 0 of the log format"),
        (in_header(1, 3), "version 3 of the log format"),
        (whole().with_unknown_kind(), "Frames of kind 'sketches'"),
        (replace(whole(), frames=((9, b""),)), "Frames of kind 9"),
        (with_footer(rows={"input": 3, "sketches": 0}), "Frames of kind 'sketches'"),
        (in_header(2, 9), "stream 9"),
        (with_footer(stream="sketches"), "stream 'sketches'"),
        # What the rest says does not matter then: it may have another meaning.
        (with_footer(version=3, rows=None, stream=7, batch=-1), "version 3 of the log format"),
        (replace(in_header(7, -5), header=in_header(2, 9).header), "stream 9"),
    ],
)
def test_what_is_whole_and_unknown_is_told_as_such_with_its_place(news: Opened, said: str) -> None:
    data = news.sealed()
    with pytest.raises(UnknownFormat, match=said) as caught:
        decoded(data)
    assert caught.value.where.startswith("in/00003/x.seg, byte ")
    assert caught.value.fix == "Use the Trailmark that wrote it, or a newer one."
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] ^= 16
        with pytest.raises(DamagedSegment):
            decoded(bytes(damaged))
    with pytest.raises(DamagedSegment, match="cut short"):
        decoded(data[:-1])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": 3}, "version 3"),
        ({"version": True}, "version True"),
        ({"version": None}, "version None"),
        ({"stream": "sketches"}, "stream 'sketches'"),
        ({"rows": {"input32": 1}}, "kind 'input32'"),
        ({"rows": {"footer": 1}}, "kind 'footer'"),
    ],
)
def test_what_is_unknown_is_noticed_from_the_footer_alone(
    changed: dict[str, object], said: str
) -> None:
    text = {**json.loads(footer_of().to_json()), **changed}
    with pytest.raises(UnknownFormat, match=said):
        Footer.from_json(json.dumps(text).encode(), ORIGIN)


def test_segments_of_version_1_are_read_as_they_are() -> None:
    data = whole().of_version(1).sealed()
    segment = decoded(data)
    assert segment.footer == replace(footer_of(), rows={FrameKind.INPUT: 3}, version=1)
    assert segment.table(FrameKind.INPUT) == rows_of(7)
    footer, _ = decode_footer(memoryview(data), len(data), ORIGIN)
    assert footer == segment.footer


def test_header_and_footer_of_different_versions_are_refused() -> None:
    for news in (in_header(1, 1), with_footer(version=1)):
        with pytest.raises(DamagedSegment, match="header and footer"):
            decoded(news.sealed())


def test_something_else_under_a_segments_name_is_unknown() -> None:
    with pytest.raises(UnknownFormat, match="not a segment"):
        decoded(resealed(joined(footer_of()), 0, b"ELSE"))


def test_header_and_footer_that_disagree_are_refused() -> None:
    # Sealed all the way through, as no flip could be: only the two batch numbers differ.
    parts = list(encode_segment(footer_of(batch=7), [], Codecs("lz4")).parts)
    other = list(encode_segment(footer_of(batch=8), [], Codecs("lz4")).parts)
    header = parts[0]
    footer = bytes(other[2])
    padding = bytes(other[3])
    head = bytes(other[1])[:12]
    checksum = crc32(footer + padding, crc32(head, crc32(bytes(header)[:44])))
    covered = struct.pack("<QII", 48, crc32(footer + padding), checksum)
    trailer = covered + struct.pack("<I4s", crc32(covered), b"TMED")
    data = bytes(header) + head + struct.pack("<I", checksum) + footer + padding + trailer
    with pytest.raises(DamagedSegment, match="header and footer"):
        decoded(data)


@pytest.mark.parametrize("wrong", ["offset", "footer", "checksum"])
def test_a_trailer_of_another_segment_is_refused_even_if_it_is_whole(wrong: str) -> None:
    data = joined(footer_of(), (FrameKind.INPUT, rows_of(7)))
    offset, footer_crc, checksum = struct.unpack("<QII", data[-24:-8])
    covered = struct.pack(
        "<QII",
        offset + 8 * (wrong == "offset"),
        footer_crc ^ (wrong == "footer"),
        checksum ^ (wrong == "checksum"),
    )
    sealed = data[:-24] + covered + struct.pack("<I4s", crc32(covered), b"TMED")
    with pytest.raises(DamagedSegment, match="another footer"):
        decoded(sealed)
    with pytest.raises(DamagedSegment):
        decode_footer(memoryview(sealed), len(sealed), ORIGIN)


@pytest.mark.parametrize(
    ("expect", "named"),
    [
        (replace(IDENTITY, log_id=OTHER_ID), "log_id"),
        (replace(IDENTITY, bucket=4), "bucket"),
        (replace(IDENTITY, stream=Stream.OUTPUT), "stream"),
    ],
)
def test_a_segment_of_another_log_is_refused(expect: object, named: str) -> None:
    data = memoryview(joined(footer_of()))
    with pytest.raises(OtherQuery, match=named):
        decode_segment(data, ORIGIN, expect=expect)  # type: ignore[arg-type]
    with pytest.raises(OtherQuery, match=named):
        decode_footer(data, len(data), ORIGIN, expect=expect)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [float("nan"), uuid.uuid4(), b"bytes", {1, 2}])
def test_attributes_that_are_not_json_are_refused_by_name(value: object) -> None:
    footer = replace(footer_of(), attributes={"x": value})
    with pytest.raises(SettingError, match="attributes"):
        encode_segment(footer, [], Codecs("lz4"))


def test_damage_is_reported_with_file_and_byte() -> None:
    data = joined(footer_of(), (FrameKind.INPUT, rows_of(7)))
    flipped = bytearray(data)
    flipped[70] ^= 1
    with pytest.raises(DamagedSegment, match="does not match") as caught:
        decoded(bytes(flipped))
    assert caught.value.where == "in/00003/x.seg, byte 48"
    with pytest.raises(DamagedSegment, match="cut short") as caught:
        decoded(data[:100])
    assert caught.value.where == "in/00003/x.seg, byte 48"
    with pytest.raises(DamagedSegment, match="bytes follow the trailer"):
        decoded(data + bytes(8))


def test_auto_compresses_what_shrinks_and_leaves_what_does_not() -> None:
    rng = np.random.default_rng(3)
    noise = pa.table({"n": rng.integers(-(1 << 60), 1 << 60, 20_000)})
    calm = pa.table({"n": np.zeros(20_000, dtype=np.int64)})

    def size(table: pa.Table, compression: Compression) -> int:
        return encode_segment(footer_of(), [(FrameKind.INPUT, table)], Codecs(compression)).bytes

    assert size(noise, "auto") == size(noise, "none")
    assert size(calm, "auto") == size(calm, "lz4") < size(calm, "none") // 10


def test_auto_looks_again_after_a_while() -> None:
    codecs = Codecs("auto")
    rng = np.random.default_rng(4)
    noise = pa.table({"n": rng.integers(-(1 << 60), 1 << 60, 4_000)})
    calm = pa.table({"n": np.zeros(4_000, dtype=np.int64)})
    assert codecs.of(FrameKind.INPUT, noise) is None
    later = [codecs.of(FrameKind.INPUT, calm) for _ in range(100)]
    assert later[0] is None, "a sample holds for some batches"
    assert later[-1] == "lz4"
    assert codecs.of(FrameKind.RESULTS, calm) == "lz4", "each kind has its own"
    assert codecs.of(FrameKind.LATE, calm.slice(0, 10)) is None, "too few to matter"
