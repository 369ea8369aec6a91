"""Data files: the rows of a written stream, as segments that a manifest names."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from trailmark.errors import MissingSegment
from trailmark.kernel.fingerprints import fingerprint, joined
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
from trailmark.log.footer import LARGEST_DIGEST
from trailmark.log.json_text import whole
from trailmark.log.names import LARGEST_BUCKET, log_directory
from trailmark.log.reader import read_whole
from trailmark.records import START_OF_LOG, Fingerprint, FrameKind, Stream
from trailmark.values import dataclass

#: Names begin with the time they were written, so that those of killed tasks can be told by age.
_TIME_DIGITS = 20
_NAME = re.compile(r"[0-9]{20}-[0-9a-f]{32}\.seg", re.ASCII)
_MOST = 2**62


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file with rows of a batch, as the manifest of the batch has it."""

    name: str
    bucket: int
    rows: int
    bytes: int
    checksum: int
    time_range: TimeRange | None
    #: Of its rows, see `Fingerprint`; 0 if it is not known.
    digest: int = 0
    #: A time, and how many rows have an earlier one, if whoever wrote it has counted them.
    counted: tuple[int, int] | None = None

    @property
    def path(self) -> str:
        """Where it lies in the storage."""
        return f"{log_directory(Stream.DATA, self.bucket)}/{self.name}"

    def to_json(self) -> list[Any]:
        times = self.time_range
        bounds = [None, None] if times is None else [times.min_us, times.max_us]
        return [self.name, self.bucket, self.rows, self.bytes, self.checksum, *bounds]

    @classmethod
    def from_json(cls, stored: Sequence[Any], digest: int = 0) -> DataFile:
        name, bucket, rows, size, checksum, min_us, max_us = stored
        # Names become paths.
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise ValueError("no name of a data file")
        return cls(
            name,
            whole(bucket, 0, LARGEST_BUCKET),
            whole(rows, 0, _MOST),
            whole(size, 0, _MOST),
            whole(checksum, 0, 2**32 - 1),
            TimeRange.from_json(min_us, max_us),
            whole(digest, 0, LARGEST_DIGEST),
        )


def rows_of(files: Iterable[DataFile]) -> Fingerprint:
    """The fingerprint of the rows of all files."""
    return joined(Fingerprint(file.rows, file.digest) for file in files)


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
    counted: tuple[int, int] | None = None,
) -> DataFile:
    """Put rows into a file of their own. Nobody reads it before a manifest names it."""
    identity = LogIdentity(Stream.DATA, log_id, bucket)
    # It does not know its batch: that is decided when the batch is committed. Nor is it linked to
    # another file; the manifest holds its checksum.
    digest = joined(fingerprint(part) for part in rows.to_batches())
    footer = Footer(identity, 0, START_OF_LOG, digest, now_us, time_range)
    encoded = encode_segment(footer, [(FrameKind.INPUT, rows)], codecs)
    name = f"{now_us:0{_TIME_DIGITS}d}-{uuid.uuid4().hex}.seg"
    size = encoded.bytes
    known = (bucket, rows.num_rows, size, encoded.checksum, time_range, digest.digest, counted)
    file = DataFile(name, *known)
    created = storage.publish(file.path, encoded.parts)
    assert created, "a name of its own"
    return file


def data_directories(buckets: int) -> list[str]:
    """Where the data files of so many buckets are."""
    return [log_directory(Stream.DATA, bucket) for bucket in range(buckets)]


def files_written_before(storage: Storage, buckets: int, before_us: int) -> list[str]:
    """Paths of all data files that were written before a time."""
    found = []
    for directory in data_directories(buckets):
        for entry in storage.list(directory):
            written = entry.name[:_TIME_DIGITS]
            if written.isdecimal() and int(written) < before_us:
                found.append(f"{directory}/{entry.name}")
    return found


def read_file(
    storage: Storage, log_id: uuid.UUID, file: DataFile, schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a file of a stream with this schema, of some columns. Every byte is verified."""
    yield from open_file(storage, log_id, file).batches(FrameKind.INPUT, schema, columns)


def read_column(
    storage: Storage, log_id: uuid.UUID, file: DataFile, schema: pa.Schema, column: str
) -> pa.ChunkedArray:
    """One column of a file of a stream with this schema."""
    parts = read_file(storage, log_id, file, schema, [column])
    return pa.Table.from_batches(parts, pa.schema([schema.field(column)])).column(0)


def open_file(storage: Storage, log_id: uuid.UUID, file: DataFile) -> Segment:
    """A file as a manifest names it. Every byte is verified."""
    origin = Origin(file.path)
    try:
        data = read_whole(storage, file.path, origin)
    except FileNotFoundError:
        raise MissingSegment(
            "A data file of the stream is gone.",
            where=file.path,
            fix="It was trimmed while it was to be read, or deleted. Read from a later batch on, "
            "or set failOnDataLoss to false; a deleted file comes back only from a backup.",
        ) from None
    segment = decode_segment(data, origin, expect=LogIdentity(Stream.DATA, log_id, file.bucket))
    if (segment.checksum, len(segment.data)) != (file.checksum, file.bytes):
        raise origin.mismatch(0, "the file is not the one that the manifest names")
    return segment
