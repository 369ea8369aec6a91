"""The source behind `tm.union`. What a union is, and what it decides, is in
:mod:`trailmark.streams.union`; here it meets Spark.

An offset is a decision. Spark logs it before the batch runs, and gives it back when the batch is
repeated: so the same rows come out, in the same order, whatever has come into the streams since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from trailmark.errors import DamagedSegment, MissingSegment, OtherQuery
from trailmark.log import MonotonicClock, create_or_open, monotonic_us, open_storage
from trailmark.log.storage.urls import redacted
from trailmark.records import MARK
from trailmark.settings import SECOND
from trailmark.spark.limits import SupportsTriggerAvailableNow
from trailmark.spark.parts import ROWS_AT_ONCE
from trailmark.spark.schemas import arrow_schema, as_asked
from trailmark.spark.storages import open_to_write
from trailmark.streams.asking import InThreads
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.deciding import Deciding, tentative_range
from trailmark.streams.union.decision import NOTHING_YET, Decision
from trailmark.streams.union.decisions import Decisions
from trailmark.streams.union.description import SOURCE, UnionDescription
from trailmark.streams.union.inputs import UnionInput, loss_of_data, place_of
from trailmark.streams.union.rows import Piece, Stretch, read_stretch, stretches
from trailmark.streams.union.turns import Turns, TurnsAt
from trailmark.streams.union.unreachable import keep_unreachable, read_unreachable
from trailmark.streams.view import open_view

#: How often a query that waits looks at the streams: Spark asks a hundred times a second.
_LOOK_EVERY_US = 50_000
#: Where a look takes long, as in an object store, it rests so many times as long.
_REST = 4
#: The option that says that a union gives out tentative rows.
ANSWER_WITHIN = "answerWithin"


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
    answering: Answering | None = None
    idle_after_us: int | None = None
    turns: TurnsAt | None = None

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
        if self.most_rows is not None:
            given["mostRows"] = str(self.most_rows)
        if self.idle_after_us is not None:
            given["idleAfter"] = str(self.idle_after_us)
        if self.answering is not None:
            given[ANSWER_WITHIN] = str(self.answering.within_us)
            given["onFailure"] = self.answering.on_failure
            given["onCorrection"] = self.answering.on_correction
            if self.answering.give_up_us is not None:
                given["giveUpAfter"] = str(self.answering.give_up_us)
        if self.turns is not None:
            given["turns"] = self.turns.path
            given["term"] = str(self.turns.term_us)
        return given

    @classmethod
    def of(cls, options: Mapping[str, str]) -> UnionOptions:
        """From what Spark has."""
        most, within = options.get("mostRows"), options.get(ANSWER_WITHIN)
        idle_after, turns = options.get("idleAfter"), options.get("turns")
        answering = None
        if within is not None:
            choices = options["onFailure"], options["onCorrection"]
            give_up = options.get("giveUpAfter")
            give_up_us = None if give_up is None else int(give_up)
            answering = Answering(int(within), *choices, give_up_us)  # type: ignore[arg-type]
        return cls(
            options["path"],
            json.loads(options["inputs"]),
            options["time"],
            int(options["interval"]),
            int(options["delay"]),
            options.get("reader"),
            None if most is None else int(most),
            answering,
            None if idle_after is None else int(idle_after),
            None if turns is None else TurnsAt(turns, int(options["term"])),
        )

    def described(self, schema: pa.Schema) -> UnionDescription:
        """What is kept of a union with these columns. Of all streams the same ones are read.

        The mark is left out: a union that has waited so far may begin to answer, and the other way.
        So may it go on without idle streams.
        """
        schemas = dict.fromkeys(self.paths, own_columns(schema))
        schema = pa.schema([field for field in schema if field.name != MARK])
        return UnionDescription(
            self.paths, schemas, schema, self.time, self.interval_us, self.delay_us
        )


def own_columns(schema: pa.Schema) -> pa.Schema:
    """The columns of a union that its streams have."""
    return pa.schema([field for field in schema if field.name not in (SOURCE, MARK)])


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
    is_tentative: bool = False


class _Opened:
    """What only the process has that plans a query, which stands at a decision."""

    def __init__(
        self,
        options: UnionOptions,
        schema: StructType,
        start: Decision,
        planned: Decision | None,
        now_us: MonotonicClock,
    ) -> None:
        storage = open_to_write(options.path)
        create_or_open(storage, options.described(arrow_schema(schema)).to_meta())
        inputs = [
            UnionInput(name, path, open_to_write(path), options.delay_us, options.reader)
            for name, path in options.paths.items()
        ]
        self._turns = _turns(options)
        # Threads cost something, and whoever waits for all streams may look at one after another.
        self.deciding = Deciding(
            inputs,
            options.interval_us,
            options.most_rows,
            options.answering,
            idle_after_us=options.idle_after_us,
            now_us=now_us,
            hands=None if options.answering is None else InThreads(),
            turns=self._turns,
        )
        self.decisions = Decisions(storage, start, planned)
        self._storage = storage
        self._unreachable = read_unreachable(storage)

    def keep_unreachable(self) -> None:
        """Writes down which streams cannot be reached, where that has changed."""
        if self._unreachable != self.deciding.looking.unreachable:
            self._unreachable = dict(self.deciding.looking.unreachable)
            keep_unreachable(self._storage, self._unreachable)

    def end(self) -> None:
        """The query is over, or goes on elsewhere."""
        if self._turns is not None:
            self._turns.end()


class UnionReader(spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides what is released, and reads it."""

    def __init__(
        self, options: UnionOptions, schema: StructType, now_us: MonotonicClock = monotonic_us
    ) -> None:
        self._options = options
        self._schema = schema
        self._now_us = now_us
        self._opened: _Opened | None = None
        self._ends = False
        self._next_look_us: float | None = None

    def initialOffset(self) -> dict[str, Any]:
        return NOTHING_YET.to_json()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """The next decision, or where Spark stands."""
        assert start is not None, "tm.union refuses versions of Spark that do not say"
        with self._named():
            position = Decision.from_json(start)
            union = self._open(position)
            # Spark asks for more when it has committed what it has, and tells no other way in time.
            self._acknowledge(union, position)
            adopted = union.decisions.adopted
            if adopted is not None and adopted.number == position.number + 1:
                return adopted.to_json()
            if not self._is_time_to_look():
                return start
            began_us = self._now_us()
            found = union.deciding.next(position)
            took_us = self._now_us() - began_us
            self._next_look_us = self._now_us() + max(_LOOK_EVERY_US, self._rest_us(took_us))
            union.keep_unreachable()
            if found != position:
                union.decisions.check()
            return found.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends = True

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[spark.InputPartition]:
        before, decision = Decision.from_json(start), Decision.from_json(end)
        if decision == before:
            return []
        with self._named():
            union = self._open(before, decision)
            # From here on it cannot be otherwise: tasks of operators behind the union go by it.
            union.decisions.publish(before, decision)
            deciding = union.deciding
            stable = _stretches(
                deciding.pieces(before, decision), before.released_us, decision.released_us
            )
            tentative: Sequence[Stretch] = ()
            # A query that does not answer any more may repeat a batch that has some: without the
            # mark they would count as stable.
            if self._options.answering is not None:
                tentative = _stretches(
                    deciding.tentative_pieces(before, decision), *tentative_range(before, decision)
                )
            return [
                *(RowsInOrder(stretch) for stretch in stable),
                *(RowsInOrder(stretch, is_tentative=True) for stretch in tentative),
            ]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowsInOrder)
        wanted = arrow_schema(self._schema)
        own = own_columns(wanted)
        inputs = list(self._options.paths.items())

        def shown(rows: pa.RecordBatch, place: int) -> pa.RecordBatch:
            columns = dict(zip(own.names, as_asked(rows, own).columns, strict=True))
            name, _ = inputs[place]
            columns[SOURCE] = pa.repeat(pa.scalar(name, pa.string()), rows.num_rows)
            columns[MARK] = pa.repeat(pa.scalar(partition.is_tentative), rows.num_rows)
            ordered = [columns[name] for name in wanted.names]
            return pa.RecordBatch.from_arrays(ordered, wanted.names)

        read = partition.stretch.places
        views = {place: open_view(open_storage(inputs[place][1])) for place in read}
        try:
            rows = read_stretch(partition.stretch, views, own.names, self._options.time, shown)
        except MissingSegment as error:
            places = ", ".join(place_of(*inputs[place]) for place in read)
            raise loss_of_data(f"{error.what} ({error.where})", places) from error
        if rows is not None:
            for batch in rows.to_batches(max_chunksize=ROWS_AT_ONCE):
                yield as_asked(batch, wanted)

    def commit(self, end: dict[str, Any]) -> None:
        if self._opened is not None:
            self._acknowledge(self._opened, Decision.from_json(end))

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.end()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}  # tasks open what they read themselves

    def _open(self, start: Decision, planned: Decision | None = None) -> _Opened:
        if self._opened is None:
            self._opened = _Opened(self._options, self._schema, start, planned, self._now_us)
            if self._ends:
                self._opened.deciding.end_with_next_look()
        return self._opened

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What is wrong with the union's own files is told with their path."""
        try:
            yield
        except (OtherQuery, DamagedSegment) as error:
            where = f"{redacted(self._options.path)}/{error.where}"
            # Without the way it came: Spark prints that first, and says what happened behind it.
            raise type(error)(error.what, where=where, fix=error.fix) from None

    def _acknowledge(self, union: _Opened, decision: Decision) -> None:
        """Lets go, for a named reader, of what no batch of the query can ask for again."""
        if self._options.reader is not None:
            union.deciding.looking.acknowledge(decision)

    def _rest_us(self, took_us: float) -> float:
        """How long to rest after a look. Those who have a bound to keep do not look seldom."""
        answering = self._options.answering
        most_us = float("inf") if answering is None else answering.look_us
        return min(_REST * took_us, most_us)

    def _is_time_to_look(self) -> bool:
        return self._ends or self._next_look_us is None or self._now_us() >= self._next_look_us


def _turns(options: UnionOptions) -> Turns | None:
    if options.turns is None:
        return None
    assert options.answering is not None, "without tentative rows nothing is corrected"
    patience_s = options.answering.look_us / SECOND
    return Turns(options.turns, options.path, options.answering.within_us, patience_s)


def _stretches(
    pieces: Sequence[Piece], first_us: int | None, end_us: int | None
) -> Sequence[Stretch]:
    return [] if end_us is None else stretches(pieces, first_us, end_us)
