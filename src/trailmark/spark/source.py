"""``format("trailmark")``: streams and operators' logs as a data source of Spark.

Spark calls these classes in Python processes of its own, so they hold nothing but options until
they are asked. What a stream is, and how it is read, is :mod:`trailmark.streams`; writing is in
`sink`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from trailmark.errors import DataLoss, MissingSegment, SettingError
from trailmark.log import Storage, open_storage, read_meta
from trailmark.log.readers import acknowledge, register
from trailmark.spark.limits import ReadLimits, SupportsTriggerAvailableNow
from trailmark.spark.options import REPLICAS, ReadOptions, ReplicasOptions, WriteOptions
from trailmark.spark.parts import at_once, in_tasks
from trailmark.spark.schemas import arrow_schema, as_asked, check_wanted, spark_schema
from trailmark.spark.sink import TrailmarkStreamWriter, TrailmarkWriter
from trailmark.spark.storages import open_to_write
from trailmark.streams.answers import Answers
from trailmark.streams.table import beginning, bounds
from trailmark.streams.times import Span
from trailmark.streams.view import STATE, Chunk, StreamBatch, StreamView, open_view

_log = logging.getLogger("trailmark")

#: Of an offset: the first batch that was ever read.
_SINCE = "since"


class TrailmarkSource(spark.DataSource):
    """The entry point that Spark looks for."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # By name without regard to case, as Spark has them; a plain dict travels anywhere.
        self._given = {name.lower(): value for name, value in options.items()}

    @classmethod
    def name(cls) -> str:
        return "trailmark"

    def schema(self) -> StructType:
        _refuse_tables(self._given)
        if REPLICAS in self._given:
            from trailmark.spark.replicas_source import schema_of

            return schema_of(ReplicasOptions.parse(self._given))
        options = ReadOptions.parse(self._given)
        storage = open_storage(options.path)
        if read_meta(storage) is None:
            raise SettingError(
                f"There is no stream at {options.path}.",
                where="path",
                fix="Give the path that the stream or the operator was given; a relative one is "
                "taken from the directory that Spark was started in. To wait for a stream that "
                "nobody has begun to write, give its schema with .schema(...).",
            )
        if options.records == STATE:
            from trailmark.spark.state_source import state_of

            return spark_schema(state_of(options))
        found = spark_schema(open_view(storage, options.records, options.answers))
        if options.answers is Answers.ALL and options.reader is not None:
            from trailmark.spark.following import marked

            return marked(found, storage, options.path, options.reader)
        return found

    def reader(self, schema: StructType) -> spark.DataSourceReader:
        if REPLICAS in self._given:
            from trailmark.spark.replicas_source import ReplicasReader

            return ReplicasReader(ReplicasOptions.parse(self._given).for_table(), schema)
        options = ReadOptions.parse(self._given)
        if options.records == STATE:
            from trailmark.spark.state_source import StateReader

            return StateReader(options, schema)
        return TrailmarkReader(options, schema)

    def streamReader(self, schema: StructType) -> spark.DataSourceStreamReader:
        if REPLICAS in self._given:
            from trailmark.spark.replicas_source import ReplicasStreamReader

            return ReplicasStreamReader(ReplicasOptions.parse(self._given).for_stream(), schema)
        options = ReadOptions.parse(self._given).for_stream()
        if options.answers is Answers.ALL and options.reader is not None:
            from trailmark.spark.following import FollowingReader

            return FollowingReader(options, schema)
        return TrailmarkStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> TrailmarkWriter:
        _refuse_overwriting(overwrite)
        return TrailmarkWriter(WriteOptions.parse(self._given), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TrailmarkStreamWriter:
        _refuse_overwriting(overwrite)
        return TrailmarkStreamWriter(WriteOptions.parse(self._given), schema)


def _refuse_tables(given: Mapping[str, str]) -> None:
    if "provider" in given:
        # Spark (4.3) says so much when a table is made, and not even its path when it is used.
        raise SettingError(
            "A table of a catalog cannot be a stream: Spark does not tell its path to Python "
            "sources.",
            where="CREATE TABLE",
            fix="Use CREATE TEMPORARY VIEW name USING trailmark OPTIONS (path '/data/orders').",
        )


def _refuse_overwriting(overwrite: bool) -> None:
    if overwrite:
        raise SettingError(
            "A stream cannot be overwritten, only added to.",
            where="mode",
            fix="Use append mode, or a path of its own for what is new.",
        )


@dataclass(frozen=True)
class ChunksOfStream(spark.InputPartition):
    """What one task reads, in this order."""

    chunks: tuple[Chunk, ...]


class _Rows:
    """What reading in a task takes. It travels there with the reader."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def open(self) -> StreamView:
        """The view, which has to have the columns that are asked for."""
        view = self._open()
        check_wanted(self._schema, view)
        return view

    def _open(self) -> StreamView:
        options = self._options
        return open_view(
            open_storage(options.path),
            options.records,
            options.answers,
            fails_on_data_loss=options.fails_on_data_loss,
        )

    def read(self, chunks: Sequence[Chunk]) -> Iterator[pa.RecordBatch]:
        view = self._open()
        wanted = arrow_schema(self._schema)
        for chunk in chunks:
            try:
                for rows in view.read(chunk, wanted.names, self._options.span):
                    yield from at_once(as_asked(rows, wanted))
            except DataLoss:
                raise  # it says what to do
            except MissingSegment as error:
                if self._options.fails_on_data_loss:
                    raise _data_loss(error.what, error.where) from error
                _log.warning("%s: %s Reading goes on behind it.", error.where, error.what)

    def partitions(self, chunks: Sequence[Chunk]) -> Sequence[ChunksOfStream]:
        """Chunks of a bucket stay in their order; as many as make a task worth its start."""
        ordered = sorted(chunks, key=lambda each: (each.bucket, each.batch))
        return [ChunksOfStream(task) for task in in_tasks(ordered, lambda each: each.bytes)]


class TrailmarkReader(spark.DataSourceReader):
    """A query over what is in a stream when it is planned.

    It takes no filters. Spark (4.3) plans a filtered query of a DataFrame and then gives the same
    files and rows to an unfiltered one of the same DataFrame: rows that were left out for the first
    would be missing from the second.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._rows = _Rows(options, schema)

    def partitions(self) -> Sequence[spark.InputPartition]:
        view = self._rows.open()
        span = self._options.span
        first, end = bounds(view, span)
        asked = span.first_batch
        if asked is not None and asked < first and self._options.fails_on_data_loss:
            raise _data_loss(f"Batches {asked} to {first - 1} are gone.", self._options.path)
        view = beginning(view, span, first)
        chunks = [
            chunk
            for batch in view.batches(first, end, span)
            for chunk in batch.chunks
            if chunk.rows
        ]
        # For no partition Spark would make up one of its own.
        return self._rows.partitions(chunks) or [ChunksOfStream(())]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChunksOfStream)
        return self._rows.read(partition.chunks)


