"""Merging small files that are not read one by one any more into packs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trailmark.errors import LogError
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.read_only import ignore
from trailmark.log import StreamLog
from trailmark.log.names import log_directory
from trailmark.records import Stream
from trailmark.upkeep.needed import Needed
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class LogMerge:
    """What was merged in one log.

    ``up_to`` is the newest batch that may be merged, ``bytes`` the size of the new packs.
    ``problem`` says what stopped the merge; empty if nothing did.
    """

    bucket: int
    up_to: int | None = None
    packs: tuple[str, ...] = ()
    batches: int = 0
    bytes: int = 0
    problem: str = ""


def merge_operator(
    files: OperatorFiles, *, on_log: Callable[[str, int, int], None] = ignore
) -> list[LogMerge]:
    """Merge the small output segments that no recovery reads, bucket by bucket.

    ``on_log`` is told before each pack is made: the directory of the log, its number from 1 on, and
    how many there are. It may raise: then nothing is half-done.
    """
    merged = []
    for number, bucket in enumerate(files.buckets, 1):
        directory = log_directory(Stream.OUTPUT, bucket)
        merged.append(_merge(files, bucket, partial(on_log, directory, number, len(files.buckets))))
    return merged


def _merge(files: OperatorFiles, bucket: int, before_pack: Callable[[], None]) -> LogMerge:
    before_pack()
    try:
        newest, account = files.newest_account(bucket)
    except LogError as error:
        return LogMerge(bucket, problem=error.what)
    up_to = Needed.by(account, newest).output_from - 1
    return merge_up_to(files.log(Stream.OUTPUT, bucket), up_to, before_pack)


def merge_up_to(log: StreamLog, up_to: int, before_pack: Callable[[], None] = ignore) -> LogMerge:
    """Merge the segments of a log up to a batch, and say what became of it."""
    report = log.merge(up_to, before_pack=before_pack)
    problem = ""
    if report.stopped_by is not None:
        problem = f"{report.stopped_by.what} ({report.stopped_by.where})"
    elif report.was_overtaken:
        problem = "Somebody else merged or trimmed meanwhile; run it again to merge the rest."
    merged = len(report.merged)
    return LogMerge(log.identity.bucket, up_to, tuple(report.packs), merged, report.bytes, problem)
