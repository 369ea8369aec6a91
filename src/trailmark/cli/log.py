"""``trailmark log``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from trailmark import units
from trailmark.cli.codes import OK, WRONG
from trailmark.cli.place import chosen_buckets, open_to_look
from trailmark.cli.rows import plain_rows, row_text, value_text
from trailmark.cli.selection import Selection
from trailmark.cli.stream_log import StreamListing
from trailmark.errors import LogError, MissingSegment
from trailmark.inspection.logs import OperatorFiles
from trailmark.log import Footer, StreamLog
from trailmark.log.catalog import Catalog
from trailmark.records import FrameKind
from trailmark.streams.stored import StreamFiles

_HEAD = f"{'log':<9} {'batch':>8}  {'written':<20}  {'size':>8}  rows"


def run(options: argparse.Namespace) -> int:
    """Prints segment after segment, never holding more than one."""
    files = open_to_look(options.path)
    listing: _Listing | StreamListing
    if isinstance(files, StreamFiles):
        listing = StreamListing(files, options)
    else:
        listing = _Listing(files, options)
    if not options.json and not options.records:
        print(listing.head)
    for line in islice(listing.lines(), options.limit):
        print(line)
    return WRONG if listing.unreadable else OK


class _Listing:
    """The segments of all chosen logs, oldest first in each."""

    head = _HEAD

    def __init__(self, files: OperatorFiles, options: argparse.Namespace) -> None:
        self._options = options
        self._files = files
        self._buckets = chosen_buckets(self._files, options.bucket)
        self._selection = Selection.of(options, self._files.meta)
        self.unreadable = 0

    def lines(self) -> Iterator[str]:
        for bucket in self._buckets:
            for stream in self._selection.streams:
                yield from self._lines_of(self._files.log(stream, bucket))

    def _lines_of(self, log: StreamLog) -> Iterator[str]:
        catalog = log.reader.look()
        for batch in catalog.batches():
            if not self._selection.has_batch(batch):
                continue
            try:
                yield from self._segment(log, catalog, batch)
            except (MissingSegment, FileNotFoundError):
                continue  # trimmed since the log was listed
            except LogError as error:
                self.unreadable += 1
                print(f"{log.directory}, batch {batch}: {error.what}", file=sys.stderr)

    def _segment(self, log: StreamLog, catalog: Catalog, batch: int) -> Iterator[str]:
        if self._options.records:
            yield from self._rows(log, batch)
            return
        footer, checksum = log.read_footer(batch)
        rows = self._counts(log, footer)
        if not rows and self._selection.is_filter:
            return
        size = _segment_bytes(log, catalog, batch)
        if self._options.json:
            yield json.dumps(_describe(footer, checksum, size, rows))
        else:
            texts = [f"{value_text(name)} {count:,}" for name, count in rows.items()]
            yield (
                f"{log.directory:<9} {batch:>8}  {units.moment(footer.written_us):<20}  "
                f"{units.size(size):>8}  {', '.join(texts) or 'none'}"
            )

    def _counts(self, log: StreamLog, footer: Footer) -> dict[str, int]:
        """How many rows of each kind are asked for; from the footer alone where it tells."""
        if self._selection.is_about_rows:
            tables = self._selection.tables(log.read(footer.batch))
            counts = {name: int(table.num_rows) for name, table in tables}
        else:
            logged = self._logged(footer)
            counts = {n: count for n, count in logged.items() if self._selection.wants(n)}
        is_filtered = self._selection.is_filter
        return {name: count for name, count in counts.items() if count or not is_filtered}

    def _logged(self, footer: Footer) -> dict[str, int]:
        """Rows by kind, footprints as open and check where the footer tells them apart.

        The order of tuples is not counted: it has a row for each of them.
        """
        inputs = {frame: name for name, frame in self._selection.form.inputs.items()}
        counts: dict[str, int] = {}
        for kind, count in footer.rows.items():
            checked = footer.attributes.get("footprints_checked")
            if kind is FrameKind.FOOTPRINTS and isinstance(checked, int) and checked <= count:
                counts |= {"open": count - checked, "check": checked}
            elif kind is not FrameKind.ORDER:
                counts[inputs.get(kind, kind.label)] = count
        return counts

    def _rows(self, log: StreamLog, batch: int) -> Iterator[str]:
        for kind, table in self._selection.tables(log.read(batch)):
            for row in plain_rows(table):
                if self._options.json:
                    stream, bucket = log.identity.stream.name.lower(), log.identity.bucket
                    place = {"stream": stream, "bucket": bucket, "batch": batch, "kind": kind}
                    yield json.dumps({**place, "row": row}, default=str)
                else:
                    text = row_text(row, self._selection.form.moments)
                    yield f"{log.directory}  {batch:>6}  {value_text(kind):<7}  {text}"


def _segment_bytes(log: StreamLog, catalog: Catalog, batch: int) -> int:
    """Bytes of a segment, in a file of its own or in a pack."""
    file = catalog.segments.get(batch)
    if file is not None:
        return file.size
    return log.reader.pack_index(catalog.packs_holding(batch)[0]).entry(batch).length


def _describe(footer: Footer, checksum: int, size: int, rows: dict[str, int]) -> dict[str, Any]:
    times = footer.time_range
    return {
        "stream": footer.identity.stream.name.lower(),
        "bucket": footer.identity.bucket,
        "batch": footer.batch,
        "bytes": size,
        "checksum": checksum,
        "previous": {"batch": footer.previous.batch, "checksum": footer.previous.checksum},
        "written_us": footer.written_us,
        "time_range_us": None if times is None else [times.min_us, times.max_us],
        "rows": rows,
        "attributes": footer.attributes,
    }
