"""Reads every byte of a written stream and says what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trailmark.errors import LogError, MissingSegment
from trailmark.inspection.read_only import ReadOnly, ignore
from trailmark.inspection.verify import Finding, Verification, unreadable_readers, verify_settled
from trailmark.log import Clock, Storage, wall_clock_us
from trailmark.log.verify import Problem, problem_of
from trailmark.records import FrameKind, Stream
from trailmark.settings import DAY
from trailmark.streams.advice import about_data, about_manifest
from trailmark.streams.files import DataFile, open_file, written_at
from trailmark.streams.heartbeats import newest_heartbeats
from trailmark.streams.manifest import Manifest, read_manifest
from trailmark.streams.retention import (
    LEFT_OVER_AFTER_US,
    left_over_before,
    left_over_files,
)
from trailmark.streams.stored import StreamFiles
from trailmark.values import dataclass

#: Later than any file says.
_ANY_TIME = 10**20


def verify_stream(
    storage: Storage,
    *,
    on_log: Callable[[str, int, int], None] = ignore,
    on_read: Callable[[int], None] = ignore,
    clock: Clock = wall_clock_us,
) -> Verification:
    """Check every checksum and link of the manifests, and every data file that they name.

    Nothing is changed, and writers may go on meanwhile. The parameters are those of
    `verify_operator`.
    """
    files = StreamFiles(ReadOnly(storage, on_read))
    on_log(files.log.directory, 1, 2)
    report = verify_settled(files.log)
    catalog = files.log.reader.look_at_all()
    newest = catalog.newest()
    findings = [_about_manifest(problem, newest) for problem in report.problems]
    on_log("data", 2, 2)
    data = _Data(files, newest)
    known = {problem.batch for problem in report.problems if problem.trouble != "unlinked"}
    for batch in catalog.batches():
        if batch not in known:
            findings += data.verify(batch)
    findings += unreadable_readers(files.storage)
    notes = [*_left_over(files, clock()), *_unreadable_heartbeats(files)]
    size = report.bytes + data.bytes
    return Verification(1, report.batches, size, tuple(findings), data.count, tuple(notes))


@dataclass(slots=True)
class _Data:
    """Reads data files, and counts them."""

    files: StreamFiles
    newest: int
    count: int = 0
    bytes: int = 0

    def verify(self, batch: int) -> Iterator[Finding]:
        """What is wrong with the files of a batch."""
        try:
            manifest = read_manifest(self.files.log, batch)
        except LogError as error:
            if isinstance(error, MissingSegment) and batch < self.files.log.start():
                return  # trimmed meanwhile
            path = self.files.log.reader.segment_path(batch)
            yield _about_manifest(problem_of(error, batch, path), self.newest)
            return
        for file in manifest.files:
            yield from self._verify_file(manifest, file)

    def _verify_file(self, manifest: Manifest, file: DataFile) -> Iterator[Finding]:
        try:
            segment = open_file(self.files.storage, self.files.meta.log_id, file)
            segment.rows(FrameKind.INPUT, self.files.description.schema)
        except LogError as error:
            # A trim removes the manifest first: if that is still there, nobody trims.
            if isinstance(error, MissingSegment) and not self.files.log.contains(manifest.batch):
                return
            problem = problem_of(error, manifest.batch, file.path)
            fix = about_data(problem, self.newest)
            yield _finding(problem, fix, Stream.DATA, file.bucket)
        self.count += 1
        self.bytes += file.bytes


def _about_manifest(problem: Problem, newest: int) -> Finding:
    return _finding(problem, about_manifest(problem, newest), Stream.BATCHES)


def _finding(problem: Problem, fix: str, stream: Stream, bucket: int | None = None) -> Finding:
    what = f"Batch {problem.batch}: {problem.what}"
    name = stream.name.lower()
    return Finding(problem.path, problem.trouble, what, fix, name, bucket, problem.batch)


def _unreadable_heartbeats(files: StreamFiles) -> Iterator[str]:
    broken = [each for each in newest_heartbeats(files.storage).values() if each.problem]
    if broken:
        yield (
            f"Heartbeats that cannot be read: {len(broken):,}. Readers wait for their writers "
            "until these send another."
        )


def _left_over(files: StreamFiles, now_us: int) -> Iterator[str]:
    """A note about data files that no batch names."""
    try:
        found = left_over_files(files.storage, files.meta, files.log, _ANY_TIME)
        before_us = left_over_before(files.log, now_us)
    except LogError:
        yield "Which data files are left over cannot be told: a manifest cannot be read."
        return
    if found:
        old = sum(1 for path in found if written_at(path) < before_us)
        yield (
            f"Data files that no batch names: {len(found):,}, of tasks that still write or were "
            f"killed. Older than {LEFT_OVER_AFTER_US // DAY} days: {old:,}; trailmark trim removes "
            "these."
        )
