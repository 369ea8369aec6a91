"""Reads every byte of an operator's files and says what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, field
from typing import Any

from trailmark.checkpoint.account import Account
from trailmark.engine.watermark import read_watermark
from trailmark.errors import DamagedSegment, LogError, UnknownFormat
from trailmark.inspection import marks
from trailmark.inspection.advice import next_step
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.read_only import ReadOnly, ignore
from trailmark.log import Segment, Storage, StreamLog
from trailmark.log.readers import read_reader, reader_names, reader_path
from trailmark.log.verify import Check, Problem, VerifyReport, trouble_of
from trailmark.operators.kinds import form_of
from trailmark.operators.logged import LoggedForm
from trailmark.records import Stream
from trailmark.values import dataclass

#: A log that changes while it is read is read again so often, until nothing seems to be missing.
_READINGS = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: in which file, what, and what to do next.

    ``stream``, ``bucket`` and ``batch`` are None for files that belong to no log.
    """

    path: str
    trouble: str
    what: str
    fix: str
    stream: str | None = None
    bucket: int | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """What was read, and everything that is wrong with it.

    ``data_files`` are those of a written stream; ``notes`` are worth knowing, and nothing is wrong
    with them.
    """

    logs: int
    batches: int
    bytes: int
    findings: tuple[Finding, ...]
    data_files: int = 0
    notes: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def describe(self) -> dict[str, Any]:
        """All of it as JSON."""
        return {
            "is_whole": self.is_whole,
            "logs": self.logs,
            "batches": self.batches,
            "data_files": self.data_files,
            "bytes": self.bytes,
            "findings": [asdict(finding) for finding in self.findings],
            "notes": list(self.notes),
        }


@dataclass(slots=True)
class _Reading:
    """What has been read of a log."""

    batches: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


def verify_operator(
    storage: Storage,
    *,
    on_log: Callable[[str, int, int], None] = ignore,
    on_read: Callable[[int], None] = ignore,
) -> Verification:
    """Check every checksum and link of the logs, ``meta.json``, the watermarks and the readers.

    Nothing is changed, and a query may go on meanwhile.

    Parameters
    ----------
    storage
        Where the logs are.
    on_log
        Told the directory of each log before it is read, its number from 1 on, and how many there
        are.
    on_read
        Told how many bytes each read gave.
    """
    looking = ReadOnly(storage, on_read)
    try:
        files = OperatorFiles(looking)
    except LogError as error:
        if not storage.exists("meta.json"):
            raise
        return Verification(0, 0, 0, (_meta_finding(error),))
    try:
        check = _contents(form_of(files.meta))
    except LogError as error:
        return Verification(0, 0, 0, (_meta_finding(error),))
    logs = list(files.logs())
    done = _Reading()
    for number, log in enumerate(logs, 1):
        on_log(log.directory, number, len(logs))
        report = verify_settled(log, check)
        done.batches += report.batches
        done.bytes += report.bytes
        if report.problems:
            account = _account(files, log.identity.bucket)
            newest = log.reader.look_at_all().newest()
            done.findings += [_finding(log, each, account, newest) for each in report.problems]
    done.findings += _damaged_watermarks(looking)
    done.findings += unreadable_readers(looking)
    return Verification(len(logs), done.batches, done.bytes, tuple(done.findings))


def _contents(form: LoggedForm) -> Check:
    """Looks at what is in a segment, as a recovery would."""

    def check(segment: Segment) -> None:
        form.check(segment)
        if segment.footer.identity.stream is Stream.OUTPUT:
            Account.of(segment.footer, segment.origin)

    return check


def _account(files: OperatorFiles, bucket: int) -> Account | None:
    try:
        return files.newest_account(bucket)[1]
    except LogError:
        return None


def verify_settled(log: StreamLog, check: Check | None = None) -> VerifyReport:
    """A report in which nothing is called missing only because it was merged or trimmed while the
    rest was read."""
    for _ in range(_READINGS):
        before = log.reader.look_at_all().files
        report = log.verify(check)
        is_complete = all(problem.trouble != "missing" for problem in report.problems)
        if is_complete or log.reader.look_at_all().files == before:
            break
    return report


def _finding(log: StreamLog, problem: Problem, account: Account | None, newest: int) -> Finding:
    stream, bucket = log.identity.stream, log.identity.bucket
    fix = next_step(problem, stream, account, newest)
    what = f"Batch {problem.batch}: {problem.what}"
    return Finding(
        problem.path, problem.trouble, what, fix, stream.name.lower(), bucket, problem.batch
    )


def _meta_finding(error: LogError) -> Finding:
    if isinstance(error, UnknownFormat):
        return Finding("meta.json", "unknown", error.what, error.fix)
    return Finding(
        "meta.json",
        "damaged",
        error.what,
        "Bring the file back from a backup. Without it nothing else can be checked, and the query "
        "is refused.",
    )


def _damaged_watermarks(storage: Storage) -> Iterator[Finding]:
    for entry in marks.batch_files(storage, marks.WATERMARKS).values():
        path = f"{marks.WATERMARKS}/{entry.name}"
        try:
            read_watermark(storage, path)
        except FileNotFoundError:
            continue  # removed for its age meanwhile
        except DamagedSegment as error:
            yield Finding(path, "damaged", error.what, error.fix)


def unreadable_readers(storage: Storage) -> Iterator[Finding]:
    """The named readers whose files cannot be read. Nothing can be trimmed because of them."""
    for name in reader_names(storage):
        try:
            read_reader(storage, name)
        except LogError as error:
            yield Finding(reader_path(name), trouble_of(error), error.what, error.fix)
