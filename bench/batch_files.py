"""Streams from files, one a batch: how benchmarks on Spark are fed and run to their end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

Progress = dict[str, Any]


def date_batch(file: Path, batch: int) -> None:
    """Sources that go by the time of a file's last change take batches in their order."""
    os.utime(file, (1_700_000_000 + batch,) * 2)


def write_batch(directory: Path, batch: int, rows: pa.Table, **options: Any) -> None:
    """One Parquet file in two row groups, so that two tasks can read it."""
    file = directory / f"{batch:04d}.parquet"
    half = max(1000, -(-rows.num_rows // 2))
    pq.write_table(rows, file, row_group_size=half, **options)
    date_batch(file, batch)


def read_batches(spark: SparkSession, schema: str, directory: Path) -> DataFrame:
    """The files of a directory as a stream, one at a time."""
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory))


def run_to_end(writer: Any, checkpoint: Path) -> list[Progress]:
    """Runs a query until it has read all files; what Spark says about each batch."""
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return list(query.recentProgress)


def batch_ms(progress: list[Progress]) -> list[int]:
    """Milliseconds of each batch, from its trigger to its commit."""
    return [each["durationMs"]["triggerExecution"] for each in progress]
