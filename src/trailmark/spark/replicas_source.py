"""The source behind ``format("trailmark")`` with the option ``replicas``: the results of an
operator that runs several times, each result once, from whichever replica can be read.

An offset is a position in numbers of results, which are the same on all replicas, so a batch that
is repeated may be read from another one. Which one is followed, and when it is left, is in
:mod:`trailmark.streams.replicas.choosing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from trailmark.errors import SettingError
from trailmark.spark.limits import SupportsTriggerAvailableNow
from trailmark.spark.options import ReplicasOptions
from trailmark.spark.parts import at_once, in_tasks
from trailmark.spark.schemas import arrow_schema, as_asked, check_wanted, spark_schema
from trailmark.spark.storages import open_to_write
from trailmark.streams.replicas.choosing import (
    Replicas,
    Seen,
    earlier,
    position_from_json,
    position_to_json,
)
from trailmark.streams.replicas.numbered import NumberedResults, Piece, Position

#: Of an offset: where the query stands, and whom it followed to get there.
_RESULTS, _REPLICA = "results", "replica"


@dataclass(frozen=True)
class PiecesOfReplica(spark.InputPartition):
    """What one task reads, in this order."""

    path: str
    pieces: tuple[Piece, ...]


class _Source:
    """What reading replicas takes, in the driver's processes and in tasks."""

    def __init__(self, options: ReplicasOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._replicas: Replicas | None = None

    def replicas(self) -> Replicas:
        if self._replicas is None:
            self._replicas = open_replicas(self._options.paths)
        return self._replicas

    def any_of_them(self) -> NumberedResults | None:
        """One that can be read, which has to have the columns that are asked for."""
        found = self.replicas().first()
        if found is not None:
            check_wanted(self._schema, found)
        return found

    def plan(
        self, start: Position, end: Position, first: str | None
    ) -> Sequence[spark.InputPartition]:
        """Pieces of a bucket stay in their order; as many as make a task worth its start."""
        row_bytes = self.replicas().row_bytes
        return [
            PiecesOfReplica(path, task)
            for path, pieces in self.replicas().plan(start, end, first).items()
            for task in in_tasks(pieces, lambda each: each.rows * row_bytes)
        ]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PiecesOfReplica)
        wanted = arrow_schema(self._schema)
        for piece in partition.pieces:
            for rows in self.replicas().read(partition.path, piece, wanted.names):
                yield from at_once(as_asked(rows, wanted))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_replicas": None}  # tasks open them themselves


class ReplicasReader(spark.DataSourceReader):
    """A query over what the furthest of the replicas has when it is planned."""

    def __init__(self, options: ReplicasOptions, schema: StructType) -> None:
        self._source = _Source(options, schema)

    def partitions(self) -> Sequence[spark.InputPartition]:
        self._source.any_of_them()
        whole = self._source.replicas().whole()
        planned = [] if whole is None else self._source.plan(whole.start, whole.end, whole.path)
        # For no partition Spark would make up one of its own.
        return planned or [PiecesOfReplica("", ())]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        return self._source.read(partition)


class ReplicasStreamReader(spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one of the replicas, and goes on with another one by the numbers of results."""

    def __init__(self, options: ReplicasOptions, schema: StructType) -> None:
        self._options = options
        self._source = _Source(options, schema)
        #: Of each replica, what it had when the query was told to end with that.
        self._targets: dict[str, Seen] | None = None

    def initialOffset(self) -> dict[str, Any]:
        if self._source.any_of_them() is None:
            return _offset((), "")
        replicas = self._source.replicas()
        start = replicas.end() if self._options.starts_at_end else replicas.beginning()
        if start is None:
            return _offset((), "")
        self._acknowledge(start)
        return _offset(start, "")

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """As far as the replica has come that is followed, or as the limits admit."""
        if start is None:
            return self.initialOffset()
        position = self._position(start)
        if position is None:
            return start
        replicas, limits = self._source.replicas(), self._options.limits
        self._acknowledge(position)
        most = limits.rows
        if limits.bytes is not None:
            rows = max(1, limits.bytes // replicas.row_bytes)
            most = rows if most is None else min(most, rows)
        if limits.are_lifted_by(limit):
            most = None
        found = replicas.next(position, self._look(), most)
        if found is None:
            return start
        path, end = found
        return start if end == position else _offset(end, path)

    def getDefaultReadLimit(self) -> Any:
        return self._options.limits.default()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        end = self._source.replicas().end()
        return None if end is None else _offset(end, "")

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = self._source.replicas().look()

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[spark.InputPartition]:
        self._source.any_of_them()
        reached = position_from_json(end[_RESULTS])
        begun = self._position(start)
        if not reached or begun is None:
            return []  # Spark begins with a batch, also where there is nothing to read yet
        return self._source.plan(begun, reached, end[_REPLICA])

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        return self._source.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        position = position_from_json(end[_RESULTS])
        if position:
            self._acknowledge(position)

    def stop(self) -> None:
        """Nothing is held."""

    def _look(self) -> dict[str, Seen]:
        """What replicas have, or had when the query was told to end with that: each for itself, as
        one that has given others says nothing about the rest."""
        seen, targets = self._source.replicas().look(), self._targets
        if targets is None:
            return seen
        return {
            path: replace(each, given=earlier(each.given, targets.setdefault(path, each).given))
            for path, each in seen.items()
        }

    def _position(self, offset: dict[str, Any]) -> Position | None:
        """Where the query stands; None where it began before all replicas, and still is."""
        found = position_from_json(offset[_RESULTS])
        return found or self._source.replicas().before_all()

    def _acknowledge(self, position: Position) -> None:
        """Lets go, for a named reader and in every replica, of what its query has committed."""
        if self._options.reader is not None:
            self._source.replicas().acknowledge(self._options.reader, position)


def schema_of(options: ReplicasOptions) -> StructType:
    """The columns of the results."""
    found = open_replicas(options.paths).first()
    if found is None:
        raise SettingError(
            f"None of the replicas has begun: {', '.join(options.paths)}.",
            where="replicas",
            fix="Give the paths of operators with numbered=True, with commas between. To wait for "
            "them, give their schema with .schema(...).",
        )
    return spark_schema(found)


def open_replicas(paths: Sequence[str]) -> Replicas:
    """The replicas at these paths."""
    return Replicas({path: open_to_write(path) for path in paths})


def _offset(position: Position, path: str) -> dict[str, Any]:
    return {_RESULTS: position_to_json(position), _REPLICA: path}
