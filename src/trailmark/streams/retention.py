"""How much of a written stream is kept, and removing the rest."""

from __future__ import annotations

from collections.abc import Sequence

from trailmark.errors import DamagedSegment, MissingSegment, SettingError
from trailmark.log import OperatorMeta, Storage, StreamLog
from trailmark.log.catalog import Catalog
from trailmark.log.readers import up_to_readers
from trailmark.log.trim import files_before, start_without
from trailmark.records import NO_BATCH, Stream
from trailmark.settings import DAY
from trailmark.streams.files import DataFile, files_written_before
from trailmark.streams.manifest import Manifest, read_manifest
from trailmark.values import dataclass

#: Batches that one trim looks at: those left over are looked at by the next.
_AT_ONCE = 4096
#: Data files that no batch names count as left over after this time. A batch is committed minutes
#: after its first task has begun to write, hours at worst; one that took days would lose its rows.
LEFT_OVER_AFTER_US = 7 * DAY


@dataclass(frozen=True, slots=True)
class Retention:
    """At least so much stays: all that any of the three given asks for. None given: everything.

    What a named reader still needs stays in any case, and so does the newest batch.
    """

    duration_us: int | None = None
    bytes: int | None = None
    batches: int | None = None

    def __post_init__(self) -> None:
        for name in ("duration_us", "bytes", "batches"):
            given = getattr(self, name)
            if given is not None and given < 0:
                raise SettingError(f"{name} cannot be {given}.", where="retention")

    @property
    def keeps_everything(self) -> bool:
        """Whether nothing is ever removed."""
        return self.duration_us is None and self.bytes is None and self.batches is None

    def keeps(self, manifest: Manifest, newest: Manifest, now_us: int) -> bool:
        """Whether a batch has to stay."""
        is_young = self.duration_us is not None and manifest.written_us >= now_us - self.duration_us
        # Without this batch, fewer bytes than asked for would be left.
        has_room = self.bytes is not None and newest.total_bytes - manifest.total_bytes < self.bytes
        is_recent = self.batches is not None and manifest.batch > newest.batch - self.batches
        return is_young or has_room or is_recent


@dataclass(frozen=True, slots=True)
class StreamTrim:
    """What a trim removed, or would: the batches before ``before``, and their files.

    ``unreadable`` are those of them whose manifest is damaged. Which files they had is not known;
    `left_over_files` finds these.
    """

    before: int
    files: Sequence[DataFile]
    batches: int = 0
    unreadable: Sequence[int] = ()

    @property
    def bytes(self) -> int:
        """How many bytes were in the files."""
        return sum(file.bytes for file in self.files)


def trim_stream(
    storage: Storage,
    log: StreamLog,
    retention: Retention,
    now_us: int,
    *,
    dry_run: bool = False,
) -> StreamTrim:
    """Remove the batches that neither the retention nor a reader keeps, oldest first."""
    catalog = log.reader.look()
    if retention.keeps_everything or catalog.newest() == NO_BATCH:
        return StreamTrim(0, ())
    newest = _read_unless_damaged(log, catalog.newest())
    if newest is None:
        return StreamTrim(0, ())  # another trim is ahead of this one; or there is nothing to go by
    end = up_to_readers(storage, Stream.BATCHES, catalog.newest())
    old: list[Manifest] = []
    for batch in catalog.batches()[:_AT_ONCE]:
        manifest = _read_unless_damaged(log, batch) if batch < end else None
        if batch >= end or (manifest is not None and retention.keeps(manifest, newest, now_us)):
            break
        if manifest is not None:
            old.append(manifest)  # a damaged one before it goes with it: it is older still
    before = old[-1].batch + 1 if old else 0
    return _remove(storage, log, catalog, old, before, dry_run)


