"""What is wrong with whatever is looked at, in words: for terminals, pages and alerts alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trailmark import units
from trailmark.engine.refused import Refusal
from trailmark.inspection import OperatorStatus, ReaderStatus
from trailmark.leases.status import LeaseStatus
from trailmark.streams.status import StreamStatus
from trailmark.streams.union.status import UnionStatus
from trailmark.watch.pictures import Picture


def warnings_of(picture: Picture, path: str) -> list[str]:
    """All that is wrong with what is at a path, in the order of `trailmark status`."""
    if isinstance(picture, LeaseStatus):
        return list(lease_warnings(picture))
    if isinstance(picture, UnionStatus):
        return list(union_warnings(picture))
    if isinstance(picture, OperatorStatus):
        found = operator_warnings(picture)
    else:
        found = stream_warnings(picture)
    return [*found, *reader_warnings(picture.readers, path)]


def operator_warnings(status: OperatorStatus) -> Iterator[str]:
    """What is wrong with an operator, or worth a look."""
    if status.rolled_back:
        yield f"the query has gone back and is refused: {status.rolled_back} (file rolled-back)"
    if status.refusal is not None:
        yield _refusal_text(status.refusal, status)
    if status.in_doubt and status.committed < status.last_batch:
        yield (
            f"readers leave out batch {status.last_batch}, though Spark may have committed it: "
            f"{status.in_doubt}"
        )
    for bucket in status.buckets:
        if bucket.problem:
            yield (
                f"bucket {bucket.bucket}: {bucket.problem} Figures are those of batch "
                f"{units.batch(bucket.batch)}. Run trailmark verify."
            )
        if bucket.shortfall:
            yield f"bucket {bucket.bucket}: {bucket.shortfall}"


def stream_warnings(status: StreamStatus) -> Iterator[str]:
    """What is wrong with a written stream."""
    if status.problem:
        yield (
            f"{status.problem} Figures are those of batch {units.batch(status.batch)}. Run "
            "trailmark verify."
        )
    yield from status.heartbeat_problems
    oldest = status.manifests.oldest
    for reader in status.readers:
        if reader.needs is not None and reader.needs < oldest:
            yield (
                f"reader {reader.name} needs batch {reader.needs}, which is gone: the stream "
                f"begins with batch {oldest}"
            )


def union_warnings(status: UnionStatus) -> Iterator[str]:
    """What is wrong with a union, or with its streams."""
    if status.problem:
        yield status.problem
    for each in status.inputs:
        if each.unreached is not None:
            since = units.moment(each.unreached.since_us)
            yield f"input {each.name}: cannot be reached since {since}: {each.unreached.why}"
        if each.problem:
            yield f"input {each.name}: {each.problem}"


def lease_warnings(status: LeaseStatus) -> Iterator[str]:
    """What is wrong with a lease: who lets one go has said so."""
    term = status.term
    if term is not None and term.problem:
        yield term.problem
    elif term is not None and status.has_run_out:
        silent, length = units.duration(status.watched_us), units.duration(term.term_us)
        yield f"nobody is active: {term.holder} has been silent for {silent}, a term is {length}"
    for each in status.waiting:
        if each.waiting.problem:
            yield each.waiting.problem


def reader_warnings(readers: Sequence[ReaderStatus], path: str) -> Iterator[str]:
    """What is wrong with readers' files."""
    for reader in readers:
        if reader.problem:
            yield f"{reader.problem} {reader.fix.replace('PATH', path)}"


def what_is_read(reader: ReaderStatus) -> str:
    """Which log a reader reads, and whether from here, where there are other replicas."""
    if reader.follows is None:
        return reader.stream or "-"
    return f"{reader.stream}, follows {'this replica' if reader.follows else 'another one'}"


def _refusal_text(refusal: Refusal, status: OperatorStatus) -> str:
    who = "the query" if refusal.query_id == status.query_id else f"query {refusal.query_id}"
    where = "" if refusal.bucket is None else f" in bucket {refusal.bucket}"
    ago = units.duration(max(0, status.looked_us - refusal.at_us))
    return f"{who} was stopped at batch {refusal.batch}{where} {ago} ago: {refusal.text}"
