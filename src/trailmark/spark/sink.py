"""``format("trailmark")`` as a sink of Spark: tasks write data files, the driver commits them.

As in `source`, Spark calls these classes in Python processes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from trailmark.errors import SettingError
from trailmark.log import Storage
from trailmark.spark.options import HEARTBEAT, WriteOptions
from trailmark.spark.paths import named_in_full
from trailmark.spark.schemas import arrow_schema, stored_form
from trailmark.spark.storages import storage_at
from trailmark.streams.description import check_delay, open_stream
from trailmark.streams.files import DataFile
from trailmark.streams.writer import NOT_PLANNED, Planned, StreamWriter, plan_writing

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    # Spark 4.0 has no such name. It gives Arrow batches to this one, in streaming queries as well.
    DataSourceStreamArrowWriter = getattr(
        spark, "DataSourceStreamArrowWriter", spark.DataSourceArrowWriter
    )


_Messages: TypeAlias = Sequence[spark.WriterCommitMessage | None]


@dataclass(frozen=True)
class WrittenFiles(spark.WriterCommitMessage):
    """What a task has written, for which query, and where the stream stood before."""

    files: tuple[DataFile, ...]
    query_id: str | None
    planned: Planned
    #: When all sources were asked and had nothing more, if the query says so.
    asked_us: int | None = None


class _Writing:
    """What writing in a task and committing on the driver have in common."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._has_heartbeats = HEARTBEAT in schema.names
        stored = stored_form(StructType([each for each in schema if each.name != HEARTBEAT]))
        storage = storage_at(options.path, options.settings)
        # On the driver, before anything runs: wrong options and schemas are refused at the start.
        with named_in_full(options.path):
            _check_promises(options, storage, self._has_heartbeats)
            self._meta = open_stream(
                storage,
                arrow_schema(stored),
                time_column=options.time_column,
                keys=options.keys,
                buckets=options.buckets,
                source_schema=stored.jsonValue(),
            )
            self._planned = plan_writing(storage, self._meta)

    def stream(self, planned: Planned) -> StreamWriter:
        options = self._options
        storage = storage_at(options.path, options.settings)
        return StreamWriter(
            storage,
            self._meta,
            options.settings,
            options.retention,
            planned=planned,
            compares_repeated=options.compares_repeated,
            delay_us=options.delay_us,
        )

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenFiles:
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        asked: list[int] = []
        rows = _without_heartbeats(batches, asked) if self._has_heartbeats else batches
        files = self.stream(self._planned).write(rows, query_id)
        return WrittenFiles(tuple(files), query_id, self._planned, max(asked, default=None))

    def of(self, messages: _Messages) -> tuple[StreamWriter, list[DataFile]]:
        """What commits or discards the files of all tasks, and these.

        Spark makes this object again to commit. The one that tasks had was there before them.
        """
        written = [each for each in messages if isinstance(each, WrittenFiles)]
        planned = min((each.planned for each in written), key=_after, default=NOT_PLANNED)
        return self.stream(planned), [file for each in written for file in each.files]


def _after(planned: Planned) -> int:
    return planned.after


def _without_heartbeats(
    batches: Iterator[pa.RecordBatch], asked: list[int]
) -> Iterator[pa.RecordBatch]:
    """The rows that are to be kept; times of heartbeats go to the list."""
    for batch in batches:
        times = batch.column(HEARTBEAT)
        if times.null_count < len(times):
            asked += times.drop_null().cast(pa.int64()).to_pylist()
            batch = batch.filter(times.is_null())
        yield batch.drop_columns([HEARTBEAT])


def _check_promises(options: WriteOptions, storage: Storage, has_heartbeats: bool) -> None:
    """Refuses heartbeats and delays that would say nothing."""
    if options.heartbeat is not None and not has_heartbeats:
        raise SettingError(
            "Spark runs no batch while its sources are silent, so a sink alone cannot say so.",
            where="heartbeat",
            fix=f"Write tm.with_heartbeat(df, {options.heartbeat!r}) in place of df.",
        )
    if has_heartbeats and options.delay_us is None:
        raise SettingError(
            "A heartbeat says that the stream is complete up to a time: by the clock, less a delay "
            "that is not given.",
            where="delay",
            fix='For example .option("delay", "1 second").',
        )
    if options.delay_us is not None:
        check_delay(storage, options.time_column, "the option timeColumn")


class TrailmarkWriter(spark.DataSourceArrowWriter):
    """Adds a DataFrame to a stream, as one batch."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        if HEARTBEAT in schema.names:
            raise SettingError(
                "The rows of tm.with_heartbeat are for a query that goes on.",
                where=HEARTBEAT,
                fix="Write the DataFrame itself, or the one with heartbeats with writeStream.",
            )
        if options.delay_us is not None or options.heartbeat is not None:
            raise SettingError(
                "A job promises nothing about rows that others are still to write.",
                where="delay, heartbeat",
                fix="Leave them out; they are for writeStream.",
            )
        self._writing = _Writing(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> spark.WriterCommitMessage:
        return self._writing.write(iterator)

    def commit(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        stream, files = self._writing.of(messages)
        stream.commit(files)

    def abort(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        stream, files = self._writing.of(messages)
        stream.discard(files)


class TrailmarkStreamWriter(DataSourceStreamArrowWriter):
    """Adds the batches of a query to a stream, each of them once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._writing = _Writing(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> spark.WriterCommitMessage:
        return self._writing.write(iterator)

    def commit(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:
        stream, files = self._writing.of(messages)
        queries = {each.query_id for each in messages if isinstance(each, WrittenFiles)}
        assert len(queries) <= 1, "one query"
        query_id = next(iter(queries), None)
        if files and query_id is None:
            raise SettingError(
                "Spark does not say which query this is, so its batches cannot be told apart.",
                where="sql.streaming.queryId",
                fix="Start the query as usual, with writeStream...start().",
            )
        asked = [each.asked_us for each in messages if isinstance(each, WrittenFiles)]
        known = [each for each in asked if each is not None]
        stream.commit(files, query_id, batchId, max(known, default=None))

    def abort(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:
        stream, files = self._writing.of(messages)
        stream.discard(files)
