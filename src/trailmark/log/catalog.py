"""What a log's directory holds, from one listing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trailmark.log.names import LogFile, parse_name
from trailmark.log.storage import Storage
from trailmark.records import NO_BATCH


@dataclass(frozen=True, slots=True)
class Catalog:
    """The files of a log at one moment. Readers must expect that some have been merged since."""

    segments: Mapping[int, LogFile]
    packs: Sequence[LogFile]

    @classmethod
    def of(cls, storage: Storage, directory: str) -> Catalog:
        """List a log's directory; files that are neither segment nor pack are passed over.

        A listing is no snapshot. While a merge runs, it may come too early for the pack and too
        late for the segments. What one listing misses so, another one before or after it sees.
        """
        segments, packs = {}, []
        entries = {entry.name: entry for _ in range(2) for entry in storage.list(directory)}
        for entry in entries.values():
            file = parse_name(entry.name, entry.size)
            if file is None:
                continue
            if file.is_pack:
                packs.append(file)
            else:
                segments[file.first] = file
        return cls(segments, packs)

    @property
    def files(self) -> list[LogFile]:
        """All files, by the batches they end with: the order in which they may be deleted."""
        return sorted([*self.segments.values(), *self.packs], key=lambda f: (f.last, f.first))

    def batches(self) -> list[int]:
        """Every batch that is held by some file, in order."""
        found = set(self.segments)
        for pack in self.packs:
            found.update(range(pack.first, pack.last + 1))
        return sorted(found)

    def packs_holding(self, batch: int) -> list[LogFile]:
        """The packs that hold a batch. More than one if two merges ran at once."""
        return [pack for pack in self.packs if pack.holds(batch)]

    def contains(self, batch: int) -> bool:
        """Whether some file holds the batch."""
        return batch in self.segments or bool(self.packs_holding(batch))

    def newest(self) -> int:
        """The newest batch, or NO_BATCH."""
        return max((*self.segments, *(pack.last for pack in self.packs)), default=NO_BATCH)

    def oldest(self) -> int:
        """The oldest batch, or NO_BATCH."""
        return min((*self.segments, *(pack.first for pack in self.packs)), default=NO_BATCH)


EMPTY_CATALOG = Catalog({}, ())
