"""Which metrics there are, and what they say of a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from trailmark.inspection import BucketStatus, OperatorStatus
from trailmark.leases.status import LeaseStatus
from trailmark.log.storage.urls import redacted
from trailmark.records import NO_BATCH
from trailmark.streams.status import StreamStatus
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.status import UnionStatus
from trailmark.units import printable
from trailmark.values import dataclass
from trailmark.watch import LogPicture, Seen, warnings_of

#: Labels and a value; no sample where the value is not known.
Sample: TypeAlias = tuple[tuple[str, ...], float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; ``is_counter`` if it only grows, and then its name ends in ``_total``."""

    name: str
    says: str
    labels: tuple[str, ...] = ("path",)
    is_counter: bool = False


_BUCKET = ("path", "bucket")

UP = Metric("trailmark_up", "1 if the last look at the path gave a picture, else 0.")
LOOKED = Metric("trailmark_look_timestamp_seconds", "When the path was looked at last.")
TROUBLE = Metric(
    "trailmark_warnings", "Warnings that trailmark status would show, refusals among them."
)
REFUSED = Metric(
    "trailmark_refused", "1 if the query of an operator was stopped by Trailmark, else 0."
)
PHASE = Metric(
    "trailmark_phase",
    "1 for what a union, or the unions behind an operator, are doing; 0 for the other phases.",
    ("path", "phase"),
)
MISSING = Metric(
    "trailmark_input_missing",
    "1 if a union gives out tentative rows without this input, or cannot read it; else 0.",
    ("path", "input"),
)
RECOVERIES = Metric(
    "trailmark_recoveries_total",
    "Recoveries of buckets seen since the exporter began.",
    is_counter=True,
)
LAST_BATCH = Metric("trailmark_last_batch", "The newest batch; -1 before the first.")
WRITTEN = Metric(
    "trailmark_last_batch_timestamp_seconds",
    "When the newest batch of an operator, a bucket of it or a stream was written.",
)
HEARD = Metric(
    "trailmark_stream_heard_timestamp_seconds",
    "When a stream last had a batch or a heartbeat of a writer.",
)
ROWS = Metric(
    "trailmark_stream_rows_total", "Rows written to a stream since it began.", is_counter=True
)
LATE = Metric(
    "trailmark_union_late_rows_total", "Rows that came too late for a union.", is_counter=True
)
RUN_OUT = Metric(
    "trailmark_lease_run_out",
    "1 if whoever had a lease has been silent for a term and nobody has taken it, else 0.",
)
WAITING = Metric("trailmark_lease_waiting", "Processes that wait for a lease.")
BYTES = Metric("trailmark_disk_bytes", "Bytes of all files of a path.")
PREDICTED = Metric(
    "trailmark_recovery_predicted_seconds", "How long a recovery would take now.", _BUCKET
)
OBJECTIVE = Metric(
    "trailmark_recovery_objective_seconds",
    "How long a recovery may take, if that was said.",
    _BUCKET,
)
TOOK = Metric(
    "trailmark_recovery_last_seconds", "How long the last recovery took, if one was seen.", _BUCKET
)
WINDOWS = Metric("trailmark_open_windows", "Windows that are open.", _BUCKET)
REPLAY = Metric("trailmark_replay_tuples", "Input tuples a recovery would replay.", _BUCKET)
TUPLES = Metric(
    "trailmark_tuples_total", "Tuples taken in since the log began.", _BUCKET, is_counter=True
)
RECORDS = Metric(
    "trailmark_records_total",
    "Results and footprints written since the log began.",
    _BUCKET,
    is_counter=True,
)

