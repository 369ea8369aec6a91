"""The source behind ``format("trailmark")`` where a query reads all answers of an operator under a
name. What it decides, and why, is in :mod:`trailmark.streams.following`; here it meets Spark.

An offset is a decision, as for a union: Spark gives it back when the batch is repeated, and the
same rows come out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import datasource as spark
from pyspark.sql.types import BooleanType, StructField, StructType

from trailmark.errors import DamagedSegment, OtherQuery
from trailmark.log import Storage, read_meta
from trailmark.log.readers import CLAIMS, DECISIONS
from trailmark.log.storage.urls import redacted
from trailmark.records import MARK, NO_BATCH
from trailmark.spark.marked_by import MarkedBy, marking
from trailmark.spark.source import TrailmarkStreamReader
from trailmark.spark.storages import open_to_write
from trailmark.streams.description import is_stream
from trailmark.streams.following import Followed, FollowedDecisions, following_path
from trailmark.streams.operator_answers import AnswersView
from trailmark.streams.view import Chunk


def marked(schema: StructType, storage: Storage, path: str, reader: str) -> StructType:
    """The columns of what is read; of an operator, the mark says whose rows it is about."""
    meta = read_meta(storage)
    if meta is None or is_stream(meta):
        return schema
    own = StructField(MARK, BooleanType(), True, marking([MarkedBy(path, reader)]))
    return StructType([own if each.name == MARK else each for each in schema])


class FollowingReader(TrailmarkStreamReader):
    """Reads stable results once, and tentative ones as long as they stand: stable ones first.

    A written stream does not know what stands: its rows are read as ever.
    """

    _decisions: FollowedDecisions | None = None

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        view = self._view()
        if start is None or not isinstance(view, AnswersView):
            return super().latestOffset(start, limit)
        with self._named():
            position = Followed.from_json(start)
            decisions = self._opened_at(position)
            adopted = decisions.adopted
            if adopted is not None and adopted.number == position.number + 1:
                return adopted.to_json()
            end = super().latestOffset(start, limit)
            if end == start:
                return start
            decisions.check()
            is_other = position.log not in ("", view.log_id)
            first, last = view.oldest() if is_other else position.batch, end["batch"] - 1
            standing = view.standing(last) if last >= first else None
            return position.next(view.log_id, first, last + 1, standing).to_json()

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[spark.InputPartition]:
        view = self._view()
        if not isinstance(view, AnswersView):
            return super().partitions(start, end)
        position, decision = Followed.from_json(start), Followed.from_json(end)
        if position.number == NO_BATCH != decision.number:  # where it begins is not asked twice
            position = decision.before_first()
        with self._named():
            # Also where nothing is read: tasks of operators behind it look here.
            decisions = self._opened_at(position, decision)
            if decision.number == position.number:
                return super().partitions(start, end) if decision.number == NO_BATCH else []
            # From here on it cannot be otherwise: they go by it.
            decisions.publish(position, decision)
        begin = {"batch": position.batch, "log": position.log}
        first = self._readable_from(view, begin, decision.batch)
        self._register(view, first)
        stable = self._chunks(view.half(is_tentative=False), first, decision.batch)
        given = self._chunks(view.half(is_tentative=True), decision.tentative_from, decision.batch)
        return [*self._rows.partitions(stable), *self._rows.partitions(given)]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_decisions": None}

    def _chunks(self, view: AnswersView, first: int, end: int) -> list[Chunk]:
        batches = self._batches(view, first, end, complains=True)
        return [chunk for batch in batches for chunk in batch.chunks if chunk.rows]

    def _opened_at(self, position: Followed, planned: Followed | None = None) -> FollowedDecisions:
        if self._decisions is None:
            self._decisions = FollowedDecisions(open_to_write(self._place()), position, planned)
        return self._decisions

    def _place(self) -> str:
        assert self._options.reader is not None
        return following_path(self._options.path, self._options.reader)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What is wrong with the decisions is told with their path."""
        try:
            yield
        except (OtherQuery, DamagedSegment) as error:
            if not error.where.startswith((DECISIONS, CLAIMS)):
                raise
            where = f"{redacted(self._place())}/{error.where}"
            # Without the way it came: Spark prints that first, and says what happened behind it.
            raise type(error)(error.what, where=where, fix=error.fix) from None
