"""Cutting the newest batches off, so that the query can do them again.

Nothing is deleted: what is cut off is moved below ``aside/``. The cut goes through all logs one
after another, so an interrupted one is finished by cutting again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trailmark.engine import commits
from trailmark.errors import MissingSegment, SettingError
from trailmark.inspection import marks
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.plan import plan_bucket
from trailmark.log import StreamLog
from trailmark.log.unknown import refuse_unknown
from trailmark.log.verify import Problem
from trailmark.records import Stream
from trailmark.values import dataclass

#: Output first: without it a batch counts as not done, and its input may come again.
_ORDER = (Stream.OUTPUT, Stream.INPUT, Stream.SNAPSHOT)


@dataclass(frozen=True, slots=True)
class LogCut:
    """What is newer than the batch in one log: whole files, and bytes of all that are touched.

    ``apart`` are packs that reach over the batch: their older segments become files of their own.
    """

    directory: str
    newest: int
    files: int
    apart: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TruncatePlan:
    """What a truncation to the end of a batch will set aside."""

    to_batch: int
    logs: tuple[LogCut, ...]
    marks: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing newer than the batch."""
        return not self.logs and not self.marks

    @property
    def newest(self) -> int:
        """The newest batch that is cut off."""
        return max((log.newest for log in self.logs), default=self.to_batch)


@dataclass(frozen=True, slots=True)
class TruncateReport:
    """What was moved, from where to where, and what is wrong with the logs that remain."""

    moved: tuple[tuple[str, str], ...]
    problems: tuple[Problem, ...]


def plan_truncate(files: OperatorFiles, to_batch: int) -> TruncatePlan:
    """Find out what is newer than a batch, and that the query could go on after it.

    Refused if a bucket does not have the batch, if its state at the end of it cannot be rebuilt
    from what is in the logs, or if something newer is of an unknown format.
    """
    for bucket in files.buckets:
        _check_bucket(files, bucket, to_batch)
    cuts = [_cut(log, to_batch) for log in _logs(files)]
    return TruncatePlan(
        to_batch,
        tuple(cut for cut in cuts if cut.files or cut.apart),
        tuple(_marks_after(files, to_batch)),
    )


def truncate_operator(files: OperatorFiles, to_batch: int) -> TruncateReport:
    """Set aside everything that is newer than a batch. `plan_truncate` says whether that can be.

    The query has to be stopped.
    """
    moved: list[tuple[str, str]] = []
    problems: list[Problem] = []
    for log in _logs(files):
        catalog = log.reader.look()
        # A log may have been trimmed beyond the batch, and then have lost the rest.
        if max(catalog.newest(), catalog.start - 1) <= to_batch:
            continue
        report = log.set_aside_after(to_batch)
        moved += [(each.path, each.moved_to) for each in report.actions if each.moved_to]
        problems += report.problems
    # As long as a mark of a later batch is left, a query that does it again is refused: these last.
    for path in tuple(_marks_after(files, to_batch)):
        moved.append((path, files.storage.set_aside(path)))
    return TruncateReport(tuple(moved), tuple(problems))


def _logs(files: OperatorFiles) -> Iterator[StreamLog]:
    for stream in _ORDER:
        for bucket in files.buckets:
            yield files.log(stream, bucket)


def _check_bucket(files: OperatorFiles, bucket: int, to_batch: int) -> None:
    inputs, output = files.log(Stream.INPUT, bucket), files.log(Stream.OUTPUT, bucket)
    if not output.contains(to_batch):
        oldest, newest = output.oldest(), output.newest()
        held = "no batch" if newest < 0 else f"batches {oldest} to {newest}"
        raise SettingError(
            f"Batch {to_batch} is not in the output log of bucket {bucket}, which holds {held}.",
            where="--to-batch",
            fix="Choose a batch that every bucket has; trailmark status shows them.",
        )
    if not inputs.contains(to_batch):
        raise MissingSegment(
            f"Bucket {bucket} cannot go on after batch {to_batch}: its input is gone.",
            where=inputs.directory,
            fix=f"Choose a later batch; the input log begins with batch {inputs.oldest()}.",
        )
    plan_bucket(files, bucket, to_batch)


def _cut(log: StreamLog, to_batch: int) -> LogCut:
    catalog = log.reader.look()
    after = [file for file in catalog.files if file.last > to_batch]
    refuse_unknown(log.reader, after)
    apart = sum(1 for file in after if file.first <= to_batch)
    size = sum(file.size for file in after)
    return LogCut(log.directory, catalog.newest(), len(after) - apart, apart, size)


def _marks_after(files: OperatorFiles, to_batch: int) -> Iterator[str]:
    """Watermarks, then commit marks, then the note that a later batch was committed again: once the
    log ends before that batch, log and query agree again."""
    for directory in (marks.WATERMARKS, commits.COMMITS):
        for batch, entry in marks.batch_files(files.storage, directory).items():
            if batch > to_batch:
                yield f"{directory}/{entry.name}"
    again = re.search(r"batch ([0-9]+)", marks.rolled_back(files.storage))
    if again is not None and int(again[1]) > to_batch:
        yield commits.ROLLED_BACK
