"""Who reads whom, as far as files tell.

Unions name their streams, streams their writers, and queries of Spark note what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from trailmark.engine.spark_offsets import ReadBy, read_by
from trailmark.inspection import OperatorStatus, ReadOnly
from trailmark.leases.status import LeaseStatus
from trailmark.log import open_storage
from trailmark.log.storage.urls import full_path, is_url
from trailmark.records import NO_BATCH
from trailmark.streams.status import StreamStatus
from trailmark.streams.union.status import UnionStatus
from trailmark.watch.pictures import LogPicture, Picture


class Edge(NamedTuple):
    """Rows go from one path to another."""

    source: str
    target: str


#: What the query of an operator at a path reads.
Sources: TypeAlias = Callable[[str, OperatorStatus], ReadBy]

#: Batches after which it is looked up anew: a query may go on with other sources.
_AGAIN = 50


class QuerySources:
    """Looks up what queries read, and remembers it for some batches."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, ReadBy]] = {}

    def __call__(self, path: str, status: OperatorStatus) -> ReadBy:
        known = self._known.get(path)
        batch = status.last_batch
        if batch == NO_BATCH:
            return ReadBy()
        if known is None or not known[0] <= batch < known[0] + (_AGAIN if known[1].logs else 1):
            known = (batch, read_by(ReadOnly(open_storage(path)), status.query_id, batch))
            self._known[path] = known
        return known[1]


def edges_between(pictures: Mapping[str, Picture], sources: Sources) -> list[Edge]:
    """All edges between paths that are looked at. Nobody reads a lease."""
    with_logs = {
        path: picture for path, picture in pictures.items() if not isinstance(picture, LeaseStatus)
    }
    return _edges(with_logs, sources)


def _edges(pictures: Mapping[str, LogPicture], sources: Sources) -> list[Edge]:
    logs = {picture.log_id: path for path, picture in pictures.items()}
    found: dict[Edge, None] = {}
    for path, picture in pictures.items():
        if isinstance(picture, UnionStatus):
            found |= dict.fromkeys(_into_union(path, picture, logs))
        elif isinstance(picture, OperatorStatus):
            found |= dict.fromkeys(_into_operator(path, picture, pictures, sources))
        else:
            found |= dict.fromkeys(_into_stream(path, picture, pictures))
    return [edge for edge in found if edge.source != edge.target]


def _into_union(path: str, union: UnionStatus, logs: Mapping[str, str]) -> Iterator[Edge]:
    by_place = {_place(other): other for other in logs.values()}
    for each in union.inputs:
        source = logs.get(each.reached.log) if each.reached is not None else None
        source = source or by_place.get(_place(each.path))
        if source is not None:
            yield Edge(source, path)


def _into_operator(
    path: str, status: OperatorStatus, pictures: Mapping[str, LogPicture], sources: Sources
) -> Iterator[Edge]:
    read = sources(path, status)
    for other, picture in pictures.items():
        is_union = isinstance(picture, UnionStatus) and _inputs(picture) in read.unions
        if is_union or picture.log_id in read.logs:
            yield Edge(other, path)


def _inputs(union: UnionStatus) -> dict[str, str]:
    return {name: reached.log for name, reached in union.decision.inputs.items()}


def _into_stream(
    path: str, stream: StreamStatus, pictures: Mapping[str, LogPicture]
) -> Iterator[Edge]:
    writers = stream.writers or {}
    for other, picture in pictures.items():
        if isinstance(picture, OperatorStatus) and picture.query_id in writers:
            yield Edge(other, path)


def _place(path: str) -> str:
    return path if is_url(path) else full_path(path)
