"""The source behind ``format("trailmark")`` with the option ``replicas``: the results of an
operator that runs several times, each result once, from whichever replica can be read.

An offset is a `Place`: a position in numbers of results, which are the same on all replicas, so a
batch that is repeated may be read from another one; and behind it what the reader has of the
tentative results of one replica, if it wants these. Which one is followed, and when it is left, is
in :mod:`trailmark.streams.replicas.choosing` and `answering`.
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
from trailmark.streams.answers import Answers
from trailmark.streams.replicas.answering import AnsweringReplicas
from trailmark.streams.replicas.choosing import Replicas
from trailmark.streams.replicas.looking import Seen
from trailmark.streams.replicas.numbered import NumberedResults, Piece
from trailmark.streams.replicas.place import Place
from trailmark.streams.replicas.positions import Position
from trailmark.streams.replicas.reading import Suffix
from trailmark.streams.replicas.shown import ADDED, NO_DECISION, Decision, Shown
from trailmark.streams.replicas.tentative import TentativePiece

_READS_TENTATIVE = (Answers.ALL, Answers.CHANGES)


@dataclass(frozen=True)
class PiecesOfReplica(spark.InputPartition):
    """What one task reads of the results that stand, in this order."""

    path: str
    pieces: tuple[Piece, ...]
    decision: Decision = NO_DECISION


@dataclass(frozen=True)
class PiecesOfSuffix(spark.InputPartition):
    """What one task reads of the tentative results of a replica, in this order."""

    suffix: Suffix
    pieces: tuple[TentativePiece, ...]
    decision: Decision = NO_DECISION


@dataclass(frozen=True)
class Undo(spark.InputPartition):
    """All that is tentative and came before a decision is void."""

    number: int
    decided_us: int


class _Source:
    """What reading replicas takes, in the driver's processes and in tasks."""

    def __init__(self, options: ReplicasOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._replicas: Replicas | None = None

    def replicas(self) -> Replicas:
        if self._replicas is None:
            self._replicas = open_replicas(self._options)
        return self._replicas

    def any_of_them(self) -> NumberedResults | None:
        """One that can be read, which has to have the columns that are asked for."""
        found = self.replicas().first()
        if found is not None:
            check_wanted(self._schema, Shown(found.schema, self._options.answers))
        return found

    def plan(
        self, start: Position, end: Position, first: str | None, decision: Decision = NO_DECISION
    ) -> list[spark.InputPartition]:
        """Pieces of a bucket stay in their order; as many as make a task worth its start."""
        row_bytes = self.replicas().row_bytes
        return [
            PiecesOfReplica(path, task, decision)
            for path, pieces in self.replicas().plan(start, end, first).items()
            for task in in_tasks(pieces, lambda each: each.rows * row_bytes)
        ]

    def plan_suffix(
        self, suffix: Suffix, decision: Decision = NO_DECISION
    ) -> list[spark.InputPartition]:
        """The same of tentative results."""
        row_bytes = self.replicas().row_bytes
        pieces = self.replicas().plan_suffix(suffix)
        return [
            PiecesOfSuffix(suffix, task, decision)
            for task in in_tasks(pieces, lambda each: each.rows * row_bytes)
        ]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        wanted = arrow_schema(self._schema)
        for rows in self._rows(partition, wanted.names):
            yield from at_once(as_asked(rows, wanted))

    def _rows(
        self, partition: spark.InputPartition, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        replicas, shown = self.replicas(), self._shown()
        if isinstance(partition, PiecesOfReplica):
            for piece in partition.pieces:
                path, decision = partition.path, partition.decision
                yield from shown.stable(replicas, path, piece, columns, decision)
        elif isinstance(partition, PiecesOfSuffix):
            for each in partition.pieces:
                suffix, decision = partition.suffix, partition.decision
                yield from shown.tentative(replicas, suffix, each, columns, decision)
        else:
            assert isinstance(partition, Undo)
            yield shown.undo(columns, partition.number, partition.decided_us)

    def _shown(self) -> Shown:
        """What a task reads. It looks at no replica but the one that it reads, if it can."""
        wanted, answers = arrow_schema(self._schema), self._options.answers
        own = [field for field in wanted if answers is Answers.STABLE or field.name not in ADDED]
        if not own and len(wanted):
            first = self.replicas().first()
            own = [] if first is None else list(first.schema)
        return Shown(pa.schema(own), answers)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_replicas": None}  # tasks open them themselves


class ReplicasReader(spark.DataSourceReader):
    """A query over what the furthest of the replicas has when it is planned."""

    def __init__(self, options: ReplicasOptions, schema: StructType) -> None:
        self._answers = options.answers
        self._source = _Source(options, schema)

    def partitions(self) -> Sequence[spark.InputPartition]:
        self._source.any_of_them()
        whole = self._source.replicas().whole()
        planned: list[spark.InputPartition] = []
        if whole is not None:
            planned += self._source.plan(whole.start, whole.end, whole.suffix.path)
        if whole is not None and self._answers is Answers.CURRENT:
            planned += self._source.plan_suffix(whole.suffix)
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
            return Place(()).to_json()
        replicas = self._source.replicas()
        start = replicas.end() if self._options.starts_at_end else replicas.beginning()
        if start is None:
            return Place(()).to_json()
        self._acknowledge(start)
        return Place(start).to_json()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """As far as the replica has come that is followed, or as the limits admit."""
        if start is None:
            return self.initialOffset()
        place = self._place(start)
        if place is None:
            return start
        replicas, limits = self._source.replicas(), self._options.limits
        self._acknowledge(place.position)
        most = limits.rows
        if limits.bytes is not None:
            rows = max(1, limits.bytes // replicas.row_bytes)
            most = rows if most is None else min(most, rows)
        if limits.are_lifted_by(limit):
            most = None
        found = replicas.next(place, self._look(), most)
        if found is None or (found.position, found.told) == (place.position, place.told):
            return start
        return found.to_json()

    def getDefaultReadLimit(self) -> Any:
        return self._options.limits.default()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        end = self._source.replicas().end()
        return None if end is None else Place(end).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = self._source.replicas().look()

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[spark.InputPartition]:
        self._source.any_of_them()
        reached, begun = Place.from_json(end), self._place(start)
        if not reached.position or begun is None:
            return []  # Spark begins with a batch, also where there is nothing to read yet
        decision = Decision.of(reached)
        planned: list[spark.InputPartition] = []
        void_before = reached.undoes(begun)
        if void_before is not None and self._options.answers is Answers.CHANGES:
            planned.append(Undo(void_before, reached.decided_us))
        planned += self._source.plan(begun.position, reached.position, reached.path, decision)
        if reached.told.number != begun.told.number:
            planned += self._source.plan_suffix(reached.suffix, decision)
        return planned

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        return self._source.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        position = Place.from_json(end).position
        if position:
            self._acknowledge(position)

    def stop(self) -> None:
        """Nothing is held."""

    def _look(self) -> dict[str, Seen]:
        """What replicas have, or had when the query was told to end with that: each for itself, as
        one that has given others says nothing about the rest. What was made anew since counts from
        when it is first met."""
        seen, targets = self._source.replicas().look(), self._targets
        if targets is None:
            return seen
        for path, each in seen.items():
            if path not in targets or targets[path].log != each.log:
                targets[path] = each
        return {path: each.up_to(targets[path]) for path, each in seen.items()}

    def _place(self, offset: dict[str, Any]) -> Place | None:
        """Where the query stands; None where it began before all replicas, and still is."""
        found = Place.from_json(offset)
        if found.position:
            return found
        before_all = self._source.replicas().before_all()
        return None if before_all is None else replace(found, position=before_all)

    def _acknowledge(self, position: Position) -> None:
        """Lets go, for a named reader and in every replica, of what its query has committed."""
        if self._options.reader is not None:
            self._source.replicas().acknowledge(self._options.reader, position)


def schema_of(options: ReplicasOptions) -> StructType:
    """The columns of the results."""
    found = open_replicas(options).first()
    if found is None:
        raise SettingError(
            f"None of the replicas has begun: {', '.join(options.paths)}.",
            where="replicas",
            fix="Give the paths of operators with numbered=True, with commas between. To wait for "
            "them, give their schema with .schema(...).",
        )
    return spark_schema(Shown(found.schema, options.answers))


def open_replicas(options: ReplicasOptions) -> Replicas:
    """The replicas that are read."""
    kind = AnsweringReplicas if options.answers in _READS_TENTATIVE else Replicas
    return kind({path: open_to_write(path) for path in options.paths})
