"""The source behind `tm.union`. What a union is, and what it decides, is in
:mod:`trailmark.streams.union`; here it meets Spark.

An offset is a decision. Spark logs it before the batch runs, and gives it back when the batch is
repeated: so the same rows come out, in the same order, whatever has come into the streams since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from trailmark.log import MonotonicClock, Storage, create_or_open, monotonic_us, open_storage
from trailmark.log.readers import acknowledge, register
from trailmark.spark.limits import SupportsTriggerAvailableNow
from trailmark.spark.schemas import arrow_schema, as_asked
from trailmark.streams.union.deciding import Deciding
from trailmark.streams.union.decision import NOTHING_YET, Decision
from trailmark.streams.union.decisions import decided_after, newest_decision, publish
from trailmark.streams.union.description import SOURCE, UnionDescription
from trailmark.streams.union.inputs import UnionInput
from trailmark.streams.union.rows import Stretch, read_stretch, stretches
from trailmark.streams.view import open_view

#: Rows handed to Spark at a time.
_ROWS_AT_ONCE = 1 << 16
#: How often a query that waits looks at the streams: Spark asks a hundred times a second.
_LOOK_EVERY_US = 50_000

_registered: WeakSet[SparkSession] = WeakSet()


def register_union(session: SparkSession) -> None:
    """Makes the format known to a session."""
    if session not in _registered:
        session.dataSource.register(UnionSource)
        _registered.add(session)


@dataclass(frozen=True, slots=True)
class UnionOptions:
    """What a union was given, as options of a source: text."""

    path: str
    paths: Mapping[str, str]
    time: str
    interval_us: int
    delay_us: int
    reader: str | None = None
    most_rows: int | None = None

    def to_options(self) -> dict[str, str]:
        """As Spark takes them."""
        given = {
            "path": self.path,
            "inputs": json.dumps(self.paths),
            "time": self.time,
            "interval": str(self.interval_us),
            "delay": str(self.delay_us),
        }
        if self.reader is not None:
            given["reader"] = self.reader
        return given if self.most_rows is None else {**given, "mostRows": str(self.most_rows)}

    @classmethod
    def of(cls, options: Mapping[str, str]) -> UnionOptions:
        """From what Spark has."""
        most = options.get("mostRows")
        return cls(
            options["path"],
            json.loads(options["inputs"]),
            options["time"],
            int(options["interval"]),
            int(options["delay"]),
            options.get("reader"),
            None if most is None else int(most),
        )

    def described(self, schema: pa.Schema) -> UnionDescription:
        """What is kept of a union with these columns. Of all streams the same ones are read."""
        own = pa.schema([field for field in schema if field.name != SOURCE])
        schemas = dict.fromkeys(self.paths, own)
        return UnionDescription(
            self.paths, schemas, schema, self.time, self.interval_us, self.delay_us
        )


class UnionSource(spark.DataSource):
    """The entry point that Spark looks for; only `tm.union` uses it."""

    @classmethod
    def name(cls) -> str:
        return "trailmark_union"

    def streamReader(self, schema: StructType) -> UnionReader:
        return UnionReader(UnionOptions.of(self.options), schema)


@dataclass(frozen=True)
class RowsInOrder(spark.InputPartition):
    """What one task reads."""

    stretch: Stretch


class _Opened:
    """What only the process has that plans a query."""

    def __init__(self, options: UnionOptions, schema: StructType) -> None:
        self.storage: Storage = open_storage(options.path)
        create_or_open(self.storage, options.described(arrow_schema(schema)).to_meta())
        self.inputs = [
            UnionInput(name, path, open_storage(path), options.delay_us)
            for name, path in options.paths.items()
        ]
        self.deciding = Deciding(self.inputs, options.interval_us, options.most_rows)


class UnionReader(spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides what is released, and reads it."""

    def __init__(
        self, options: UnionOptions, schema: StructType, now_us: MonotonicClock = monotonic_us
    ) -> None:
        self._options = options
        self._schema = schema
        self._now_us = now_us
        self._opened: _Opened | None = None
        self._position: Decision | None = None
        self._is_known = False
        self._ends = False
        self._looked_us: float | None = None
        self._acknowledged: dict[str, int] = {}

    def initialOffset(self) -> dict[str, Any]:
        return NOTHING_YET.to_json()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """The next decision, or where Spark stands.

        Before version 4.2, Spark does not say where it stands: then it is where it planned last.
        """
        union = self._open()
        if start is not None:
            self._position = Decision.from_json(start)
            # Spark asks for more when it has committed what it has, and tells no other way in time.
            self._acknowledge(union, self._position)
        elif self._position is None:
            self._position = newest_decision(union.storage)
        position = self._position
        if not self._is_known:
            self._begin(union, position)
        if self._is_time_to_look():
            self._position = self._next(union, position)
        return self._position.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends = True
        self._open().deciding.end_with_next_look()

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[spark.InputPartition]:
        before, decision = Decision.from_json(start), Decision.from_json(end)
        self._position = decision
        if decision == before:
            return []
        union = self._open()
        # From here on it cannot be otherwise: tasks of operators behind the union go by it.
        publish(union.storage, before, decision)
        assert decision.released_us is not None, "it releases something"
        pieces = union.deciding.pieces(before, decision)
        found = stretches(pieces, before.released_us, decision.released_us)
        return [RowsInOrder(stretch) for stretch in found]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowsInOrder)
        wanted = arrow_schema(self._schema)
        own = pa.schema([field for field in wanted if field.name != SOURCE])
        names = list(self._options.paths)

        def shown(rows: pa.RecordBatch, place: int) -> pa.RecordBatch:
            columns = dict(zip(own.names, as_asked(rows, own).columns, strict=True))
            columns[SOURCE] = pa.repeat(pa.scalar(names[place], pa.string()), rows.num_rows)
            return pa.RecordBatch.from_arrays(
                [columns[name] for name in wanted.names], wanted.names
            )

        views = [open_view(open_storage(path)) for path in self._options.paths.values()]
        rows = read_stretch(partition.stretch, views, own.names, self._options.time, shown)
        if rows is not None:
            for batch in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
                yield as_asked(batch, wanted)

    def commit(self, end: dict[str, Any]) -> None:
        self._acknowledge(self._open(), Decision.from_json(end))

    def stop(self) -> None:
        """Nothing is held."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}  # tasks open what they read themselves

    def _open(self) -> _Opened:
        if self._opened is None:
            self._opened = _Opened(self._options, self._schema)
        return self._opened

    def _begin(self, union: _Opened, position: Decision) -> None:
        """Says what is needed of the streams, before anything is decided."""
        if self._options.reader is not None:
            for each in union.inputs:
                reached = position.inputs.get(each.name)
                first = each.oldest() if reached is None else reached.first
                register(each.storage, self._options.reader, each.stream, first)
        self._is_known = True

    def _acknowledge(self, union: _Opened, decision: Decision) -> None:
        """Lets go, for a named reader, of what no batch of the query can ask for again."""
        if self._options.reader is None:
            return
        for each in union.inputs:
            reached = decision.inputs.get(each.name)
            if reached is not None and self._acknowledged.get(each.name) != reached.first:
                acknowledge(each.storage, self._options.reader, each.stream, reached.first)
                self._acknowledged[each.name] = reached.first

    def _is_time_to_look(self) -> bool:
        now_us, looked_us = self._now_us(), self._looked_us
        if not self._ends and looked_us is not None and now_us - looked_us < _LOOK_EVERY_US:
            return False
        self._looked_us = now_us
        return True

    def _next(self, union: _Opened, position: Decision) -> Decision:
        found = union.deciding.next(position)
        if found == position:
            return position
        return decided_after(union.storage, position) or found
