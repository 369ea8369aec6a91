"""Files of a log taken apart, changed, and sealed again: every checksum and length is right.

What a failing disk does, checksums find. What is left are files that somebody, or a fault in a
writer, has made so: their contents have to be judged by themselves.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import pyarrow as pa

from trailmark.log.footer import FORMAT_VERSION
from trailmark.log.frame import FRAME_HEADER, TRAILER, encode_frame, encode_trailer
from trailmark.log.json_text import dump_guarded
from trailmark.log.pack import PACK_END, PACK_HEADER
from trailmark.log.segment import HEADER, SEGMENT_END
from trailmark.records import FrameKind

_COVERED = 44
_PACK_COVERED = 12


@dataclass(frozen=True)
class Opened:
    """A segment in its parts: the fields of its header, its frames, and the footer's text."""

    header: tuple[Any, ...]
    frames: tuple[tuple[int, bytes], ...]
    footer: bytes

    def sealed(self) -> bytes:
        """The segment these parts make."""
        covered = HEADER.pack(*self.header, 0)[:_COVERED]
        checksum = crc32(covered)
        pieces: list[Any] = [covered, struct.pack("<I", checksum)]
        for kind, payload in (*self.frames, (int(FrameKind.FOOTER), self.footer)):
            offset = sum(map(len, pieces))
            frame, checksum = encode_frame(kind, payload, checksum)  # type: ignore[arg-type]
            pieces += frame
        return b"".join([*pieces, encode_trailer(offset, self.footer, checksum, SEGMENT_END)])

    def of_version(self, version: int) -> Opened:
        """The same segment as another version of the format would have it."""
        magic, _, *rest = self.header
        fields = {**self.fields, "version": version}
        return replace(self, header=(magic, version, *rest)).with_fields(fields)

    def with_unknown_kind(self, kind: int = 9, name: str = "sketches") -> Opened:
        """The same segment with a frame more, of a kind that nobody knows yet."""
        fields = self.fields
        fields["rows"][name] = 1
        frames = (*self.frames, (kind, arrow_stream(pa.table({"sketch": [1]}))))
        return replace(self, frames=frames).with_fields(fields)

    @property
    def fields(self) -> Any:
        """The footer as a value."""
        return json.loads(self.footer)

    def with_fields(self, fields: Any) -> Opened:
        """The same segment with another footer."""
        return replace(self, footer=dump(fields))

    def with_rows(self, kind: FrameKind, rows: pa.Table | pa.RecordBatch) -> Opened:
        """The same segment with other rows of a kind; the footer counts them."""
        frames = tuple((k, arrow_stream(rows) if k == kind else p) for k, p in self.frames)
        fields = self.fields
        fields["rows"][kind.label] = rows.num_rows
        return replace(self, frames=frames).with_fields(fields)

    def rows(self, kind: FrameKind) -> pa.Table:
        """The rows of a kind."""
        return pa.ipc.open_stream(dict(self.frames)[kind]).read_all()


def dump(fields: Any) -> bytes:
    """JSON as footers have it, of anything that Python takes for JSON."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def arrow_stream(rows: pa.Table | pa.RecordBatch, codec: str | None = None) -> bytes:
    """Rows as the payload of a frame."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write(rows)
    return bytes(sink.getvalue())


def open_segment(data: bytes) -> Opened:
    """The parts of a whole segment."""
    header = HEADER.unpack(data[: HEADER.size])[:-1]
    frames = []
    offset, kind = HEADER.size, 0
    while kind != FrameKind.FOOTER:
        length, kind, padding, _, _ = FRAME_HEADER.unpack_from(data, offset)
        payload_at = offset + FRAME_HEADER.size
        frames.append((kind, data[payload_at : payload_at + length - padding]))
        offset = payload_at + length
    return Opened(header, tuple(frames[:-1]), frames[-1][1])


@dataclass
class OpenedPack:
    """A pack in its parts: its segments, and what its index says beside them."""

    segments: list[bytes]
    index: dict[str, Any] = field(default_factory=dict)
    #: Of the format, as the header has it.
    version: int = FORMAT_VERSION

    def sealed(self, index: Any = None) -> bytes:
        """The pack; its index names the segments as they are, unless another one is given."""
        covered = PACK_HEADER.pack(b"TMPK", self.version, bytes(6), 0)[:_PACK_COVERED]
        header = covered + struct.pack("<I", crc32(covered))
        text = dump(self.described() if index is None else index)
        frame, checksum = encode_frame(FrameKind.FOOTER, text, crc32(covered))
        body = b"".join([header, *self.segments])
        trailer = encode_trailer(len(body), text, checksum, PACK_END)
        return b"".join([body, *frame, trailer])

    def described(self) -> dict[str, Any]:
        """The index with the places and checksums of the segments."""
        entries = []
        offset = PACK_HEADER.size
        for entry, data in zip(self.index["segments"], self.segments, strict=True):
            entries.append([entry[0], offset, len(data), checksum_of(data), *entry[4:]])
            offset += len(data)
        return {**self.index, "segments": entries}


def open_pack(data: bytes) -> OpenedPack:
    """The parts of a whole pack."""
    footer_offset = TRAILER.unpack(data[-TRAILER.size :])[0]
    length, _, padding, _, _ = FRAME_HEADER.unpack_from(data, footer_offset)
    start = footer_offset + FRAME_HEADER.size
    index = json.loads(data[start : start + length - padding])
    segments = [data[at : at + size] for _, at, size, *_ in index["segments"]]
    return OpenedPack(segments, index, PACK_HEADER.unpack_from(data)[1])


def checksum_of(segment: bytes) -> int:
    """The checksum that the next segment links to."""
    return int(TRAILER.unpack(segment[-TRAILER.size :])[2])


def guarded(body: Any) -> bytes:
    """A JSON file with its checksum; as well as it can be made of such a body."""
    if isinstance(body, dict):
        return dump_guarded(body, "body")
    return dump({"body": body, "crc32": crc32(dump(body))})


def relink(files: dict[str, bytes], directory: str) -> None:
    """Makes every segment of a log name the one before it, as it is now. Packs are sealed anew."""
    before: tuple[int, int] | None = None
    for name in sorted(name for name in files if name.startswith(f"{directory}/")):
        if not name.endswith((".seg", ".pack")):
            continue
        if name.endswith(".seg"):
            files[name], before = _linked(files[name], before)
            continue
        pack = open_pack(files[name])
        for number, data in enumerate(pack.segments):
            pack.segments[number], before = _linked(data, before)
        files[name] = pack.sealed()


def _linked(data: bytes, before: tuple[int, int] | None) -> tuple[bytes, tuple[int, int]]:
    opened = open_segment(data)
    fields = opened.fields
    if before is not None:
        fields["previous"] = {"batch": before[0], "checksum": before[1]}
        data = opened.with_fields(fields).sealed()
    return data, (fields["batch"], checksum_of(data))
