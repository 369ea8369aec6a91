"""Persistent streams on Spark: added to, queried and followed as users do it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from trailmark.log import LocalStorage, open_storage, read_meta
from trailmark.streams.files import DataFile
from trailmark.streams.manifest import Manifest, manifest_log, read_manifest
from trailmark.streams.retention import Retention
from trailmark.streams.writer import StreamWriter

FORMAT = "trailmark"


def add(df: DataFrame, path: Path | str, **options: Any) -> None:
    """Adds rows to a stream, as one batch."""
    df.write.format(FORMAT).mode("append").options(**options).save(str(path))


def query(
    spark: SparkSession, path: Path | str, schema: str | None = None, **options: Any
) -> DataFrame:
    """What is in a stream now."""
    reader = spark.read.format(FORMAT).options(**options)
    return (reader if schema is None else reader.schema(schema)).load(str(path))


def follow(
    spark: SparkSession, path: Path | str, schema: str | None = None, **options: Any
) -> DataFrame:
    """The stream as a streaming DataFrame."""
    reader = spark.readStream.format(FORMAT).options(**options)
    return (reader if schema is None else reader.schema(schema)).load(str(path))


def write_stream(
    df: DataFrame, path: Path | str, checkpoint: Path, **options: Any
) -> list[dict[str, Any]]:
    """Adds a streaming DataFrame to a stream until its input ends; the progress of its batches."""
    writer = df.writeStream.format(FORMAT).options(**options)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    running = writer.start(str(path))
    running.awaitTermination()
    return [dict(progress) for progress in running.recentProgress]


def numbers(df: DataFrame, column: str = "id") -> list[int]:
    """A column of whole numbers, sorted."""
    return sorted(df.select(column).toArrow().column(0).to_pylist())


def values_of(df: DataFrame, by: str = "id") -> list[str]:
    """Every row as text that differs wherever a value, a type or a bit of a float differs."""
    return [repr(row) for row in df.toArrow().sort_by(by).to_pylist()]


def manifests(path: Path | str) -> list[Manifest]:
    """All batches of a stream, from its files."""
    storage = LocalStorage(path) if isinstance(path, Path) else open_storage(path)
    meta = read_meta(storage)
    assert meta is not None
    log = manifest_log(storage, meta)
    return [read_manifest(log, batch) for batch in log.batches()]


def data_files(path: Path) -> list[DataFile]:
    """The data files of all batches."""
    return [file for manifest in manifests(path) for file in manifest.files]


def numbered(first: int, end: int) -> pa.Table:
    """Rows that can be told apart."""
    ids = range(first, end)
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [f"row {n}" for n in ids]})


def grow(path: Path, tables: Iterable[pa.Table], retention: Retention | None = None) -> None:
    """Adds batches to a stream that there is, without Spark: in milliseconds."""
    storage = LocalStorage(path)
    meta = read_meta(storage)
    assert meta is not None
    writer = StreamWriter(storage, meta, retention=retention)
    for table in tables:
        writer.commit(writer.write(table.to_batches()))
