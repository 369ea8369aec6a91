"""Reads every byte of an operator's files and says what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, field
from typing import Any
from zlib import crc32

from trailmark.checkpoint.account import Account
from trailmark.errors import LogError
from trailmark.log import Storage, StreamLog
from trailmark.log.readers import reader_path
from trailmark.log.verify import Problem, VerifyReport
from trailmark.status import marks
from trailmark.status.advice import next_step
from trailmark.status.logs import OperatorFiles
from trailmark.status.read_only import ReadOnly, ignore
from trailmark.status.readers import read_readers
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
    logs = list(files.logs())
    done = _Reading()
    for number, log in enumerate(logs, 1):
        on_log(log.directory, number, len(logs))
        report = verify_settled(log)
        done.batches += report.batches
        done.bytes += report.bytes
        if report.problems:
            account = _account(files, log.identity.bucket)
            newest = log.newest()
            done.findings += [_finding(log, each, account, newest) for each in report.problems]
    done.findings += _damaged_watermarks(looking)
    done.findings += damaged_readers(looking)
    return Verification(len(logs), done.batches, done.bytes, tuple(done.findings))


def _account(files: OperatorFiles, bucket: int) -> Account | None:
    try:
        return files.newest_account(bucket)[1]
    except LogError:
        return None


def verify_settled(log: StreamLog) -> VerifyReport:
    """A report in which nothing is called missing only because it was merged or trimmed while the
    rest was read."""
    for _ in range(_READINGS):
        before = log.reader.look().files
        report = log.verify()
        is_complete = all(problem.trouble != "missing" for problem in report.problems)
        if is_complete or log.reader.look().files == before:
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
            text, _, checksum = bytes(storage.read(path)).partition(b"\n")
        except FileNotFoundError:
            continue  # removed for its age meanwhile
        if checksum != b"%08x\n" % crc32(text):
            yield Finding(
                path,
                "damaged",
                "The watermark does not match its checksum.",
                "Delete the file: it is computed again from the input log.",
            )


def damaged_readers(storage: Storage) -> Iterator[Finding]:
    """The named readers whose files cannot be read. Nothing can be trimmed because of them."""
    for reader in read_readers(storage, {}):
        if reader.problem:
            yield Finding(reader_path(reader.name), "damaged", reader.problem, reader.fix)
