"""Finds and reads the segments of one log, wherever a merge has put them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from trailmark.errors import DamagedSegment, MissingSegment, UnknownFormat
from trailmark.log.catalog import EMPTY_CATALOG, Catalog
from trailmark.log.damage import Origin
from trailmark.log.footer import Footer, LogIdentity
from trailmark.log.frame import TRAILER, locate_footer
from trailmark.log.names import LARGEST_PACK, LogFile, log_directory, segment_name
from trailmark.log.pack import (
    PACK_END,
    PACK_HEADER,
    PackIndex,
    check_pack_header,
    decode_pack_index,
)
from trailmark.log.segment import SEGMENT_END, Segment, decode_footer, decode_segment
from trailmark.log.storage import Storage

#: More bytes than nearly every segment has.
_LARGE = 256 << 20

#: Enough for nearly every footer, and no more than a disk reads anyway.
_TAIL_BYTES = 4096

Answer = TypeVar("Answer")


def read_whole(
    storage: Storage, path: str, origin: Origin, offset: int = 0, length: int | None = None
) -> memoryview:
    """A file of a log, or a range of it.

    A sparse file can have any size. One that is large is read only if its last bytes are those of
    a file of the log, and if it fits into memory.
    """
    data = storage.read(path, offset, _LARGE if length is None else min(length, _LARGE))
    if len(data) < _LARGE:
        return data
    if length is None:
        tail, length = storage.read_tail(path, TRAILER.size)
        locate_footer(tail, length, PACK_END if path.endswith(".pack") else SEGMENT_END, origin)
    if length > _memory_bytes():
        raise origin.mismatch(0, f"{length:,} bytes do not fit into the memory of this machine")
    return storage.read(path, offset, length)


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class LogReader:
    """Reads by computed name; lists the directory only when a file is not where it was.

    A merge publishes the pack before it deletes the segments. So a reader that misses a segment
    and then lists the directory finds the pack, and one that misses both knows that the batch
    is gone. A reader that asks for a batch which was trimmed may find its file all the same, where
    one is left over: who must not asks `contains` first.
    """

    def __init__(self, storage: Storage, identity: LogIdentity) -> None:
        self.storage = storage
        self.identity = identity
        self.directory = log_directory(identity.stream, identity.bucket)
        self._catalog = EMPTY_CATALOG
        self._indexes: dict[str, PackIndex] = {}

    def fresh(self) -> LogReader:
        """A reader that remembers nothing: for those who look whether the files are still whole."""
        return LogReader(self.storage, self.identity)

    def path(self, file: LogFile) -> str:
        """Where a file of this log lies in the storage."""
        return f"{self.directory}/{file.name}"

    def segment_path(self, batch: int) -> str:
        """Where a batch lies as long as it is not merged."""
        return f"{self.directory}/{segment_name(batch)}"

    def look(self) -> Catalog:
        """List the directory; refused if it holds a file whose name cannot be believed."""
        catalog = self.look_at_all()
        if catalog.incredible:
            raise self.incredible(catalog.incredible[0])
        return catalog

    def look_at_all(self) -> Catalog:
        """List the directory, whatever it holds."""
        catalog = Catalog.of(self.storage, self.directory)
        held = {pack.name for pack in catalog.packs}
        # Rebuilt, not changed in place: another thread may be reading from it, or rebuild it, too.
        known = self._indexes
        self._indexes = {name: known[name] for name in held & known.keys()}
        self._catalog = catalog
        return catalog

    def incredible(self, file: LogFile) -> DamagedSegment:
        """The error about a file that cannot hold what its name says."""
        return DamagedSegment(
            f"A file of the log says in its name that it holds batches {file.first} to "
            f"{file.last}: more than the {LARGEST_PACK:,} that a file can hold.",
            where=self.path(file),
            fix="Nothing of Trailmark's writes such a name. Move the file out of the log, or let "
            "repair() set it aside.",
        )

    def contains(self, batch: int) -> bool:
        """Whether the log holds the batch. Does not list for the batch behind a plain segment.

        Segments are merged oldest first, behind left-overs that have been deleted for good. Where
        the batch before still has a file of its own, this one is not in a pack. A file of its own
        may be a left-over, which only a listing tells.
        """
        is_plain = self.storage.exists(self.segment_path(batch))
        if not is_plain and batch > 0 and self.storage.exists(self.segment_path(batch - 1)):
            return False
        return self.look().contains(batch)

    def read(self, batch: int) -> Segment:
        """The segment of a batch, verified."""
        return self._search(batch, lambda file: self.read_from_file(file, batch))

    def read_footer(self, batch: int) -> tuple[Footer, int]:
        """Footer and checksum of a batch's segment, from its tail alone."""
        return self._search(batch, lambda file: self.read_footer_from_file(file, batch))

    def read_from_file(self, file: LogFile, batch: int) -> Segment:
        """The segment of a batch out of the one file."""
        with self._not_recycled(file):
            return self._read_from_file(file, batch)

    def _read_from_file(self, file: LogFile, batch: int) -> Segment:
        path = self.path(file)
        if file.is_pack:
            entry = self.pack_index(file).entry(batch)
            origin = Origin(path, entry.offset)
            data = read_whole(self.storage, path, origin, entry.offset, entry.length)
        else:
            origin = Origin(path)
            data = read_whole(self.storage, path, origin)
        segment = decode_segment(data, origin, expect=self.identity)
        self._check_place(file, segment.footer, segment.checksum, origin)
        return segment

    def read_footer_from_file(self, file: LogFile, batch: int) -> tuple[Footer, int]:
        """Footer and checksum of a batch out of the one file."""
        with self._not_recycled(file):
            return self._read_footer_from_file(file, batch)

    def _read_footer_from_file(self, file: LogFile, batch: int) -> tuple[Footer, int]:
        path = self.path(file)
        if file.is_pack:
            entry = self.pack_index(file).entry(batch)
            origin, size = Origin(path, entry.offset), entry.length
            tail = self._range_tail(path, entry.offset, size, _TAIL_BYTES)
        else:
            origin = Origin(path)
            tail, size = self.storage.read_tail(path, _TAIL_BYTES)
        needed = size - locate_footer(tail, size, SEGMENT_END, origin).footer_offset
        if needed > len(tail):
            tail = self._range_tail(path, origin.start, size, needed)
        footer, checksum = decode_footer(tail, size, origin, expect=self.identity)
        self._check_place(file, footer, checksum, origin)
        return footer, checksum

    @contextmanager
    def _not_recycled(self, file: LogFile) -> Iterator[None]:
        """What cannot be read and is gone by now was written over: it was trimmed."""
        try:
            yield
        except (DamagedSegment, UnknownFormat):
            if self.storage.exists(self.path(file)):
                raise
            raise FileNotFoundError(self.path(file)) from None

    def pack_index(self, file: LogFile) -> PackIndex:
        """Which batch lies where in a pack."""
        index = self._indexes.get(file.name)
        if index is None:
            index = self._read_pack_index(file)
            self._indexes[file.name] = index
        return index

    def check_pack_start(self, file: LogFile) -> None:
        """Verify those bytes of a pack that are neither index nor segment."""
        path = self.path(file)
        check_pack_header(self.storage.read(path, 0, PACK_HEADER.size), Origin(path))

    def _search(self, batch: int, look_into: Callable[[LogFile], Answer]) -> Answer:
        damage: DamagedSegment | None = None
        for file in self._candidates(batch):
            try:
                return look_into(file)
            except FileNotFoundError:
                continue  # merged, or never there
            except DamagedSegment as error:
                damage = damage or error  # the same batch may lie in another file as well
        # The name of a trimmed batch may come back for a file that another was written over.
        if damage is not None and batch >= self._catalog.start:
            raise damage
        raise MissingSegment(
            f"Batch {batch} is not in the log.",
            where=self.segment_path(batch),
            fix="Look with batches() at what the log holds. A batch that was trimmed or deleted "
            "comes back only from a backup.",
        )

    def _candidates(self, batch: int) -> Iterator[LogFile]:
        known = self._catalog.packs_holding(batch)
        yield from known
        yield LogFile(segment_name(batch), batch, batch, 0)
        for pack in self.look().packs_holding(batch):
            if pack not in known:
                yield pack

    def _range_tail(self, path: str, start: int, size: int, length: int) -> memoryview:
        length = min(length, size)
        tail = self.storage.read(path, start + size - length, length)
        if len(tail) < length:
            raise Origin(path, start).cut_short(
                size - length + len(tail), "the file became shorter"
            )
        return tail

    def _read_pack_index(self, file: LogFile) -> PackIndex:
        path = self.path(file)
        origin = Origin(path)
        tail, size = self.storage.read_tail(path, _TAIL_BYTES)
        needed = size - locate_footer(tail, size, PACK_END, origin).footer_offset
        if needed > len(tail):
            tail = self._range_tail(path, 0, size, needed)
        index = decode_pack_index(tail, size, origin, expect=self.identity)
        if (index.entries[0].batch, index.entries[-1].batch) != (file.first, file.last):
            raise origin.mismatch(size - TRAILER.size, "the pack holds other batches than its name")
        return index

    def _check_place(self, file: LogFile, footer: Footer, checksum: int, origin: Origin) -> None:
        if file.is_pack:
            entry = self.pack_index(file).entry(footer.batch) if file.holds(footer.batch) else None
            if entry is None or (entry.offset, entry.checksum) != (origin.start, checksum):
                raise origin.mismatch(0, "the pack's index names another segment here")
        elif footer.batch != file.first:
            raise origin.mismatch(0, f"the file's name says another batch than {footer.batch}")
