"""Frames, and the trailer that closes a file: what segments and packs have in common.

::

    frame    0  u64  length of the payload, a multiple of 8
             8  u8   kind
             9  u8   how many of the payload's last bytes are padding
            10  u16  zero
            12  u32  checksum = crc32(payload, crc32(bytes 0..11, checksum before this frame))
            16       payload

    trailer  0  u64  offset of the footer frame
             8  u32  crc32 of the footer frame's payload
            12  u32  checksum of the footer frame, which is the checksum of the whole file
            16  u32  crc32 of bytes 0..15
            20  4    magic
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from zlib import crc32

from trailmark.log.damage import Origin
from trailmark.log.json_text import MOST_BYTES
from trailmark.log.storage import Part
from trailmark.records import FrameKind
from trailmark.values import dataclass

FRAME_HEADER = struct.Struct("<QBBHI")
TRAILER = struct.Struct("<QIII4s")

#: Bytes of the frame header and of the trailer that their own checksum covers.
_FRAME_COVERED = 12
_TRAILER_COVERED = 16
_ZEROS = bytes(8)
#: There is at most one of each kind.
_MOST_FRAMES = 256


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as it lies in a buffer; ``payload`` is without the padding."""

    kind: int
    offset: int
    payload: memoryview
    checksum: int


@dataclass(frozen=True, slots=True)
class Trailer:
    """The last bytes of a file: enough to find its footer and to trust it."""

    footer_offset: int
    footer_crc: int
    checksum: int


def encode_frame(kind: FrameKind, payload: Part, checksum: int) -> tuple[list[Part], int]:
    """The pieces of a frame that follows ``checksum``, and the checksum that includes it."""
    padding = _ZEROS[: -len(payload) % 8]
    head = struct.pack("<QBBH", len(payload) + len(padding), kind, len(padding), 0)
    checksum = crc32(padding, crc32(payload, crc32(head, checksum)))
    return [head + struct.pack("<I", checksum), payload, padding], checksum


def encode_trailer(footer_offset: int, footer: bytes, checksum: int, magic: bytes) -> bytes:
    """The trailer of a file whose footer frame has this (unpadded) payload and checksum."""
    padded = footer + _ZEROS[: -len(footer) % 8]
    covered = struct.pack("<QII", footer_offset, crc32(padded), checksum)
    return covered + struct.pack("<I4s", crc32(covered), magic)


def read_trailer(data: memoryview, magic: bytes) -> Trailer | None:
    """The trailer at the end of the data; None if there is no whole one."""
    if len(data) < TRAILER.size:
        return None
    raw = data[-TRAILER.size :]
    footer_offset, footer_crc, checksum, own_crc, found = TRAILER.unpack(raw)
    if found != magic or own_crc != crc32(raw[:_TRAILER_COVERED]):
        return None
    return Trailer(footer_offset, footer_crc, checksum)


def walk_frames(
    data: memoryview, start: int, checksum: int, *, verify: bool, is_whole: bool, origin: Origin
) -> Iterator[Frame]:
    """The frames from ``start`` on, up to and with the footer frame.

    ``is_whole`` says that a good trailer ends the data: a frame that runs over the end is then
    not cut short, its length is wrong.
    """
    offset, kind = start, -1
    for _ in range(_MOST_FRAMES):
        payload_at = offset + FRAME_HEADER.size
        if payload_at > len(data):
            raise _runs_over(origin, offset, "a frame", is_whole)
        length, kind, padding, zero, stored = FRAME_HEADER.unpack(data[offset:payload_at])
        if length > len(data) - payload_at:
            raise _runs_over(origin, offset, f"a frame of {length} bytes", is_whole)
        padded = data[payload_at : payload_at + length]
        if verify:
            checksum = crc32(padded, crc32(data[offset : offset + _FRAME_COVERED], checksum))
            if checksum != stored:
                raise origin.mismatch(offset, "checksum of the frame that begins here")
        if zero or length % 8 or padding > min(7, length) or any(padded[length - padding :]):
            raise origin.mismatch(offset, "header of the frame that begins here")
        yield Frame(kind, offset, padded[: length - padding], stored)
        if kind == FrameKind.FOOTER:
            return
        offset = payload_at + length
    raise origin.mismatch(offset, "more frames than there are kinds")


def _runs_over(origin: Origin, offset: int, what: str, is_whole: bool) -> Exception:
    if is_whole:
        return origin.mismatch(offset, f"{what} does not fit into the file")
    return origin.cut_short(offset, f"{what} begins here and does not end")


def locate_footer(tail: memoryview, size: int, magic: bytes, origin: Origin) -> Trailer:
    """The trailer of a file of ``size`` bytes of which only the tail was read."""
    trailer = read_trailer(tail, magic)
    if trailer is None:
        raise origin.mismatch(max(0, size - TRAILER.size), "no whole trailer ends the file")
    payload = size - trailer.footer_offset - FRAME_HEADER.size - TRAILER.size
    if payload < 0:
        raise origin.mismatch(size - TRAILER.size, "the trailer points behind the footer")
    if payload > MOST_BYTES:
        raise origin.mismatch(size - TRAILER.size, "the footer would be longer than any is")
    return trailer


def read_footer_frame(tail: memoryview, size: int, trailer: Trailer, origin: Origin) -> memoryview:
    """The payload of the footer frame, from the tail of a file of ``size`` bytes.

    Only the footer frame and the trailer are looked at, and every byte of them is verified.
    """
    start = trailer.footer_offset - (size - len(tail))
    assert start >= 0, "the caller reads as much as the trailer asks for"
    frame = tail[start : len(tail) - TRAILER.size]
    padded = frame[FRAME_HEADER.size :]
    length, kind, padding, zero, checksum = FRAME_HEADER.unpack(frame[: FRAME_HEADER.size])
    expected = (len(padded), FrameKind.FOOTER, 0, trailer.checksum)
    if (length, kind, zero, checksum) != expected or padding > min(7, length):
        raise origin.mismatch(trailer.footer_offset, "header of the footer frame")
    if crc32(padded) != trailer.footer_crc:
        raise origin.mismatch(trailer.footer_offset, "checksum of the footer")
    # A wrong padding count would cut the JSON's last brace off or leave zeros behind it, and
    # neither is JSON: whoever parses it notices.
    return padded[: length - padding]