#: Of every path that has logs.
_ALL: Mapping[Metric, Callable[[LogPicture], float | None]] = {
    BYTES: lambda p: None if isinstance(p, UnionStatus) else _bytes(p),
    LAST_BATCH: lambda p: float(_last_batch(p)),
    WRITTEN: lambda p: None if isinstance(p, UnionStatus) else _seconds(p.written_us),
}
#: Of every bucket of an operator.
_BUCKETS: Mapping[Metric, Callable[[BucketStatus], float | None]] = {
    PREDICTED: lambda b: None if b.account is None else b.account.predicted_us / 1e6,
    OBJECTIVE: lambda b: _seconds(b.objective_us),
    TOOK: lambda b: None if b.recovery is None else b.recovery.took_us / 1e6,
    WINDOWS: lambda b: None if b.account is None else float(b.account.open_windows),
    REPLAY: lambda b: None if b.account is None else float(b.account.replay),
    TUPLES: lambda b: None if b.account is None else float(b.account.inputs_total),
    RECORDS: lambda b: None if b.account is None else float(b.account.records_total),
}

METRICS = (
    *(UP, LOOKED, TROUBLE, REFUSED, PHASE, MISSING, RECOVERIES, HEARD, ROWS, LATE),
    *(RUN_OUT, WAITING),
    *_ALL,
    *_BUCKETS,
)


def samples_of(seen: Seen) -> Iterator[tuple[Metric, Sample]]:
    """All samples of one path."""
    path, picture = printable(redacted(seen.path)), seen.picture
    yield UP, ((path,), 0.0 if seen.problem else 1.0)
    yield LOOKED, ((path,), seen.looked_us / 1e6)
    if picture is None:
        return
    yield TROUBLE, ((path,), float(len(warnings_of(picture, path))))
    if isinstance(picture, LeaseStatus):
        yield RUN_OUT, ((path,), float(picture.has_run_out))
        yield WAITING, ((path,), float(sum(each.is_there for each in picture.waiting)))
        return
    for metric, value in _ALL.items():
        yield metric, ((path,), value(picture))
    if isinstance(picture, OperatorStatus):
        yield from _of_operator(path, picture, seen)
    elif isinstance(picture, UnionStatus):
        yield from _of_union(path, picture)
    else:
        yield from _of_stream(path, picture)


def _of_operator(path: str, status: OperatorStatus, seen: Seen) -> Iterator[tuple[Metric, Sample]]:
    is_refused = bool(status.rolled_back) or status.refusal is not None
    yield REFUSED, ((path,), float(is_refused))
    yield RECOVERIES, ((path,), float(seen.history.recoveries_since))
    yield from _phases(path, status.phase)
    for bucket in status.buckets:
        for metric, value in _BUCKETS.items():
            yield metric, ((path, str(bucket.bucket)), value(bucket))


def _of_union(path: str, status: UnionStatus) -> Iterator[tuple[Metric, Sample]]:
    ahead = status.decision.ahead
    yield LATE, ((path,), float(status.decision.late_rows))
    yield from _phases(path, status.decision.phase.value)
    for each in status.inputs:
        is_missing = bool(each.problem) or (ahead is not None and each.name in ahead.missing)
        yield MISSING, ((path, printable(each.name)), float(is_missing))


def _of_stream(path: str, status: StreamStatus) -> Iterator[tuple[Metric, Sample]]:
    beats = [beat.sent_us for beat in (status.heartbeats or {}).values()]
    heard = [each for each in (status.written_us, *beats) if each is not None]
    yield HEARD, ((path,), _seconds(max(heard, default=None)))
    yield ROWS, ((path,), None if status.total is None else float(status.total.rows))


def _phases(path: str, phase: str) -> Iterator[tuple[Metric, Sample]]:
    for each in Phase:
        yield PHASE, ((path, each.value), float(phase == each.value))


def _bytes(picture: OperatorStatus | StreamStatus) -> float:
    if isinstance(picture, OperatorStatus):
        return float(picture.bytes)
    return float(picture.manifests.bytes + picture.data_bytes)


def _last_batch(picture: LogPicture) -> int:
    if isinstance(picture, OperatorStatus):
        return picture.last_batch
    if isinstance(picture, UnionStatus):
        return picture.decision.number
    return picture.manifests.newest


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6


assert NO_BATCH == -1  # as LAST_BATCH says
