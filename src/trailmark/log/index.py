"""The time index of a log: which batch holds a time.

It is derived from the log and never trusted over it: loading compares it with a listing, drops
what is gone and reads the footers of what is new. A damaged or missing index file costs the time
to read all footers and nothing else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from trailmark.errors import LogError
from trailmark.log import json_text
from trailmark.log.footer import FORMAT_VERSION, KNOWN_VERSIONS, TimeRange
from trailmark.log.names import LARGEST_BATCH, LARGEST_PACK, LogFile, parse_name
from trailmark.log.reader import LogReader
from trailmark.records import NO_BATCH
from trailmark.values import dataclass

INDEX_NAME = "index.json"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """The times of one batch."""

    batch: int
    written_us: int
    time_range: TimeRange | None


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file as it was when it was read: its size, and the times of its batches."""

    size: int
    entries: Sequence[IndexEntry]


IndexedFiles: TypeAlias = Mapping[str, IndexedFile]


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """The times of every batch of a log, in order.

    A batch whose footer cannot be read may hold any time, so that a search never passes it over.
    """

    entries: Sequence[IndexEntry]
    unreadable: frozenset[int] = frozenset()

    @classmethod
    def load(cls, reader: LogReader) -> TimeIndex:
        """The index of the log as it is now; the stored one is brought up to date on the way."""
        stored = stored_times(reader)
        current, unreadable = read_times(reader, stored)
        if current != stored:
            _store(reader, current)
        by_batch = {entry.batch: entry for file in current.values() for entry in file.entries}
        entries = [by_batch[batch] for batch in sorted(by_batch)]
        return cls(entries, frozenset(unreadable - by_batch.keys()))

    def find(self, timestamp_us: int) -> int:
        """The first batch that may hold this event time or a later one; NO_BATCH if none does.

        Reading from there on gives every tuple of the log at or after the time.
        """
        ends = [e.time_range.max_us if e.time_range else None for e in self.entries]
        return self._first(ends, timestamp_us)

    def find_written(self, timestamp_us: int) -> int:
        """The first batch that was written at or after this time; NO_BATCH if none was."""
        return self._first([entry.written_us for entry in self.entries], timestamp_us)

    def _first(self, times: Sequence[int | None], timestamp_us: int) -> int:
        # The largest time so far never falls, though times themselves may (late data, clocks).
        lowest = -(2**127)
        so_far = list(accumulate((lowest if t is None else t for t in times), max))
        position = bisect_left(so_far, max(timestamp_us, lowest + 1))
        found = [self.entries[position].batch] if position < len(self.entries) else []
        return min([*found, *self.unreadable], default=NO_BATCH)


def rebuild_index(reader: LogReader) -> bool:
    """Read every footer again; True if the stored index was missing or said something else."""
    current, _ = read_times(reader, {})
    if current == stored_times(reader):
        return False
    _store(reader, current)
    return True


def index_path(reader: LogReader) -> str:
    """Where the index of a log is stored."""
    return f"{reader.directory}/{INDEX_NAME}"


def read_times(reader: LogReader, known: IndexedFiles) -> tuple[IndexedFiles, set[int]]:
    """The files of the log as they are now, and the batches of those that cannot be read.

    Nothing is stored, and what is known already is not read again. Files are immutable, so a file
    of the same name and size is the one that was read before.
    """
    current: dict[str, IndexedFile] = {}
    unreadable: set[int] = set()
    catalog = reader.look()
    for file in catalog.files:
        first = catalog.first_held(file)
        before = known.get(file.name)
        if before is None or before.size != file.size:
            try:
                before = IndexedFile(file.size, _read_entries(reader, file))
            except LogError:
                unreadable.update(range(first, file.last + 1))  # reading them will say why
                continue
            except FileNotFoundError:
                continue  # merged or trimmed since the directory was listed
        if first > file.first:
            held = [entry for entry in before.entries if entry.batch >= first]
            before = IndexedFile(file.size, held)
        current[file.name] = before
    return current, unreadable


def _read_entries(reader: LogReader, file: LogFile) -> list[IndexEntry]:
    if file.is_pack:
        entries = reader.pack_index(file).entries
        return [IndexEntry(e.batch, e.written_us, e.time_range) for e in entries]
    footer, _ = reader.read_footer_from_file(file, file.first)
    return [IndexEntry(footer.batch, footer.written_us, footer.time_range)]


def stored_times(reader: LogReader) -> IndexedFiles:
    """What the stored index says, whether that is still so or not; nothing if it is damaged."""
    try:
        body = json_text.load_guarded(json_text.read_text(reader.storage, index_path(reader)))
    except FileNotFoundError:
        return {}
    # Nothing about an index is different in any version that is known.
    if body is None or body.get("log") not in [_log_fields(reader, v) for v in KNOWN_VERSIONS]:
        return {}
    try:
        files = json_text.object_of(body.get("files"))
        return {name: _file_from_json(name, *each) for name, each in files.items()}
    except (TypeError, ValueError):
        return {}  # whole, and not what an index is


def _file_from_json(name: str, size: object, entries: Sequence[Any]) -> IndexedFile:
    file = parse_name(name, json_text.whole(size, 0, 2**63 - 1))
    found = [_entry_from_json(entry) for entry in entries]
    batches = [entry.batch for entry in found]
    if file is None or len(batches) > LARGEST_PACK or any(not file.holds(b) for b in batches):
        raise ValueError(f"{name} does not hold these batches")
    return IndexedFile(file.size, found)


def _store(reader: LogReader, files: IndexedFiles) -> None:
    body = {
        "files": {
            name: [file.size, [_entry_to_json(entry) for entry in file.entries]]
            for name, file in files.items()
        },
        "log": _log_fields(reader, FORMAT_VERSION),
    }
    text = json_text.dump_guarded(body, "index", indent=None)
    reader.storage.replace(index_path(reader), [text])


def _log_fields(reader: LogReader, version: int) -> dict[str, Any]:
    identity = reader.identity
    return {
        "bucket": identity.bucket,
        "log_id": str(identity.log_id),
        "stream": identity.stream.name.lower(),
        "version": version,
    }


def _entry_to_json(entry: IndexEntry) -> list[int | None]:
    times = entry.time_range
    bounds = (None, None) if times is None else (times.min_us, times.max_us)
    return [entry.batch, entry.written_us, *bounds]


def _entry_from_json(stored: Sequence[Any]) -> IndexEntry:
    batch, written_us, min_us, max_us = stored
    return IndexEntry(
        json_text.whole(batch, 0, LARGEST_BATCH),
        json_text.whole(written_us, -(2**63), 2**63 - 1),
        TimeRange.from_json(min_us, max_us),
    )
