"""What a log's directory holds, from one listing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trailmark.log.names import LogFile, parse_mark, parse_name
from trailmark.log.storage import Storage, is_spare
from trailmark.records import NO_BATCH
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Catalog:
    """The files of a log at one moment. Readers must expect that some have been merged since.

    Files that lie before the newest trim mark are no part of the log, though they may be there: a
    trim is under way, was interrupted, or a power failure brought some of them back. They are in
    ``left_over`` and nowhere else. A pack that reaches over the mark comes from a merge that had
    read its segments when they were trimmed: of its batches, too, those before the mark are gone.
    """

    segments: Mapping[int, LogFile]
    packs: Sequence[LogFile]
    left_over: Sequence[LogFile] = ()
    #: Files whose names say more batches than a file can hold: nobody counts on any of them.
    incredible: Sequence[LogFile] = ()
    #: The batches of all trim marks, in order. Only the newest counts.
    marks: Sequence[int] = ()
    #: Of files that are no part of it, but wait to be written over.
    spare_bytes: int = 0

    @classmethod
    def of(cls, storage: Storage, directory: str) -> Catalog:
        """List a log's directory; files with other names are passed over.

        A listing is no snapshot. While a merge runs, it may come too early for the pack and too
        late for the segments. What one listing misses so, another one before or after it sees. So
        it is with the mark of a trim and the files that this deletes.
        """
        entries = {entry.name: entry for _ in range(2) for entry in storage.list(directory)}
        marks = sorted(mark for mark in map(parse_mark, entries) if mark is not None)
        parsed = [parse_name(entry.name, entry.size) for entry in entries.values()]
        named = [file for file in parsed if file is not None]
        files = in_order(file for file in named if file.is_credible)
        incredible = in_order(file for file in named if not file.is_credible)
        start = marks[-1] if marks else 0
        left_over = [file for file in files if file.last < start]
        held = files[len(left_over) :]
        segments = {file.first: file for file in held if not file.is_pack}
        packs = [file for file in held if file.is_pack]
        spare_bytes = sum(entry.size for entry in entries.values() if is_spare(entry.name))
        return cls(segments, packs, left_over, incredible, marks, spare_bytes)

    @property
    def files(self) -> list[LogFile]:
        """All files of the log, in the order in which they may be deleted."""
        return in_order([*self.segments.values(), *self.packs])

    @property
    def start(self) -> int:
        """The batch of the newest trim mark: what is published before it is lost. 0 without one."""
        return self.marks[-1] if self.marks else 0

    def batches(self) -> list[int]:
        """Every batch that is held by some file, in order."""
        found = set(self.segments)
        for pack in self.packs:
            found.update(range(self.first_held(pack), pack.last + 1))
        return sorted(found)

    def packs_holding(self, batch: int) -> list[LogFile]:
        """The packs that hold a batch. More than one if two merges ran at once."""
        return [pack for pack in self.packs if pack.holds(batch) and batch >= self.start]

    def contains(self, batch: int) -> bool:
        """Whether some file holds the batch."""
        return batch in self.segments or bool(self.packs_holding(batch))

    def newest(self) -> int:
        """The newest batch, or NO_BATCH."""
        return max((*self.segments, *(pack.last for pack in self.packs)), default=NO_BATCH)

    def oldest(self) -> int:
        """The oldest batch, or NO_BATCH."""
        return min((*self.segments, *map(self.first_held, self.packs)), default=NO_BATCH)

    def first_held(self, file: LogFile) -> int:
        """The first batch of a file that is part of the log."""
        return max(file.first, self.start)


def in_order(files: Iterable[LogFile]) -> list[LogFile]:
    """Files by the batches they end with."""
    return sorted(files, key=lambda file: (file.last, file.first))


EMPTY_CATALOG = Catalog({}, ())
