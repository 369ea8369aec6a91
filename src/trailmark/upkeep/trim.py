"""Removing what no recovery needs."""

from __future__ import annotations

from collections.abc import Callable

from trailmark.errors import LogError, MissingSegment, UnknownFormat
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.read_only import ignore
from trailmark.log import StreamLog
from trailmark.log.names import log_directory
from trailmark.log.trim import files_before
from trailmark.log.unknown import refuse_unknown
from trailmark.records import OPERATOR_STREAMS, Stream
from trailmark.upkeep.needed import Held, Needed
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class LogTrim:
    """What was removed from one log, or would be.

    ``before`` is the batch up to which it may be removed: the one asked for, or an earlier one that
    a recovery or a named reader needs. A pack goes when all of its batches may. ``held_by`` names
    the readers without which more of it could go.
    """

    bucket: int
    stream: Stream
    before: int
    files: tuple[str, ...]
    bytes: int
    held_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorTrim:
    """What was removed from all logs; ``left_alone`` says from which of them nothing, and why."""

    logs: tuple[LogTrim, ...]
    left_alone: tuple[str, ...]

    @property
    def files(self) -> int:
        """How many files went."""
        return sum(len(log.files) for log in self.logs)

    @property
    def bytes(self) -> int:
        """How many bytes were in them."""
        return sum(log.bytes for log in self.logs)


def trim_operator(
    files: OperatorFiles,
    before: int,
    *,
    dry_run: bool = False,
    on_log: Callable[[str, int, int], None] = ignore,
) -> OperatorTrim:
    """Remove all batches before the given one, as far as no recovery and no reader needs them.

    The newest batch stays whatever is asked for. With ``dry_run`` nothing is removed. ``on_log`` is
    told before each log: its directory, its number from 1 on, and how many there are. It may raise:
    then nothing is half-done.
    """
    logs: list[LogTrim] = []
    left_alone: list[str] = []
    count = len(files.buckets) * len(OPERATOR_STREAMS)
    for bucket in files.buckets:
        try:
            newest, account = files.newest_account(bucket)
        except LogError as error:
            left_alone.append(f"bucket {bucket}: {error.what}")
            continue
        needed = Needed.by(account, newest)
        if not dry_run:
            _settle_extent(files.log(Stream.OUTPUT, bucket), needed.output_from, newest)
        for place, stream in enumerate(OPERATOR_STREAMS, 1):
            number = bucket * len(OPERATOR_STREAMS) + place
            on_log(log_directory(stream, bucket), number, count)
            unneeded = min(before, needed.of(stream))
            held = Held.by_readers(files.storage, stream, unneeded)
            try:
                logs.append(_trim(files.log(stream, bucket), held, dry_run))
            except UnknownFormat as error:
                name = f"bucket {bucket} {stream.name.lower()}"
                left_alone.append(f"{name}: {error.what} ({error.where})")
    return OperatorTrim(tuple(logs), tuple(left_alone))


def _settle_extent(output: StreamLog, oldest: int, newest: int) -> None:
    """What is removed stays away after a power failure; so must the output that replaces it.

    Whether its writer has synced it is not known here.
    """
    for batch in range(max(oldest, output.oldest()), newest + 1):
        try:
            output.settle(batch)
        except MissingSegment:
            continue  # the query has trimmed it meanwhile: nobody needs it any more


def _trim(log: StreamLog, held: Held, dry_run: bool) -> LogTrim:
    stream, bucket, before = log.identity.stream, log.identity.bucket, held.before
    if dry_run:
        catalog = log.reader.look()
        found = files_before(catalog, before)
        refuse_unknown(log.reader, set(found).difference(catalog.left_over))
        names, size = tuple(file.name for file in found), sum(file.size for file in found)
    else:
        report = log.trim(before)
        names, size = tuple(report.deleted), report.bytes
    return LogTrim(bucket, stream, before, names, size, held.readers)
