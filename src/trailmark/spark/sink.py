"""``format("trailmark")`` as a sink of Spark: tasks write data files, the driver commits them.

As in `source`, Spark calls these classes in Python processes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from trailmark.errors import SettingError
from trailmark.spark.options import WriteOptions
from trailmark.spark.schemas import arrow_schema, stored_form
from trailmark.spark.storages import storage_at
from trailmark.streams.description import open_stream
from trailmark.streams.files import DataFile
from trailmark.streams.writer import StreamWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    # Spark 4.0 has no such name. It gives Arrow batches to this one, in streaming queries as well.
    DataSourceStreamArrowWriter = getattr(
        spark, "DataSourceStreamArrowWriter", spark.DataSourceArrowWriter
    )


@dataclass(frozen=True)
class WrittenFiles(spark.WriterCommitMessage):
    """What a task has written, and for which query."""

    files: tuple[DataFile, ...]
    query_id: str | None


class _Writing:
    """What writing in a task and committing on the driver have in common."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        stored = stored_form(schema)
        # On the driver, before anything runs: wrong options and schemas are refused at the start.
        self._meta = open_stream(
            storage_at(options.path, options.settings),
            arrow_schema(stored),
            time_column=options.time_column,
            keys=options.keys,
            buckets=options.buckets,
            source_schema=stored.jsonValue(),
        )

    def stream(self) -> StreamWriter:
        storage = storage_at(self._options.path, self._options.settings)
        return StreamWriter(storage, self._meta, self._options.settings, self._options.retention)

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenFiles:
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        return WrittenFiles(tuple(self.stream().write(batches)), query_id)


def _files(messages: Sequence[spark.WriterCommitMessage | None]) -> list[DataFile]:
    return [file for each in messages if isinstance(each, WrittenFiles) for file in each.files]


class TrailmarkWriter(spark.DataSourceArrowWriter):
    """Adds a DataFrame to a stream, as one batch."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._writing = _Writing(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> spark.WriterCommitMessage:
        return self._writing.write(iterator)

    def commit(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        self._writing.stream().commit(_files(messages))

    def abort(self, messages: list[spark.WriterCommitMessage | None]) -> None:
        self._writing.stream().discard(_files(messages))


class TrailmarkStreamWriter(DataSourceStreamArrowWriter):
    """Adds the batches of a query to a stream, each of them once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._writing = _Writing(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> spark.WriterCommitMessage:
        return self._writing.write(iterator)

    def commit(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:
        files = _files(messages)
        queries = {each.query_id for each in messages if isinstance(each, WrittenFiles)}
        assert len(queries) <= 1, "one query"
        query_id = next(iter(queries), None)
        if files and query_id is None:
            raise SettingError(
                "Spark does not say which query this is, so its batches cannot be told apart.",
                where="sql.streaming.queryId",
                fix="Start the query as usual, with writeStream...start().",
            )
        self._writing.stream().commit(files, query_id, batchId)

    def abort(self, messages: list[spark.WriterCommitMessage | None], batchId: int) -> None:
        self._writing.stream().discard(_files(messages))
