"""Makes the picture: one listing per log, and the footers of the newest batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trailmark.checkpoint.account import Account
from trailmark.engine import commits
from trailmark.engine.refused import REFUSED, Refusal, read_refusal
from trailmark.engine.spark_commits import SparkCommits
from trailmark.engine.tentative import phase_of
from trailmark.inspection import marks
from trailmark.inspection.footers import NewestFooters
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.picture import (
    Activity,
    BucketStatus,
    LogFiles,
    OlderTable,
    OperatorStatus,
    Recovered,
)
from trailmark.inspection.read_only import ReadOnly
from trailmark.inspection.readers import read_readers
from trailmark.log import Clock, Entry, Footer, Storage, wall_clock_us
from trailmark.log.catalog import Catalog
from trailmark.log.names import log_directory
from trailmark.records import OPERATOR_STREAMS, FrameKind, Stream
from trailmark.recovery import Lost
from trailmark.recovery.catching_up import CAUGHT_UP, CaughtUp

#: Newest batches whose footers are read: for the last recovery, and for sums over some time.
LOOK_BACK = 100

#: The parts of the time that a recovery took.
_TIMES = ("open_us", "plan_us", "load_us", "replay_us")


def read_status(
    storage: Storage, *, look_back: int = LOOK_BACK, clock: Clock = wall_clock_us
) -> OperatorStatus:
    """A picture of the operator whose logs are in a storage.

    Parameters
    ----------
    storage
        Where the logs are. It is only looked at.
    look_back
        Batches whose footers are read at most, per bucket: sums and the last recovery cover these.
    clock
        Where the time of the picture comes from.

    Examples
    --------
    >>> from trailmark.log import open_storage
    >>> read_status(open_storage("orders-average")).last_batch    # doctest: +SKIP
    41
    """
    return StatusReader(storage, look_back=look_back, clock=clock).read()


class StatusReader:
    """Makes one picture after another; footers that are known already are not read again."""

    def __init__(
        self, storage: Storage, *, look_back: int = LOOK_BACK, clock: Clock = wall_clock_us
    ) -> None:
        self._storage = ReadOnly(storage)
        self._files = OperatorFiles(self._storage)
        self._clock = clock
        self._commits = SparkCommits(self._storage, self._files.meta)
        self._footers = [
            NewestFooters(self._files.log(Stream.OUTPUT, bucket), look_back)
            for bucket in self._files.buckets
        ]

    def read(self) -> OperatorStatus:
        """The picture as of now."""
        meta = self._files.meta
        marked = marks.batch_files(self._storage, commits.COMMITS)
        watermarks = marks.batch_files(self._storage, marks.WATERMARKS)
        beside = self._storage.list("")
        small = [*marked.values(), *watermarks.values(), *beside]
        is_refused = any(entry.name == commits.ROLLED_BACK for entry in beside)
        buckets = self._buckets(marks.newest_commit(marked))
        # A query begins a batch when the one before is committed, whichever bucket has it first.
        end = max([meta.first_batch, *(bucket.committed + 1 for bucket in buckets)])
        is_open = end <= max(bucket.output.newest for bucket in buckets)
        return OperatorStatus(
            looked_us=self._clock(),
            log_id=str(meta.log_id),
            query_id=meta.query_id,
            operator=meta.operator,
            first_batch=meta.first_batch,
            buckets=buckets,
            rolled_back=marks.rolled_back(self._storage) if is_refused else "",
            in_doubt=self._commits.problem if is_open else "",
            refusal=self._refusal(beside, buckets),
            other_bytes=sum(entry.size for entry in small),
            readers=read_readers(self._storage, {Stream.INPUT: end, Stream.OUTPUT: end}),
        )

    def _refusal(self, beside: Sequence[Entry], buckets: Sequence[BucketStatus]) -> Refusal | None:
        """What stopped the query last, unless the bucket has written a batch since."""
        if not any(entry.name == REFUSED for entry in beside):
            return None
        found = read_refusal(self._storage)
        if found is None:
            return None
        written = [b.written_us or 0 for b in buckets if found.bucket in (None, b.bucket)]
        return None if max(written, default=0) > found.at_us else found

    def _buckets(self, marked: int) -> tuple[BucketStatus, ...]:
        read = [footers.read() for footers in self._footers]
        committed = self._committed({catalog.newest() for catalog, _, _ in read}, marked)
        return tuple(self._bucket(number, committed, *each) for number, each in enumerate(read))

    def _committed(self, ends: set[int], marked: int) -> int:
        """A batch is committed if it is marked, if some bucket has a later one, or if Spark's own
        checkpoint says so of a batch that every bucket has."""
        newest = max(ends)
        if len(ends) == 1 and newest > marked and self._commits.has(newest):
            return newest
        return max(marked, newest - 1) if newest > self._files.meta.first_batch else marked

    def _bucket(
        self, bucket: int, committed: int, catalog: Catalog, footers: Sequence[Footer], problem: str
    ) -> BucketStatus:
        output = files_of(catalog)
        aside = [
            entry
            for stream in OPERATOR_STREAMS
            for entry in self._storage.list(f"aside/{log_directory(stream, bucket)}")
        ]
        status = BucketStatus(
            bucket,
            input=self._log_files(Stream.INPUT, bucket),
            output=output,
            snapshots=self._log_files(Stream.SNAPSHOT, bucket),
            aside=(len(aside), sum(entry.size for entry in aside)),
            committed=min(committed, output.newest),
            problem=problem,
        )
        return status if not footers else _with_figures(status, footers)

    def _log_files(self, stream: Stream, bucket: int) -> LogFiles:
        return files_of(Catalog.of(self._storage, log_directory(stream, bucket)))


def files_of(catalog: Catalog) -> LogFiles:
    """How much of a log there is, by a listing."""
    files = [*catalog.left_over, *catalog.files]
    size = sum(file.size for file in files) + catalog.spare_bytes
    return LogFiles(len(files), len(catalog.packs), size, catalog.oldest(), catalog.newest())


def _with_figures(status: BucketStatus, footers: Sequence[Footer]) -> BucketStatus:
    """The status with what the footers say, which come newest first."""
    newest = footers[0]
    attributes = newest.attributes
    problem = status.problem
    account: Account | None = None
    try:
        account = Account.from_attributes(attributes)
    except (TypeError, ValueError) as error:
        problem = problem or f"Batch {newest.batch} has no account that can be read ({error})."
    policy = attributes.get("policy")
    recovered = next((footer for footer in footers if footer.attributes.get("recovery")), None)
    return replace(
        status,
        batch=newest.batch,
        written_us=newest.written_us,
        account=account,
        policy=policy if isinstance(policy, dict) else None,
        newest=activity_of(footers[:1]),
        recent=activity_of(footers),
        recovery=None if recovered is None else _recovered(recovered),
        older_table=_older_table(footers),
        problem=problem,
        phase=phase_of(newest),
    )


def activity_of(footers: Sequence[Footer]) -> Activity:
    """Sums over footers of output segments, which come newest first."""
    return Activity(
        first=footers[-1].batch,
        last=footers[0].batch,
        batches=len(footers),
        tuples=sum(footer.fingerprint.rows for footer in footers),
        results=sum(footer.rows.get(FrameKind.RESULTS, 0) for footer in footers),
        footprints_opened=_sum(footers, "footprints_opened"),
        footprints_checked=_sum(footers, "footprints_checked"),
        late_rows=_sum(footers, "late_rows"),
        late_updates=_sum(footers, "late_updates"),
        null_times=_sum(footers, "null_times"),
        tentative=sum(footer.rows.get(FrameKind.TENTATIVE, 0) for footer in footers),
    )


def _sum(footers: Sequence[Footer], name: str) -> int:
    return sum(_number(footer.attributes, name) for footer in footers)


def _recovered(footer: Footer) -> Recovered:
    found = footer.attributes["recovery"]
    found = found if isinstance(found, dict) else {}
    skipped = found.get("skipped")
    return Recovered(
        footer.identity.bucket,
        footer.batch,
        why=str(found.get("why", "")),
        segments_read=_number(found, "segments_read"),
        records_read=_number(found, "records_read"),
        footprints=_number(found, "footprints"),
        replay_tuples=_number(found, "replay_tuples"),
        took_us=sum(_number(found, name) for name in _TIMES),
        predicted_us=_number(found, "predicted_us"),
        skipped=len(skipped) if isinstance(skipped, list) else 0,
        written_us=footer.written_us,
        lost=Lost.from_attributes(found.get("lost")),
    )


def _older_table(footers: Sequence[Footer]) -> OlderTable | None:
    """The newest of them before which an older table was brought up to date."""
    for footer in footers:
        caught_up = CaughtUp.from_attributes(footer.attributes.get(CAUGHT_UP))
        if caught_up is not None:
            bucket = footer.identity.bucket
            return OlderTable(bucket, footer.batch, caught_up, footer.written_us)
    return None


def _number(found: Mapping[str, Any], name: str) -> int:
    """A count; footers of other versions may lack it."""
    value = found.get(name, 0)
    return value if isinstance(value, int) else 0
