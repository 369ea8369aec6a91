"""Packs: small segments of consecutive batches, merged into one file.

The segments are copied byte for byte, so their checksums and the links between them stay valid.

::

    header   0  4    magic "TMPK"
             4  u16  version
             6  6    zero
            12  u32  crc32 of bytes 0..11, the checksum that the index frame follows
    segments         whole, one after another
    index            a frame of the footer's kind, in JSON
    trailer          24 bytes, magic "TMPE"
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from zlib import crc32

from trailmark.errors import DamagedSegment, OtherQuery, UnknownFormat
from trailmark.log import json_text
from trailmark.log.damage import Origin
from trailmark.log.footer import (
    FORMAT_VERSION,
    LogIdentity,
    TimeRange,
    check_stream,
    check_version,
)
from trailmark.log.frame import (
    encode_frame,
    encode_trailer,
    locate_footer,
    read_footer_frame,
)
from trailmark.log.json_text import JsonObject, whole
from trailmark.log.names import LARGEST_BATCH, LARGEST_PACK
from trailmark.log.segment import (
    SEGMENT_MAGIC,
    SMALLEST_SEGMENT,
    Segment,
    decode_segment,
    measure_segment,
)
from trailmark.log.storage import Part
from trailmark.records import FrameKind
from trailmark.values import dataclass

PACK_HEADER = struct.Struct("<4sH6sI")
PACK_MAGIC = b"TMPK"
PACK_END = b"TMPE"

_HEADER_COVERED = 12
_LARGEST_FILE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PackEntry:
    """One segment of a pack: where it lies, and what an index wants to know about it."""

    batch: int
    offset: int
    length: int
    checksum: int
    written_us: int
    time_range: TimeRange | None


@dataclass(frozen=True, slots=True)
class PackIndex:
    """The segments of a pack, by batch, without a gap."""

    identity: LogIdentity
    entries: Sequence[PackEntry]

    def entry(self, batch: int) -> PackEntry:
        """Where a batch lies that the pack's name says is in it."""
        found = self.entries[batch - self.entries[0].batch]
        assert found.batch == batch
        return found

    def to_json(self) -> bytes:
        """The index as it is stored."""
        return json_text.dump(
            {
                "bucket": self.identity.bucket,
                "log_id": str(self.identity.log_id),
                "segments": [_entry_to_json(entry) for entry in self.entries],
                "stream": self.identity.stream.name.lower(),
                "version": FORMAT_VERSION,
            },
            "pack",
        )


def _entry_to_json(entry: PackEntry) -> list[int | None]:
    times = entry.time_range
    bounds = (None, None) if times is None else (times.min_us, times.max_us)
    return [entry.batch, entry.offset, entry.length, entry.checksum, *bounds, entry.written_us]


def _entry_from_json(stored: Sequence[object]) -> PackEntry:
    batch, offset, length, checksum, min_us, max_us, written_us = stored
    return PackEntry(
        whole(batch, 0, LARGEST_BATCH),
        whole(offset, PACK_HEADER.size, _LARGEST_FILE),
        whole(length, SMALLEST_SEGMENT, _LARGEST_FILE),
        whole(checksum, 0, 2**32 - 1),
        whole(written_us, -(2**63), 2**63 - 1),
        TimeRange.from_json(min_us, max_us),
    )


def encode_pack(identity: LogIdentity, segments: Sequence[Segment]) -> tuple[list[Part], PackIndex]:
    """The pieces of a pack of verified segments of consecutive batches, and its index."""
    header = _encode_header(FORMAT_VERSION)
    offset = len(header)
    entries = []
    for segment in segments:
        entries.append(_entry_of(segment, offset))
        offset += len(segment.data)
    assert [e.batch - entries[0].batch for e in entries] == list(range(len(entries)))
    index = PackIndex(identity, entries)
    text = index.to_json()
    frame, checksum = encode_frame(FrameKind.FOOTER, text, crc32(header[:_HEADER_COVERED]))
    trailer = encode_trailer(offset, text, checksum, PACK_END)
    return [header, *(segment.data for segment in segments), *frame, trailer], index


