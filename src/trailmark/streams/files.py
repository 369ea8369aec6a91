"""Data files: the rows of a written stream, as segments that a manifest names."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from trailmark.errors import MissingSegment
from trailmark.log import (
    Codecs,
    Footer,
    LogIdentity,
    Origin,
    Segment,
    Storage,
    TimeRange,
    decode_segment,
    encode_segment,
)
from trailmark.log.names import log_directory
from trailmark.records import START_OF_LOG, Fingerprint, FrameKind, Stream
from trailmark.values import dataclass

#: Names begin with the time they were written, so that those of killed tasks can be told by age.
_TIME_DIGITS = 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file with rows of a batch, as the manifest of the batch has it."""

    name: str
    bucket: int
    rows: int
    bytes: int
    checksum: int
    time_range: TimeRange | None

    @property
    def path(self) -> str:
        """Where it lies in the storage."""
        return f"{log_directory(Stream.DATA, self.bucket)}/{self.name}"

    @property
    def written_us(self) -> int:
        """When it was written, by the clock of whoever wrote it."""
        return written_at(self.name)

    def to_json(self) -> list[Any]:
        times = self.time_range
        bounds = [None, None] if times is None else [times.min_us, times.max_us]
        return [self.name, self.bucket, self.rows, self.bytes, self.checksum, *bounds]

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> DataFile:
        name, bucket, rows, size, checksum, min_us, max_us = stored
        times = None if min_us is None else TimeRange(min_us, max_us)
        return cls(name, bucket, rows, size, checksum, times)


def written_at(path: str) -> int:
    """When a data file was written: its name says so."""
    return int(path.rpartition("/")[2][:_TIME_DIGITS])


def write_file(
    storage: Storage,
    log_id: uuid.UUID,
    bucket: int,
    rows: pa.Table,
    time_range: TimeRange | None,
    codecs: Codecs,
    now_us: int,
) -> DataFile:
    """Put rows into a file of their own. Nobody reads it before a manifest names it."""
    identity = LogIdentity(Stream.DATA, log_id, bucket)
    # It does not know its batch: that is decided when the batch is committed. Nor is it linked to
    # another file; the manifest holds its checksum.
    digest = Fingerprint(rows.num_rows, 0)
    footer = Footer(identity, 0, START_OF_LOG, digest, now_us, time_range)
    encoded = encode_segment(footer, [(FrameKind.INPUT, rows)], codecs)
    name = f"{now_us:0{_TIME_DIGITS}d}-{uuid.uuid4().hex}.seg"
    size = encoded.bytes
    file = DataFile(name, bucket, rows.num_rows, size, encoded.checksum, time_range)
    created = storage.publish(file.path, encoded.parts)
    assert created, "a name of its own"
    return file


def files_written_before(storage: Storage, buckets: int, before_us: int) -> list[str]:
    """Paths of all data files that were written before a time."""
    found = []
    for directory in (log_directory(Stream.DATA, bucket) for bucket in range(buckets)):
        for entry in storage.list(directory):
            written = entry.name[:_TIME_DIGITS]
            if written.isdecimal() and int(written) < before_us:
                found.append(f"{directory}/{entry.name}")
    return found


def read_file(
    storage: Storage, log_id: uuid.UUID, file: DataFile, columns: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, of some columns by their places. Every byte is verified."""
    yield from open_file(storage, log_id, file).batches(FrameKind.INPUT, columns)


def open_file(storage: Storage, log_id: uuid.UUID, file: DataFile) -> Segment:
    """A file as a manifest names it. Every byte is verified."""
    origin = Origin(file.path)
    try:
        data = storage.read(file.path)
    except FileNotFoundError:
        raise MissingSegment(
            "A data file of the stream is gone.",
            where=file.path,
            fix="It was trimmed while it was to be read, or deleted. Read from a later batch on, "
            "or set failOnDataLoss to false; a deleted file comes back only from a backup.",
        ) from None
    segment = decode_segment(data, origin, expect=LogIdentity(Stream.DATA, log_id, file.bucket))
    if segment.checksum != file.checksum:
        raise origin.mismatch(0, "the file is not the one that the manifest names")
    return segment
