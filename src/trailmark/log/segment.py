"""Segments: one batch of one log, as bytes.

::

    header   0  4    magic "TMSG"
             4  u16  version
             6  u8   stream
             7  u8   zero
             8  16   log id
            24  u32  bucket
            28  u32  zero
            32  i64  batch
            40  u32  zero
            44  u32  crc32 of bytes 0..43, the checksum that the first frame follows
    frames           one Arrow IPC stream each; the last one is the footer, in JSON
    trailer          24 bytes, magic "TMED"

Checksums come first, whatever a segment claims to be; then its version; then streams and kinds of
frames. So damage is never taken for news, nor news for damage.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias
from zlib import crc32

import pyarrow as pa

from trailmark.errors import DamagedSegment, UnknownFormat
from trailmark.log.damage import Origin
from trailmark.log.footer import Footer, LogIdentity, check_version, unknown_stream
from trailmark.log.frame import (
    FRAME_HEADER,
    TRAILER,
    Frame,
    Trailer,
    encode_frame,
    encode_trailer,
    locate_footer,
    read_footer_frame,
    read_trailer,
    walk_frames,
)
from trailmark.log.rows import read_parts, read_rows, same_columns
from trailmark.log.storage import Part
from trailmark.records import FrameKind, SegmentLink, Stream
from trailmark.settings import Compression
from trailmark.values import dataclass

HEADER = struct.Struct("<4sHBB16sIIqII")
SEGMENT_MAGIC = b"TMSG"
SEGMENT_END = b"TMED"

#: A header, a footer without a byte, and a trailer.
SMALLEST_SEGMENT = HEADER.size + FRAME_HEADER.size + TRAILER.size

_HEADER_COVERED = 44

#: Rows that are compressed to see what it is worth, and for how many batches the answer holds.
_SAMPLE_ROWS = 2048
_SAMPLE_EVERY = 64
#: Fewer rows than this are mostly schema: nothing to gain, and nothing to learn from.
_FEW_ROWS = 512

Rows: TypeAlias = pa.Table | pa.RecordBatch


@dataclass(frozen=True, slots=True)
class EncodedSegment:
    """A segment ready to be published, in pieces that nobody has to join."""

    parts: Sequence[Part]
    checksum: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that was read. Its tables are decoded when they are asked for."""

    footer: Footer
    checksum: int
    data: memoryview
    origin: Origin
    frames: Mapping[FrameKind, Frame]

    @property
    def batch(self) -> int:
        """The batch it holds."""
        return self.footer.batch

    @property
    def link(self) -> SegmentLink:
        """What the next segment of the log names as its previous one."""
        return SegmentLink(self.footer.batch, self.checksum)

    def table(self, kind: FrameKind) -> pa.Table | None:
        """The rows of one kind, or None if the segment has no such frame. Every value can be read
        that they say they have."""
        frame = self.frames.get(kind)
        if frame is None:
            return None
        with self._decoding(kind):
            rows = read_rows(frame.payload)
            self._check_count(kind, rows.num_rows)
            return rows

    def rows(self, kind: FrameKind, schema: pa.Schema) -> pa.Table:
        """The rows of a kind that has to be there, with these columns."""
        found = self.table(kind)
        if found is None:
            raise self.mismatch(kind, "is missing")
        if not same_columns(found.schema, schema):
            raise self.mismatch(kind, f"has other columns than {', '.join(schema.names)}")
        return found

    def batches(
        self, kind: FrameKind, schema: pa.Schema, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a kind that has to be there, a part at a time, as they were written. Of the
        columns, which are those of the schema, only the named ones are decompressed."""
        frame = self.frames.get(kind)
        if frame is None:
            raise self.mismatch(kind, "is missing")
        with self._decoding(kind):
            count = 0
            for part in read_parts(frame.payload, schema, names):
                count += part.num_rows
                yield part
            self._check_count(kind, count)

    def mismatch(self, kind: FrameKind, detail: str) -> DamagedSegment:
        """The error to raise about a frame."""
        frame = self.frames.get(kind)
        at = HEADER.size if frame is None else frame.offset
        return self.origin.mismatch(at, f"the {kind.label} frame {detail}")

    @contextmanager
    def _decoding(self, kind: FrameKind) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            what = str(error).partition("\n")[0]
            raise self.mismatch(kind, f"is no Arrow stream that can be read ({what})") from error

    def _check_count(self, kind: FrameKind, count: int) -> None:
        if self.footer.rows[kind] != count:
            raise ValueError(f"{count:,} rows, and the footer counts {self.footer.rows[kind]:,}")


class Codecs:
    """Which codec each kind of frame gets.

    Under ``"auto"`` that is LZ4 where it takes a third or more off a sample of the rows: noise
    costs time and stays as large. A sample holds for the next batches too.
    """

    def __init__(self, compression: Compression) -> None:
        self._compression = compression
        self._chosen: dict[FrameKind, tuple[int, str | None]] = {}

    def of(self, kind: FrameKind, table: Rows) -> str | None:
        if self._compression != "auto":
            return None if self._compression == "none" else self._compression
        if table.num_rows < _FEW_ROWS:
            return None
        uses, codec = self._chosen.get(kind, (0, None))
        if uses == 0:
            sample = table.slice(table.num_rows // 2, _SAMPLE_ROWS)
            is_worth_it = 3 * len(_arrow_stream(sample, "lz4")) <= 2 * len(
                _arrow_stream(sample, None)
            )
            codec = "lz4" if is_worth_it else None
        self._chosen[kind] = ((uses + 1) % _SAMPLE_EVERY, codec)
        return codec


def encode_segment(
    footer: Footer, frames: Sequence[tuple[FrameKind, Rows]], codecs: Codecs
) -> EncodedSegment:
    """Encode one batch. At most one frame of a kind; ``footer.rows`` is filled in."""
    rows = {kind: table.num_rows for kind, table in frames}
    assert len(rows) == len(frames), "one frame of a kind"
    assert FrameKind.FOOTER not in rows
    header, checksum = _encode_header(footer)
    parts: list[Part] = [header]
    for kind, table in frames:
        payload = _arrow_stream(table, codecs.of(kind, table))
        pieces, checksum = encode_frame(kind, payload, checksum)
        parts += pieces
    footer_offset = sum(map(len, parts))
    text = replace(footer, rows=rows).to_json()
    pieces, checksum = encode_frame(FrameKind.FOOTER, text, checksum)
    parts += [*pieces, encode_trailer(footer_offset, text, checksum, SEGMENT_END)]
    return EncodedSegment(parts, checksum, sum(map(len, parts)))


def _encode_header(footer: Footer) -> tuple[bytes, int]:
    identity = footer.identity
    fields = (SEGMENT_MAGIC, footer.version, identity.stream, 0, identity.log_id.bytes)
    covered = HEADER.pack(*fields, identity.bucket, 0, footer.batch, 0, 0)[:_HEADER_COVERED]
    checksum = crc32(covered)
    return covered + struct.pack("<I", checksum), checksum


def _arrow_stream(table: Rows, codec: str | None) -> memoryview:
    # One thread: the cores are busy with other buckets, and a batch is compressed in a millisecond.
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
    if codec is not None:
        sink = pa.BufferOutputStream()
        _write_stream(sink, table, options)
        return memoryview(sink.getvalue()).cast("B")
    # How long it will be is cheap to find out, and a buffer that grows is copied again and again.
    size = pa.MockOutputStream()
    _write_stream(size, table, options)
    buffer = pa.allocate_buffer(size.size())
    _write_stream(pa.FixedSizeBufferWriter(buffer), table, options)
    return memoryview(buffer).cast("B")


def _write_stream(sink: pa.NativeFile, table: Rows, options: pa.ipc.IpcWriteOptions) -> None:
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write(table)


def decode_segment(
    data: memoryview, origin: Origin, *, expect: LogIdentity | None = None
) -> Segment:
    """Read a whole segment, every byte of it verified; one of another log than ``expect`` is
    refused."""
    checksum = _check_header(data, origin)
    trailer = read_trailer(data, SEGMENT_END)
    walk = walk_frames(
        data, HEADER.size, checksum, verify=True, is_whole=trailer is not None, origin=origin
    )
    frames = list(walk)
    last = frames.pop()
    _check_end(data, last, trailer, origin)
    version, identity, batch = _decode_header(data, origin)
    if expect is not None:
        expect.check(identity, origin)
    footer = Footer.from_json(last.payload, origin.moved(last.offset))
    if (footer.version, footer.identity, footer.batch) != (version, identity, batch):
        raise origin.mismatch(last.offset, "header and footer name different segments")
    by_kind = {_kind_of(frame, origin): frame for frame in frames}
    if len(by_kind) != len(frames):
        raise origin.mismatch(HEADER.size, "two frames of the same kind")
    if by_kind.keys() != footer.rows.keys():
        raise origin.mismatch(last.offset, "the footer counts rows of other frames")
    return Segment(footer, last.checksum, data, origin, by_kind)


def measure_segment(data: memoryview, origin: Origin) -> int:
    """How many bytes the segment takes that begins here; what is in them is not verified."""
    walk = walk_frames(data, HEADER.size, 0, verify=False, is_whole=False, origin=origin)
    *_, last = walk
    return _end_of(last) + TRAILER.size


def _end_of(frame: Frame) -> int:
    padded = len(frame.payload) + (-len(frame.payload) % 8)
    return frame.offset + FRAME_HEADER.size + padded


def _check_header(data: memoryview, origin: Origin) -> int:
    """Verify the header's checksum and return it."""
    if len(data) < HEADER.size:
        raise origin.cut_short(len(data), "the header is incomplete")
    checksum = crc32(data[:_HEADER_COVERED])
    if data[_HEADER_COVERED : HEADER.size] != struct.pack("<I", checksum):
        raise origin.mismatch(0, "checksum of the header")
    if data[: len(SEGMENT_MAGIC)] != SEGMENT_MAGIC:
        raise UnknownFormat(
            "This is not a segment.", where=origin.at(0), fix="Remove the file from the log."
        )
    return checksum


def _decode_header(data: memoryview, origin: Origin) -> tuple[int, LogIdentity, int]:
    """Version, log and batch of a segment whose checksums are right."""
    _, version, stream, zero1, log_id, bucket, zero2, batch, zero3, _ = HEADER.unpack(
        data[: HEADER.size]
    )
    check_version(version, origin)
    if stream not in set(Stream):
        raise unknown_stream(stream, origin)
    if (zero1, zero2, zero3) != (0, 0, 0) or batch < 0:
        raise origin.mismatch(0, "a field of the header has no meaning")
    return version, LogIdentity(Stream(stream), uuid.UUID(bytes=log_id), bucket), batch


def _check_end(data: memoryview, last: Frame, trailer: Trailer | None, origin: Origin) -> None:
    footer_end = _end_of(last)
    if len(data) - footer_end < TRAILER.size:
        raise origin.cut_short(footer_end, "the trailer is incomplete")
    if len(data) - footer_end > TRAILER.size:
        raise origin.mismatch(footer_end + TRAILER.size, "bytes follow the trailer")
    if trailer is None:
        raise origin.mismatch(footer_end, "checksum of the trailer")
    footer = data[last.offset + FRAME_HEADER.size : footer_end]
    if trailer != Trailer(last.offset, crc32(footer), last.checksum):
        raise origin.mismatch(footer_end, "the trailer describes another footer")


def _kind_of(frame: Frame, origin: Origin) -> FrameKind:
    try:
        return FrameKind(frame.kind)
    except ValueError:
        raise origin.unknown(
            frame.offset, f"Frames of kind {frame.kind} are unknown to this Trailmark."
        ) from None


def decode_footer(
    tail: memoryview, size: int, origin: Origin, *, expect: LogIdentity | None = None
) -> tuple[Footer, int]:
    """Footer and checksum from the last bytes of a segment of ``size`` bytes.

    The tail has to reach back to the footer frame, see `locate_footer`.
    """
    trailer = locate_footer(tail, size, SEGMENT_END, origin)
    payload = read_footer_frame(tail, size, trailer, origin)
    footer = Footer.from_json(payload, origin.moved(trailer.footer_offset))
    if expect is not None:
        expect.check(footer.identity, origin)
    return footer, trailer.checksum
