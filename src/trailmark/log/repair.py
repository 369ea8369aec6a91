"""Putting a log right after a failure, without ever losing a whole segment.

What repair may do, and nothing else:

- remove temporaries of dead writers;
- set aside a file whose name says more batches than a file can hold, its whole segments published
  again;
- take a damaged pack apart: publish its whole segments again, set the pack aside;
- set aside damaged segments at the newest end, after which nothing whole follows. Only these may
  be called torn;
- finish a trim: delete files that lie before its mark;
- set aside a segment whose batch a whole pack holds differently (a writer that came back late);
- finish a merge: delete segments that a whole pack holds as well;
- build the time index again.

Everything else that is wrong is reported and left as it is. A log that holds a whole segment of an
unknown format is not touched at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from trailmark.errors import DamagedSegment, UnknownFormat
from trailmark.log.damage import USE_A_NEWER_ONE, Origin
from trailmark.log.index import index_path, rebuild_index
from trailmark.log.merge import find_copied
from trailmark.log.names import LogFile
from trailmark.log.pack import rescue_segments
from trailmark.log.reader import LogReader, read_whole
from trailmark.log.segment import Segment
from trailmark.log.trim import finish_trim, move_mark_back
from trailmark.log.unknown import refuse_unknown
from trailmark.log.verify import Copy, Problem, VerifyReport, verify_log

Deed: TypeAlias = Literal["removed", "set aside", "published again", "rebuilt"]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that repair did, to which file, and why. ``moved_to`` if it was set aside."""

    deed: Deed
    path: str
    why: str
    moved_to: str = ""


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What was done, and what is still wrong with the log."""

    actions: Sequence[Action]
    problems: Sequence[Problem]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong with the log now."""
        return not self.problems


def repair_log(reader: LogReader) -> RepairReport:
    """Repair, in the order of the list above."""
    reader = reader.fresh()
    work = _Repair(reader)
    work.refuse_unknown()
    work.remove_temporaries()
    work.set_aside_incredible()
    work.take_apart_unusable_packs()
    work.set_aside_torn_tail()
    work.finish_trims()
    work.set_aside_late_comers()
    work.finish_merges()
    work.rebuild_index()
    return RepairReport(work.actions, work.verified().problems)


def set_aside_after(reader: LogReader, batch: int) -> RepairReport:
    """Set aside everything newer than a batch: for whoever decides to go on from there.

    A pack that reaches over the batch is taken apart. Where the log was trimmed beyond the batch,
    it has nothing left, and what comes next lies before the mark: that is moved back.
    """
    reader = reader.fresh()
    work = _Repair(reader)
    why = f"everything after batch {batch} was to be set aside"
    catalog = reader.look()
    refuse_unknown(reader, (file for file in catalog.files if file.last > batch))
    for file in reversed(catalog.files):
        if file.first <= batch < file.last:
            work.take_apart(file, why, up_to=batch)
        elif file.first > batch:
            work.set_aside(file, why)
    if catalog.start > batch + 1:
        work.move_mark_back(batch + 1)
    work.rebuild_index()
    return RepairReport(work.actions, work.verified().problems)