def _entry_of(segment: Segment, offset: int) -> PackEntry:
    footer = segment.footer
    size = len(segment.data)
    return PackEntry(
        footer.batch, offset, size, segment.checksum, footer.written_us, footer.time_range
    )


def _encode_header(version: int) -> bytes:
    covered = PACK_HEADER.pack(PACK_MAGIC, version, bytes(6), 0)[:_HEADER_COVERED]
    return covered + struct.pack("<I", crc32(covered))


def check_pack_header(header: memoryview, origin: Origin) -> None:
    """Verify the first bytes of a pack."""
    if len(header) < PACK_HEADER.size:
        raise origin.cut_short(len(header), "the pack's header is incomplete")
    magic, version, zeros, stored = PACK_HEADER.unpack(header)
    if stored != crc32(header[:_HEADER_COVERED]):
        raise origin.mismatch(0, "checksum of the pack's header")
    if magic != PACK_MAGIC:
        raise UnknownFormat(
            "This is not a pack.", where=origin.at(0), fix="Remove the file from the log."
        )
    check_version(version, origin)
    if any(zeros):
        raise origin.mismatch(0, "a field of the pack's header has no meaning")


def decode_pack_index(
    tail: memoryview, size: int, origin: Origin, *, expect: LogIdentity
) -> PackIndex:
    """The index, from the last bytes of a pack of ``size`` bytes; see `locate_footer`."""
    trailer = locate_footer(tail, size, PACK_END, origin)
    payload = read_footer_frame(tail, size, trailer, origin)
    stored = json_text.load(payload)
    if stored is None:
        raise origin.mismatch(trailer.footer_offset, "the pack's index is not a JSON object")
    check_version(stored.get("version"), origin)
    _check_chain(stored["version"], payload, trailer.checksum, origin.moved(trailer.footer_offset))
    check_stream(stored.get("stream"), origin)
    try:
        index = _index_from_fields(stored)
    except (KeyError, TypeError, ValueError) as error:
        detail = f"a field of the pack's index is missing or strange ({error!r})"
        raise origin.mismatch(trailer.footer_offset, detail) from error
    expect.check(index.identity, origin)
    if not _is_seamless(index.entries, trailer.footer_offset):
        raise origin.mismatch(trailer.footer_offset, "the pack's index has gaps")
    return index


def _check_chain(version: int, payload: memoryview, checksum: int, origin: Origin) -> None:
    # All headers of a version are alike, so the chain can be followed without reading this one.
    start = crc32(_encode_header(version)[:_HEADER_COVERED])
    if encode_frame(FrameKind.FOOTER, payload, start)[1] != checksum:
        raise origin.mismatch(0, "checksum of the pack's index frame")


def _index_from_fields(stored: JsonObject) -> PackIndex:
    entries = stored["segments"]
    if not isinstance(entries, list) or len(entries) > LARGEST_PACK:
        raise ValueError(f"no list of up to {LARGEST_PACK:,} segments")
    return PackIndex(LogIdentity.from_json(stored), [_entry_from_json(each) for each in entries])


def _is_seamless(entries: Sequence[PackEntry], end: int) -> bool:
    offset = PACK_HEADER.size
    for position, entry in enumerate(entries):
        if entry.offset != offset or entry.batch != entries[0].batch + position:
            return False
        offset += entry.length
    return len(entries) > 0 and offset == end


def rescue_segments(data: memoryview, origin: Origin, identity: LogIdentity) -> Iterator[Segment]:
    """Every whole segment of a pack, without the help of its index.

    One that is whole and unknown is refused: what is done with the others would lose it.
    """
    everything = bytes(data)
    at = everything.find(SEGMENT_MAGIC, PACK_HEADER.size)
    while at >= 0:
        resume_at = at + len(SEGMENT_MAGIC)
        try:
            length = measure_segment(data[at:], origin.moved(at))
            segment = decode_segment(data[at : at + length], origin.moved(at), expect=identity)
        except (DamagedSegment, OtherQuery):
            pass  # not a segment after all, or not a whole one of this log: look for the next
        else:
            yield segment
            resume_at = at + length
        at = everything.find(SEGMENT_MAGIC, resume_at)