def trim_before(
    storage: Storage, log: StreamLog, before: int, *, dry_run: bool = False
) -> StreamTrim:
    """Remove the batches before the given one that no reader keeps, oldest first."""
    catalog = log.reader.look()
    if catalog.newest() == NO_BATCH:
        return StreamTrim(0, ())
    _read_unless_damaged(log, catalog.newest())  # one that is unknown may need any of them
    before = up_to_readers(storage, Stream.BATCHES, min(before, catalog.newest()))
    found = [_read_unless_damaged(log, batch) for batch in catalog.batches() if batch < before]
    old = [manifest for manifest in found if manifest is not None]
    return _remove(storage, log, catalog, old, before, dry_run)


def _read_unless_damaged(log: StreamLog, batch: int) -> Manifest | None:
    """None if it is damaged, or if somebody else has trimmed it meanwhile.

    One damaged manifest must neither keep all that is behind it for ever nor stop a writer, which
    trims when it has committed a batch.
    """
    try:
        return read_manifest(log, batch)
    except (DamagedSegment, MissingSegment):
        return None


def _remove(
    storage: Storage,
    log: StreamLog,
    catalog: Catalog,
    old: Sequence[Manifest],
    before: int,
    dry_run: bool,
) -> StreamTrim:
    """Remove the batches before the given one; ``old`` are the manifests of them.

    The manifests go first: a batch must not name files that are gone. What a crash leaves behind in
    between is found by `left_over_files`. Manifests in a pack stay until all of it may go. Nobody
    reads files of batches before the oldest one, so those stay as long.
    """
    gone = files_before(catalog, before)
    kept = start_without(catalog, gone, before)
    if not gone and kept == catalog.start:
        return StreamTrim(0, ())
    if not dry_run:
        # What is removed stays away after a power failure. The batch that the next one follows has
        # to be there then, and whether its writer has synced it is not known here.
        try:
            log.settle(catalog.newest())
        except MissingSegment:
            if log.start() <= catalog.newest():
                raise
            return StreamTrim(0, ())  # another trim is ahead of this one
        log.trim(before)
        kept = log.start()
    batches = [batch for batch in catalog.batches() if batch < kept]
    files = [file for manifest in old if manifest.batch < kept for file in manifest.files]
    if not dry_run:
        for file in files:
            # One that comes back after a power failure is left over, and harms nobody.
            storage.delete(file.path, synced=False)
    unreadable = tuple(sorted(set(batches) - {manifest.batch for manifest in old}))
    return StreamTrim(kept, files, len(batches), unreadable)


def left_over_before(log: StreamLog, now_us: int) -> int:
    """Data files that were written before this time are not waiting for their commit any more.

    Files say that they are at least as new as the newest batch when they were planned. So they are
    compared with the batches, too: a clock that is ahead must not make new files old.
    """
    newest = log.newest()
    if newest != NO_BATCH:
        now_us = min(now_us, read_manifest(log, newest).written_us)
    return now_us - LEFT_OVER_AFTER_US


def left_over_files(
    storage: Storage, meta: OperatorMeta, log: StreamLog, before_us: int
) -> list[str]:
    """Data files written before a time that no batch names: of killed tasks and cut-short trims.

    A task that began to write before that time and has not committed yet would lose its rows, so
    leave such tasks time enough; `left_over_before` does. Where a manifest is damaged or missing,
    nobody can tell which files are left over, and that is an error.
    """
    found = files_written_before(storage, meta.buckets, before_us)
    catalog = log.reader.look()
    named = {
        path
        for batch in range(catalog.start, catalog.newest() + 1)
        for path in _named_by(log, batch)
    }
    return [path for path in found if path not in named]


def _named_by(log: StreamLog, batch: int) -> list[str]:
    try:
        return [file.path for file in read_manifest(log, batch).files]
    except MissingSegment as error:
        if log.start() > batch:
            return []  # trimmed since the log was listed, and the files with it
        raise MissingSegment(
            f"Batch {batch} is not in the log, so nobody knows which data files it had.",
            where=error.where,
            fix="Bring the file back from a backup, or trim the stream up to the next batch.",
        ) from None
