"""``trailmark log`` of a written stream."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from trailmark import units
from trailmark.cli.place import chosen_buckets
from trailmark.cli.rows import plain_rows, row_text
from trailmark.cli.selection import is_within, key_value
from trailmark.errors import LogError, MissingSegment, SettingError
from trailmark.log import TimeRange
from trailmark.log.names import log_directory
from trailmark.records import FrameKind, Stream
from trailmark.streams.files import DataFile, open_file
from trailmark.streams.manifest import Manifest, joined_times, read_manifest
from trailmark.streams.stored import StreamFiles


class StreamListing:
    """The batches of a written stream, oldest first, or their rows."""

    def __init__(self, files: StreamFiles, options: argparse.Namespace) -> None:
        for name in ("stream", "kind"):
            if getattr(options, name) is not None:
                raise SettingError(
                    "A written stream has rows and nothing else.",
                    where=f"--{name}",
                    fix=f"Leave out --{name}.",
                )
        self._files = files
        self._options = options
        self._buckets = chosen_buckets(files, options.bucket)
        self._batches = options.batch or (None, None)
        stream = files.description
        self._keys = [
            key_value(column, text, "stream", stream.keys, stream.schema)
            for column, text in options.key
        ]
        self._has_times = stream.time_column is not None
        times = f"  {'from':<20}  to" if self._has_times else ""
        self.head = f"{'batch':>8}  {'written':<20}  {'files':>6}  {'rows':>12}  {'size':>8}{times}"
        self.unreadable = 0

    def lines(self) -> Iterator[str]:
        for batch in self._files.log.batches():
            if not is_within(batch, self._batches):
                continue
            try:
                yield from self._batch(batch)
            except MissingSegment as error:
                if not self._files.log.contains(batch):
                    continue  # trimmed since the log was listed
                self._complain(batch, error)
            except LogError as error:
                self._complain(batch, error)

    def _complain(self, batch: int, error: LogError) -> None:
        self.unreadable += 1
        print(f"batch {batch}: {error.what} ({error.where})", file=sys.stderr)

    def _batch(self, batch: int) -> Iterator[str]:
        manifest = read_manifest(self._files.log, batch)
        files = [file for file in manifest.files if file.bucket in self._buckets]
        if self._options.records:
            for file in files:
                yield from self._rows(batch, file)
            return
        rows = self._count(files)
        if not rows and (self._keys or self._options.bucket is not None):
            return
        if self._options.json:
            yield json.dumps(_describe(manifest, files, rows))
        else:
            size = units.size(sum(file.bytes for file in files))
            times = f"  {_times_text(joined_times(files))}" if self._has_times else ""
            yield (
                f"{batch:>8}  {units.moment(manifest.written_us):<20}  {len(files):>6,}  "
                f"{rows:>12,}  {size:>8}{times}"
            )

    def _count(self, files: Sequence[DataFile]) -> int:
        """How many rows are asked for; from the manifest alone where it tells."""
        if self._keys:
            return sum(self._table(file).num_rows for file in files)
        return sum(file.rows for file in files)

    def _rows(self, batch: int, file: DataFile) -> Iterator[str]:
        directory = log_directory(Stream.DATA, file.bucket)
        for row in plain_rows(self._table(file)):
            if self._options.json:
                place = {"bucket": file.bucket, "batch": batch}
                yield json.dumps({**place, "row": row}, default=str)
            else:
                yield f"{directory}  {batch:>6}  {row_text(row)}"

    def _table(self, file: DataFile) -> pa.Table:
        """The rows of a file that are asked for."""
        segment = open_file(self._files.storage, self._files.meta.log_id, file)
        table = segment.rows(FrameKind.INPUT, self._files.description.schema)
        for key in self._keys:
            table = table.filter(key.matches(table))
        return table


def _times_text(times: TimeRange | None) -> str:
    if times is None:
        return "-"
    return f"{units.moment(times.min_us):<20}  {units.moment(times.max_us)}"


def _describe(manifest: Manifest, files: Sequence[DataFile], rows: int) -> dict[str, Any]:
    return {
        "batch": manifest.batch,
        "written_us": manifest.written_us,
        "rows": rows,
        "bytes": sum(file.bytes for file in files),
        "time_range_us": _bounds(joined_times(files)),
        "files": [
            {
                "path": file.path,
                "bucket": file.bucket,
                "rows": file.rows,
                "bytes": file.bytes,
                "checksum": file.checksum,
                "time_range_us": _bounds(file.time_range),
            }
            for file in files
        ],
        "total_rows": manifest.total_rows,
        "total_bytes": manifest.total_bytes,
        "writers": dict(manifest.writers),
        "boundaries": None if manifest.boundaries is None else manifest.boundaries.to_json(),
    }


def _bounds(times: TimeRange | None) -> list[int] | None:
    return None if times is None else [times.min_us, times.max_us]