class TrailmarkStreamReader(spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Replays a stream and follows it.

    An offset names the next batch to be read, and the log it is a batch of. Of a change feed that
    was not told where to start it also names the first batch of all, before which it deletes
    nothing.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._rows = _Rows(options, schema)
        self._storage: Storage | None = None
        self._opened: StreamView | None = None
        self._target: int | None = None
        self._is_registered = False
        self._acknowledged: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        view = self._view()
        if view is None:
            return {"batch": self._options.span.first_batch or 0, "log": ""}
        batch = self._starting_batch(view)
        since = self._since(batch)
        self._register(_after(view, since), batch)
        return self._offset(view, batch, since)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """The end of the stream, or as far from ``start`` as the limits admit.

        Before version 4.2, Spark says neither where it stands nor what it wants: there it gets all.
        """
        view = self._view()
        if view is None:
            return self.initialOffset() if start is None else start
        end = view.end() if self._target is None else self._target
        if start is None:
            return self._offset(view, end)
        is_other = _is_other(start, view)
        first = view.oldest() if is_other else int(start["batch"])
        since = self._since(first) if is_other else start.get(_SINCE)
        view = _after(view, since)
        self._register(view, first)
        if not is_other:
            # Spark asks for more when it has committed what it has, and tells no other way in time:
            # it calls `commit` when the next batch begins, which may be tomorrow.
            self._acknowledge(view, first)
        limits = self._options.limits
        if limits.has_any and not limits.are_lifted_by(limit):
            end = self._admitted(view, first, end, limits)
        # Where nothing is new, Spark shall see no change, also when the stream has just begun.
        if end <= first and not is_other:
            return start
        return self._offset(view, max(first, end), since)

    def getDefaultReadLimit(self) -> Any:
        return self._options.limits.default()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        view = self._view()
        return None if view is None else self._offset(view, view.end())

    def prepareForTriggerAvailableNow(self) -> None:
        view = self._view()
        self._target = 0 if view is None else view.end()

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[spark.InputPartition]:
        view = self._view()
        if view is None and end["log"] == "":
            return []  # Spark begins with a batch, also where there is nothing to read yet
        if view is None:
            raise _data_loss("The stream is gone.", self._options.path)
        first = self._readable_from(view, start, end["batch"])
        view = _after(view, self._since(first) if _is_other(start, view) else start.get(_SINCE))
        self._register(view, first)
        chunks = [
            chunk
            for batch in self._batches(view, first, end["batch"], complains=True)
            for chunk in batch.chunks
            if chunk.rows
        ]
        return self._rows.partitions(chunks)

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChunksOfStream)
        return self._rows.read(partition.chunks)

    def commit(self, end: dict[str, Any]) -> None:
        view = self._view()
        if view is not None:
            self._acknowledge(_after(view, end.get(_SINCE)), end["batch"])

    def stop(self) -> None:
        """Nothing is held."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_storage": None, "_opened": None}  # tasks open it themselves

    def _files(self) -> Storage:
        """One for all acknowledgements: it remembers which directories are safely on disk."""
        if self._storage is None:
            self._storage = open_to_write(self._options.path)
        return self._storage

    def _view(self) -> StreamView | None:
        """The stream; None as long as nobody has begun to write it."""
        if self._opened is None and read_meta(self._files()) is not None:
            self._opened = self._rows.open()
        return self._opened

    def _register(self, view: StreamView, batch: int) -> None:
        """Says what a named reader needs, as soon as there is a stream: it may begin later."""
        if self._options.reader is not None and not self._is_registered:
            register(self._files(), self._options.reader, view.stream, view.needs(batch))
            self._is_registered = True

    def _acknowledge(self, view: StreamView, batch: int) -> None:
        """Lets go, for a named reader, of what its query has committed."""
        if self._options.reader is not None and batch != self._acknowledged:
            acknowledge(self._files(), self._options.reader, view.stream, view.needs(batch))
            self._acknowledged = batch

    def _offset(self, view: StreamView, batch: int, since: int | None = None) -> dict[str, Any]:
        offset = {"batch": batch, "log": view.log_id}
        return offset if since is None else {**offset, _SINCE: since}

    def _since(self, batch: int) -> int | None:
        """The first batch of a change feed, which was not told where to start."""
        is_feed = self._options.answers is Answers.CHANGES
        return batch if is_feed and not self._options.span.has_start else None

    def _starting_batch(self, view: StreamView) -> int:
        span = self._options.span
        if span.first_us is not None:
            return view.find(span.first_us)
        if span.first_batch is not None:
            return span.first_batch
        return view.end() if self._options.starts_at_end else view.oldest()

    def _admitted(self, view: StreamView, first: int, end: int, limits: ReadLimits) -> int:
        rows = size = 0
        reached = first
        # Where there is something to be counted; what is gone is for `partitions` to complain.
        there = min(end, max(first, view.oldest()))
        for batch in self._batches(view, there, end, complains=False):
            if rows and not limits.admits(rows, size, batch):
                break
            rows, size = rows + batch.rows, size + batch.bytes
            reached = batch.batch + 1
        else:
            return end
        return reached

    def _batches(
        self, view: StreamView, first: int, end: int, *, complains: bool
    ) -> Iterator[StreamBatch]:
        """The batches of a range, of which the first may be trimmed while they are looked at."""
        while True:
            try:
                for batch in view.batches(first, end, Span()):
                    yield batch
                    first = batch.batch + 1
                return
            except MissingSegment:
                oldest = view.oldest()
                if oldest <= first:
                    raise  # not trimmed, but missing
                if complains:
                    self._lose(_trimmed(first, min(oldest, end)), oldest)
                first = min(oldest, end)

    def _readable_from(self, view: StreamView, start: Mapping[str, Any], end: int) -> int:
        """The first batch to be read; what should be read and is gone is a loss of data."""
        first = int(start["batch"])
        is_other = _is_other(start, view)
        oldest = view.oldest()
        if not is_other and (first >= oldest or first >= end):
            return first
        what = "The path holds another stream than the query began to read."
        self._lose(what if is_other else _trimmed(first, min(oldest, end)), oldest)
        return min(oldest, end)

    def _lose(self, what: str, oldest: int) -> None:
        if self._options.fails_on_data_loss:
            raise _data_loss(what, self._options.path)
        _log.warning("%s: %s Reading goes on with batch %d.", self._options.path, what, oldest)


def _after(view: StreamView, since: int | None) -> StreamView:
    return view if since is None else view.beginning_at(since)


def _is_other(offset: Mapping[str, Any], view: StreamView) -> bool:
    """Whether an offset is of another stream than the one that is there now."""
    return offset["log"] not in ("", view.log_id)


def _trimmed(first: int, end: int) -> str:
    return f"Batches {first} to {end - 1} are gone: they were trimmed before they were read."


def _data_loss(what: str, where: str) -> DataLoss:
    return DataLoss(
        what,
        where=where,
        fix="Give readers a name (option reader) and the stream a longer retention. To go on "
        "without what is gone, set the option failOnDataLoss to false.",
    )
