"""Merging small segments into packs.

Three steps per pack, each of which may be the last one before a crash::

    1 read and verify the segments of a run
    2 publish the pack, synced, if it is absent
    3 delete the segments, oldest first

After 2 a batch lies in two files with the same bytes, which harms nobody; the next merge or
repair finishes 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace

from trailmark.errors import DamagedSegment, UnknownFormat
from trailmark.log.catalog import Catalog
from trailmark.log.names import LARGEST_PACK, LogFile, pack_name
from trailmark.log.pack import PackIndex, encode_pack
from trailmark.log.reader import LogReader
from trailmark.log.segment import Segment
from trailmark.log.trim import finish_trim
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a merge did.

    ``stopped_by`` is what it came to that cannot be read, if anything: nothing behind it is merged.
    ``was_overtaken`` says that another merge or a trim took segments away while this one read
    them; the next merge sees the result.
    """

    packs: Sequence[str]
    merged: Sequence[int]
    bytes: int
    stopped_by: DamagedSegment | UnknownFormat | None = None
    was_overtaken: bool = False


@dataclass(slots=True)
class _Progress:
    """What a merge has done so far."""

    packs: list[str] = field(default_factory=list)
    merged: list[int] = field(default_factory=list)
    bytes: int = 0

    def report(
        self,
        stopped_by: DamagedSegment | UnknownFormat | None = None,
        was_overtaken: bool = False,
    ) -> MergeReport:
        return MergeReport(self.packs, self.merged, self.bytes, stopped_by, was_overtaken)


def go_on() -> None:
    """Nobody wants to be told."""


def merge_log(
    reader: LogReader,
    up_to: int,
    merge_bytes: int,
    smallest_run: int = 2,
    *,
    before_pack: Callable[[], None] = go_on,
) -> MergeReport:
    """Merge the segments of batches up to ``up_to`` into packs of about ``merge_bytes``.

    ``before_pack`` is called before each of them, and may raise: then nothing is half-done.
    """
    assert smallest_run >= 2
    reader = reader.fresh()
    done = _Progress()
    try:
        catalog = reader.look()
        # Before a batch that is in a pack only, a left-over would hide it from `contains`.
        finish_trim(reader, catalog)
        catalog = _finish_merges(reader, catalog)
        for run in _runs(catalog, up_to, merge_bytes):
            if _is_full(run, merge_bytes) or len(run) >= smallest_run:
                before_pack()
                _merge_run(reader, run, done)
    except (DamagedSegment, UnknownFormat) as error:
        return done.report(stopped_by=error)
    except FileNotFoundError:
        return done.report(was_overtaken=True)
    return done.report()


def _finish_merges(reader: LogReader, catalog: Catalog) -> Catalog:
    left = dict(catalog.segments)
    for file, _ in find_copied(reader, catalog):
        reader.storage.delete(reader.path(file))
        del left[file.first]
    return replace(catalog, segments=left)


def find_copied(reader: LogReader, catalog: Catalog) -> Iterator[tuple[LogFile, LogFile]]:
    """Segments that a merge has left behind, oldest first, each with the pack that holds it.

    They may be deleted: the pack is settled, for whoever published it may have died before the
    last sync. Ends at the first that is not the one its pack holds: where it has to stay, so have
    those behind it (see `LogReader.contains`).
    """
    settled: LogFile | None = None
    for batch, file in sorted(catalog.segments.items()):
        packs = catalog.packs_holding(batch)
        copied = next((pack for pack in packs if _is_copied(reader, file, pack)), None)
        if copied is None and packs:
            return
        if copied is None:
            continue
        if copied != settled:
            reader.storage.settle(reader.path(copied))
            settled = copied
        yield file, copied


def _is_copied(reader: LogReader, file: LogFile, pack: LogFile) -> bool:
    """Whether the pack holds the very segment of this file, whole."""
    try:
        copy = reader.read_from_file(pack, file.first)
    except DamagedSegment:
        return False
    try:
        original = reader.read_from_file(file, file.first)
    except DamagedSegment:
        return True  # the copy was verified when it was made, and is again
    return copy.link == original.link


def _runs(catalog: Catalog, up_to: int, merge_bytes: int) -> Iterator[list[LogFile]]:
    """Segments of consecutive batches, each run as long as a pack may be.

    No segment is left out between two runs, however large: where a batch keeps a file of its own,
    the next one has to keep it too, or `LogReader.contains` would have to list.
    """
    run: list[LogFile] = []
    for batch in sorted(catalog.segments):
        if batch > up_to:
            break
        if catalog.packs_holding(batch):
            continue  # not the segment the pack holds: for repair to look at
        if run and (run[-1].first != batch - 1 or _is_full(run, merge_bytes)):
            yield run
            run = []
        run.append(catalog.segments[batch])
    if run:
        yield run


def _is_full(run: Sequence[LogFile], merge_bytes: int) -> bool:
    size = sum(file.size for file in run)
    return len(run) == LARGEST_PACK or (len(run) >= 2 and size >= merge_bytes)


def _merge_run(reader: LogReader, run: Sequence[LogFile], done: _Progress) -> None:
    segments: list[Segment] = []
    unreadable: DamagedSegment | UnknownFormat | None = None
    for file in run:
        try:
            segments.append(_read_next(reader, file, segments))
        except (DamagedSegment, UnknownFormat) as error:
            unreadable = error
            break
    if len(segments) >= 2:
        _publish_pack(reader, run[: len(segments)], segments, done)
    if unreadable is not None:
        raise unreadable


def _read_next(reader: LogReader, file: LogFile, before: Sequence[Segment]) -> Segment:
    segment = reader.read_from_file(file, file.first)
    if before and segment.footer.previous != before[-1].link:
        raise segment.origin.mismatch(0, "it does not follow the segment before it")
    return segment


def _publish_pack(
    reader: LogReader, run: Sequence[LogFile], segments: Sequence[Segment], done: _Progress
) -> None:
    parts, index = encode_pack(reader.identity, segments)
    size = sum(map(len, parts))
    pack = LogFile(pack_name(run[0].first, run[-1].first), run[0].first, run[-1].first, size)
    # Synced whatever the durability: these batches may be old, and must not become young again.
    created = reader.storage.publish(reader.path(pack), parts, force_sync=True)
    if not created:
        _check_same(reader, pack, index)
    for file in run:
        reader.storage.delete(reader.path(file))
    done.packs.append(pack.name)
    done.merged += [file.first for file in run]
    done.bytes += size


def _check_same(reader: LogReader, pack: LogFile, index: PackIndex) -> None:
    """Make sure that the pack another merge has published holds the same segments, whole."""
    for entry in index.entries:
        segment = reader.read_from_file(pack, entry.batch)
        if segment.checksum != entry.checksum:
            raise segment.origin.mismatch(0, "the pack holds another segment than the log")
