"""How much of a written stream is kept, and removing the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trailmark.errors import MissingSegment, SettingError
from trailmark.log import OperatorMeta, Storage, StreamLog
from trailmark.log.readers import needed_from
from trailmark.log.trim import files_before
from trailmark.records import NO_BATCH, Stream
from trailmark.streams.files import DataFile, files_written_before
from trailmark.streams.manifest import Manifest, read_manifest

#: Batches that one trim looks at: those left over are looked at by the next.
_AT_ONCE = 4096


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

    A pack of batches goes when all of them may, and their files with it.
    """

    before: int
    files: Sequence[DataFile]

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
    """Remove the batches that neither the retention nor a reader keeps, oldest first.

    The manifests go first: a batch must not name files that are gone. What a crash leaves behind in
    between is found by `left_over_files`.
    """
    catalog = log.reader.look()
    if retention.keeps_everything or catalog.newest() == NO_BATCH:
        return StreamTrim(0, ())
    newest = _manifest_or_none(log, catalog.newest())
    if newest is None:
        return StreamTrim(0, ())  # another trim is ahead of this one
    needed = needed_from(storage, Stream.BATCHES)
    gone: list[Manifest] = []
    for batch in catalog.batches()[:_AT_ONCE]:
        if batch == newest.batch or (needed is not None and batch >= needed):
            break
        manifest = _manifest_or_none(log, batch)
        if manifest is None:
            continue
        if retention.keeps(manifest, newest, now_us):
            break
        gone.append(manifest)
    if not gone:
        return StreamTrim(0, ())
    before = gone[-1].batch + 1
    # Manifests in a pack stay until all of it may go. Nobody reads files of batches before the
    # oldest one, so those stay as long.
    removed = files_before(catalog, before)
    kept = min(file.first for file in catalog.files if file not in removed)
    if not dry_run:
        log.trim(before)
        kept = log.oldest()
    files = [file for manifest in gone if manifest.batch < kept for file in manifest.files]
    if not dry_run:
        for file in files:
            storage.delete(file.path)
    return StreamTrim(before, files)


def left_over_files(
    storage: Storage, meta: OperatorMeta, log: StreamLog, before_us: int
) -> list[str]:
    """Data files written before a time that no batch names: of killed tasks and cut-short trims.

    A task that began to write before that time and has not committed yet would lose its rows, so
    leave such tasks time enough.
    """
    found = files_written_before(storage, meta.buckets, before_us)
    manifests = [_manifest_or_none(log, batch) for batch in log.batches()]
    named = {file.path for each in manifests if each is not None for file in each.files}
    return [path for path in found if path not in named]


def _manifest_or_none(log: StreamLog, batch: int) -> Manifest | None:
    """The manifest of a batch that was there; None if another writer has trimmed it since.

    Its files are for that one to remove.
    """
    try:
        return read_manifest(log, batch)
    except MissingSegment:
        return None
