"""Packs as bytes: where everything lies, and which indexes are refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from zlib import crc32

import pytest

from tests.support.logs import OTHER_ID, SECOND, fill, open_log
from trailmark.errors import DamagedSegment, LogError, OtherQuery, UnknownFormat
from trailmark.log import StreamLog
from trailmark.testing.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def segment_file(batch: int) -> str:
    return f"in/00003/{batch:020d}.seg"


def pack_file(first: int, last: int) -> str:
    return f"in/00003/{first:020d}-{last:020d}.pack"


def test_a_pack_holds_the_segments_byte_for_byte(disk: SimulatedDisk) -> None:
    log = open_log(disk.storage())
    fill(log, 3)
    segments = [disk.content(segment_file(batch)) for batch in range(3)]
    log.merge(2)
    pack = disk.content(pack_file(0, 2))
    assert pack[:12] == b"TMPK\x02\x00" + bytes(6)
    assert pack[12:16] == crc32(pack[:12]).to_bytes(4, "little")
    assert pack[16:].startswith(b"".join(segments))
    index_at, index_crc, checksum, own_crc, magic = struct.unpack("<QIII4s", pack[-24:])
    length, kind, padding, zero, stored = struct.unpack_from("<QBBHI", pack, index_at)
    payload = pack[index_at + 16 : -24]
    assert (kind, zero, len(payload), magic) == (255, 0, length, b"TMPE")
    assert index_crc == crc32(payload)
    assert own_crc == crc32(pack[-24:-8])
    chained = crc32(payload, crc32(pack[index_at : index_at + 12], crc32(pack[:12])))
    assert checksum == stored == chained
    index = json.loads(payload[: length - padding])
    starts = [16 + sum(map(len, segments[:n])) for n in range(3)]
    assert [entry[:3] for entry in index["segments"]] == [
        [n, starts[n], len(segments[n])] for n in range(3)
    ]
    assert index["segments"][1][4:6] == [10 * SECOND, 19 * SECOND]


@pytest.mark.parametrize("look", [StreamLog.read, StreamLog.read_footer])
def test_a_renamed_pack_is_refused(
    disk: SimulatedDisk, look: Callable[[StreamLog, int], object]
) -> None:
    log = open_log(disk.storage())
    fill(log, 3)
    log.merge(2)
    disk.storage().publish(pack_file(5, 7), [disk.content(pack_file(0, 2))])
    with pytest.raises(DamagedSegment, match="other batches than its name"):
        look(open_log(disk.storage()), 6)


def resealed(pack: bytes, change: Callable[[dict[str, object]], None], chain: int = 0) -> bytes:
    """The pack with another index and checksums that fit it; ``chain`` spoils the frame's own."""
    (index_at,) = struct.unpack("<Q", pack[-24:-16])
    length, _, padding = struct.unpack_from("<QBB", pack, index_at)
    index = json.loads(pack[index_at + 16 : index_at + 16 + length - padding])
    change(index)
    text = json.dumps(index, sort_keys=True, separators=(",", ":")).encode()
    padded = text + bytes(-len(text) % 8)
    head = struct.pack("<QBBH", len(padded), 255, len(padded) - len(text), 0)
    checksum = crc32(padded, crc32(head, crc32(pack[:12]))) ^ chain
    covered = struct.pack("<QII", index_at, crc32(padded), checksum)
    trailer = covered + struct.pack("<I4s", crc32(covered), b"TMPE")
    return pack[:index_at] + head + struct.pack("<I", checksum) + padded + trailer


def nothing(index: dict[str, object]) -> None:
    del index


def later_version(index: dict[str, object]) -> None:
    index["version"] = 3


def other_stream(index: dict[str, object]) -> None:
    index["stream"] = "sketches"


def other_log(index: dict[str, object]) -> None:
    index["log_id"] = str(OTHER_ID)


def swapped(index: dict[str, object]) -> None:
    entries = index["segments"]
    assert isinstance(entries, list)
    entries[0][0], entries[1][0] = entries[1][0], entries[0][0]


def shifted(index: dict[str, object]) -> None:
    entries = index["segments"]
    assert isinstance(entries, list)
    entries[1][1] += 8


def other_checksum(index: dict[str, object]) -> None:
    entries = index["segments"]
    assert isinstance(entries, list)
    entries[1][3] ^= 1


def without_entries(index: dict[str, object]) -> None:
    index["segments"] = []


@pytest.mark.parametrize(
    ("change", "chain", "expected", "said"),
    [
        (nothing, 1, DamagedSegment, "index frame"),
        (later_version, 0, UnknownFormat, "version 3"),
        (other_stream, 0, UnknownFormat, "stream 'sketches'"),
        (other_log, 0, OtherQuery, "log_id"),
        (swapped, 0, DamagedSegment, "has gaps"),
        (shifted, 0, DamagedSegment, "has gaps"),
        (other_checksum, 0, DamagedSegment, "names another segment"),
        (without_entries, 0, DamagedSegment, "has gaps"),
    ],
)
def test_a_pack_whose_index_is_wrong_is_refused_even_if_its_checksums_fit(
    disk: SimulatedDisk,
    change: Callable[[dict[str, object]], None],
    chain: int,
    expected: type[LogError],
    said: str,
) -> None:
    log = open_log(disk.storage())
    fill(log, 3)
    log.merge(2)
    content = disk.content(pack_file(0, 2))
    assert resealed(content, nothing) == content
    disk.storage().delete(pack_file(0, 2))
    disk.storage().publish(pack_file(0, 2), [resealed(content, change, chain)])
    with pytest.raises(expected, match=said):
        open_log(disk.storage()).read(1)
