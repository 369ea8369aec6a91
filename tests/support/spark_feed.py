"""Streams for tests on Spark: files that arrive one per batch, and what came out of a query."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tests.support.compare import exact
from tests.support.oracle import Oracle, Row
from tests.support.plain import plain_rows
from trailmark.kernel.columns import contiguous
from trailmark.log import LocalStorage, OperatorMeta, Segment, StreamLog, read_meta
from trailmark.operators.kinds import form_of
from trailmark.operators.late import Late
from trailmark.records import FrameKind, Stream
from trailmark.recovery import batch_input
from trailmark.windows.functions import AnyFunction
from trailmark.windows.spec import Window

Rows = Counter[tuple[Any, ...]]


@dataclass
class Feed:
    """A directory of Parquet files, read one per micro-batch in the order they were added."""

    spark: SparkSession
    directory: Path
    schema: str
    files: int = 0

    def add(self, *tables: pa.Table) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for table in tables:
            aside = self.directory / f"_{self.files}"
            pq.write_table(table, aside, coerce_timestamps="us")
            # The file source goes by the time of the last change.
            os.utime(aside, (1_700_000_000 + self.files,) * 2)
            aside.rename(self.directory / f"{self.files:05d}.parquet")
            self.files += 1

    def stream(self) -> DataFrame:
        self.directory.mkdir(parents=True, exist_ok=True)
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.directory))


@dataclass
class Query:
    """A query into Parquet files that can be run again and again, as far as there is input."""

    place: Path
    name: str = "query"
    options: dict[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.place / self.name / "out"

    @property
    def checkpoint(self) -> Path:
        return self.place / self.name / "checkpoint"

    def run(self, df: DataFrame) -> list[dict[str, Any]]:
        """Runs until all input is taken; returns the progress of its batches."""
        writer = df.writeStream.option("checkpointLocation", str(self.checkpoint))
        query = writer.options(**self.options).trigger(availableNow=True).start(str(self.out))
        query.awaitTermination()
        return [dict(progress) for progress in query.recentProgress]

    def rows(self, spark: SparkSession) -> Rows:
        return rows_of(spark.read.parquet(str(self.out)))


def rows_of(df: DataFrame) -> Rows:
    """The rows of a DataFrame as a multiset of exact values, instants as microseconds."""
    return Counter(tuple(exact(value) for value in row.values()) for row in plain_rows(_batch(df)))


def _batch(df: DataFrame) -> pa.RecordBatch:
    table = df.toArrow()
    columns = [_flat(column) for column in table.columns]
    return contiguous(pa.table(columns, names=table.schema.names))


def _flat(column: pa.ChunkedArray) -> pa.Array:
    """The struct of a window as the text of its bounds in microseconds."""
    array = column.combine_chunks()
    if not pa.types.is_struct(array.type):
        return array
    bounds = [child.view(pa.int64()).to_pylist() for child in array.flatten()]
    return pa.array([f"{start}-{end}" for start, end in zip(*bounds, strict=True)], pa.string())


def logged_segments(path: Path, stream: Stream) -> Iterator[list[Segment]]:
    """The segments of each bucket, oldest first."""
    storage, meta = LocalStorage(str(path)), meta_of(path)
    for bucket in range(meta.buckets):
        yield list(StreamLog(storage, stream, meta.log_id, bucket).read_from())


def meta_of(path: Path) -> OperatorMeta:
    meta = read_meta(LocalStorage(str(path)))
    assert meta is not None
    return meta


def expected_rows(
    path: Path,
    *,
    by: Sequence[str],
    window: Window,
    values: Mapping[str, AnyFunction],
    late: Late = "drop",
) -> Rows:
    """What the oracle makes of the logged input, batch by batch and bucket by bucket."""
    expected: Rows = Counter()
    for segments in logged_segments(path, Stream.INPUT):
        ports = form_of(meta_of(path)).ports
        oracle = Oracle(ports[0].schema, by=by, window=window, values=values, late=late)
        for segment in segments:
            given = batch_input(segment, ports)
            rows = plain_rows(given.rows)
            outcome = oracle.process(given.batch, rows, given.late_before, given.watermark)
            expected.update(map(_with_window, oracle.published(outcome.results)))
    return expected


def _with_window(row: Row) -> tuple[Any, ...]:
    """Keys, the window as `_flat` writes it, and values."""
    names = list(row)
    if "window_start" in row:
        at = names.index("window_start")
        bounds = f"{row['window_start']}-{row['window_end']}"
        return (
            *(exact(row[name]) for name in names[:at]),
            bounds,
            *(exact(row[name]) for name in names[at + 2 :]),
        )
    return tuple(exact(value) for value in row.values())


def logged_rows(path: Path) -> Rows:
    """All rows of the input log, as a multiset."""
    return Counter(
        tuple(exact(value) for value in row.values())
        for segments in logged_segments(path, Stream.INPUT)
        for segment in segments
        for row in plain_rows(contiguous(segment.table(FrameKind.INPUT)))
    )


def table_rows(tables: Sequence[pa.Table], names: Sequence[str]) -> Rows:
    """The rows of tables as a multiset, some columns only."""
    return Counter(
        tuple(exact(value) for value in row.values())
        for table in tables
        for row in plain_rows(contiguous(table.select(list(names))))
    )
