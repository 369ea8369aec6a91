"""Every single-byte flip and every truncation is refused; nothing is ever read wrongly."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tests.support.logs import IDENTITY, fill, footer_of, open_log, rows_of
from trailmark.errors import DamagedSegment, LogError, OtherQuery, UnknownFormat
from trailmark.log import Codecs, Origin, decode_footer, decode_segment, encode_segment
from trailmark.records import FrameKind
from trailmark.testing.disk import SimulatedDisk

ORIGIN = Origin("x.seg")
REFUSALS = (DamagedSegment, UnknownFormat, OtherQuery)


@pytest.fixture(scope="module")
def segment() -> bytes:
    frames = [(FrameKind.RESULTS, rows_of(7)), (FrameKind.FOOTPRINTS, rows_of(8, 1))]
    return b"".join(encode_segment(footer_of(), frames, Codecs("lz4")).parts)


def refused(read: Callable[[memoryview], object], data: bytes) -> bool:
    try:
        read(memoryview(data))
    except REFUSALS:
        return True
    return False


def flips(data: bytes, start: int = 0) -> list[int]:
    return [offset * 8 + bit for offset in range(start, len(data)) for bit in (0, 3, 7)]


def flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def read_whole(data: memoryview) -> object:
    return decode_segment(data, ORIGIN, expect=IDENTITY)


def test_every_flip_in_a_segment_is_refused(segment: bytes) -> None:
    missed = [p for p in flips(segment) if not refused(read_whole, flipped(segment, p))]
    assert missed == []


def test_every_byte_of_a_segment_set_to_any_value_is_refused() -> None:
    small = b"".join(encode_segment(footer_of(), [], Codecs("lz4")).parts)
    missed = []
    for offset in range(len(small)):
        for value in range(256):
            changed = small[:offset] + bytes([value]) + small[offset + 1 :]
            if value != small[offset] and not refused(read_whole, changed):
                missed.append((offset, value))
    assert missed == []


def test_every_truncation_of_a_segment_is_refused(segment: bytes) -> None:
    missed = [n for n in range(len(segment)) if not refused(read_whole, segment[:n])]
    assert missed == []


def test_every_truncation_is_called_cut_short(segment: bytes) -> None:
    for size in range(len(segment)):
        with pytest.raises(DamagedSegment, match="cut short"):
            read_whole(memoryview(segment[:size]))


@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 24, b"TMED", b"x" * 4096])
def test_anything_after_the_trailer_is_refused(segment: bytes, garbage: bytes) -> None:
    assert refused(read_whole, segment + garbage)
    assert refused(read_whole, segment + segment)


def test_every_flip_in_footer_and_trailer_is_refused_by_a_read_of_the_tail(segment: bytes) -> None:
    footer_at = struct.unpack("<Q", segment[-24:-16])[0]

    def read_tail(data: memoryview) -> object:
        tail = data[footer_at:]
        trailer_says = struct.unpack("<Q", data[-24:-16])[0]
        if trailer_says < footer_at:  # a reader would fetch the longer tail
            tail = data[trailer_says:]
        return decode_footer(tail, len(data), ORIGIN, expect=IDENTITY)

    missed = [p for p in flips(segment, footer_at) if not refused(read_tail, flipped(segment, p))]
    assert missed == []


@pytest.fixture(scope="module")
def packed() -> dict[str, bytes]:
    """The files of a log of three batches of which two are in a pack."""
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    fill(log, 3)
    log.merge(1)
    return {path: disk.content(path) for path in disk.files()}


def disk_with(files: dict[str, bytes]) -> SimulatedDisk:
    disk = SimulatedDisk()
    storage = disk.storage()
    for path, content in files.items():
        storage.publish(path, [content])
    return disk


def pack_of(files: dict[str, bytes]) -> str:
    (pack,) = (path for path in files if path.endswith(".pack"))
    return pack


def test_every_flip_in_a_pack_is_found_by_verify_and_never_read_over(
    packed: dict[str, bytes],
) -> None:
    disk, pack = disk_with(packed), pack_of(packed)
    for offset in range(len(packed[pack])):
        disk.flip(pack, offset, offset % 8)
        assert not open_log(disk.storage()).verify().is_whole, f"byte {offset}"
        _assert_read_right_or_refused(disk)
        disk.flip(pack, offset, offset % 8)
    assert open_log(disk.storage()).verify().is_whole


def test_every_truncation_of_a_pack_is_found_by_verify_and_never_read_over(
    packed: dict[str, bytes],
) -> None:
    disk, pack = disk_with(packed), pack_of(packed)
    for size in reversed(range(len(packed[pack]))):
        disk.truncate(pack, size)
        assert not open_log(disk.storage()).verify().is_whole, f"{size} bytes"
        _assert_read_right_or_refused(disk)


def _assert_read_right_or_refused(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    for batch in range(3):
        try:
            assert log.read(batch).table(FrameKind.INPUT) == rows_of(batch)
        except LogError as error:
            assert isinstance(error, REFUSALS)  # noqa: PT017
        try:
            assert log.read_footer(batch)[0].batch == batch
        except LogError as error:
            assert isinstance(error, REFUSALS)  # noqa: PT017