@dataclass(slots=True)
class _Repair:
    reader: LogReader
    actions: list[Action] = field(default_factory=list)
    _verified: VerifyReport | None = None

    def verified(self) -> VerifyReport:
        """What is wrong now; read again only if something was done since."""
        if self._verified is None:
            self._verified = verify_log(self.reader)
        return self._verified

    def refuse_unknown(self) -> None:
        for problem in self.verified().problems:
            if problem.trouble == "unknown":
                raise UnknownFormat(problem.what, where=problem.path, fix=USE_A_NEWER_ONE)

    def remove_temporaries(self) -> None:
        for name in self.reader.storage.clean(self.reader.directory):
            path = f"{self.reader.directory}/{name}"
            self._did(Action("removed", path, "its writer died before publishing it"))

    def finish_merges(self) -> None:
        for file, pack in find_copied(self.reader, self.reader.look()):
            path = self.reader.path(file)
            self.reader.storage.delete(path)
            self._did(Action("removed", path, f"{pack.name} holds it as well"))

    def finish_trims(self) -> None:
        for path in finish_trim(self.reader, self.reader.look()):
            self._did(Action("removed", path, "it was trimmed, and left over or brought back"))

    def move_mark_back(self, start: int) -> None:
        self.finish_trims()
        for path in move_mark_back(self.reader, self.reader.look(), start):
            self._did(Action("removed", path, "the log goes on before the batch it names"))
        # Names become free for other segments, which the index must not take for these.
        self.reader.storage.delete(index_path(self.reader))

    def set_aside_incredible(self) -> None:
        why = "its name says more batches than a file can hold"
        for file in self.reader.look_at_all().incredible:
            if not self.take_apart(file, why):
                self.set_aside(file, why)

    def take_apart_unusable_packs(self) -> None:
        by_file: dict[LogFile, list[Copy]] = {}
        for copy in self.verified().copies:
            by_file.setdefault(copy.file, []).append(copy)
        for file, copies in by_file.items():
            if file.is_pack and all(copy.trouble == "damaged" for copy in copies):
                self.take_apart(file, "its index or all of its segments are damaged")

    def set_aside_torn_tail(self) -> None:
        torn: dict[LogFile, None] = {}
        for _, copies in sorted(self._by_batch().items(), reverse=True):
            if any(copy.trouble != "damaged" for copy in copies):
                break  # whole; or of another log, and then not ours to move
            torn.update(dict.fromkeys(copy.file for copy in copies))
        why = "it is damaged and nothing whole follows it: a torn tail"
        for file in torn:
            if not file.is_pack or not self.take_apart(file, why):
                self.set_aside(file, why)

    def set_aside_late_comers(self) -> None:
        for copies in self._by_batch().values():
            whole = [copy for copy in copies if copy.trouble is None]
            in_pack = next((copy for copy in whole if copy.file.is_pack), None)
            for copy in whole:
                if in_pack is not None and not copy.file.is_pack and copy.link != in_pack.link:
                    self.set_aside(copy.file, f"{in_pack.file.name} holds another one already")

    def rebuild_index(self) -> None:
        if rebuild_index(self.reader):
            path = index_path(self.reader)
            self.actions.append(Action("rebuilt", path, "it did not agree with the log"))

    def take_apart(self, pack: LogFile, why: str, up_to: int | None = None) -> bool:
        """Publish a pack's whole segments again and set it aside; False if it has none."""
        path = self.reader.path(pack)
        whole = list(self._whole_segments(path))
        # Newest first: at no moment has a batch a file of its own while the next one has none
        # (see `LogReader.contains`).
        for segment in reversed(whole):
            if up_to is None or segment.batch <= up_to:
                target = self.reader.segment_path(segment.batch)
                self.reader.storage.publish(target, [segment.data], force_sync=True)
                self._did(Action("published again", target, f"{pack.name} is taken apart"))
        if whole:
            self.set_aside(pack, why)
        return bool(whole)

    def _whole_segments(self, path: str) -> Iterator[Segment]:
        origin = Origin(path)
        try:
            # Of a length that is given, no trailer is expected: it may be what is damaged.
            size = self.reader.storage.size(path)
            data = read_whole(self.reader.storage, path, origin, 0, size)
        except DamagedSegment:
            return  # of a size that no pack has
        yield from rescue_segments(data, origin, self.reader.identity)

    def set_aside(self, file: LogFile, why: str) -> None:
        # The name becomes free for another segment, which the index must not take for this one.
        self.reader.storage.delete(index_path(self.reader))
        path = self.reader.path(file)
        self._did(Action("set aside", path, why, self.reader.storage.set_aside(path)))

    def _by_batch(self) -> dict[int, list[Copy]]:
        by_batch: dict[int, list[Copy]] = {}
        for copy in self.verified().copies:
            by_batch.setdefault(copy.batch, []).append(copy)
        return by_batch

    def _did(self, action: Action) -> None:
        self.actions.append(action)
        self._verified = None
