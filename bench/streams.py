"""Speed of persistent streams on Spark: writing and reading against Parquet, and finding a place.

Writing: a query that copies files into a stream, against the same query with Spark's own file sink.
Reading: count and sums over the same rows, out of a stream and out of Parquet. Both in turn, in one
session. Finding: the first row of a stream of 10,000 batches from a time in its middle on.

Prints one line per figure: name, value, limit, ok or short. Exit code 1 if any is short.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.batch_files import batch_ms, read_batches, run_to_end, write_batch
from bench.experiment import in_turn
from bench.figures import Figure, Report
from bench.session import start_session
from trailmark.log import LocalStorage
from trailmark.settings import Durability
from trailmark.streams.description import open_stream
from trailmark.streams.times import Span
from trailmark.streams.view import open_view
from trailmark.streams.writer import StreamWriter

ROWS = 1_000_000
BATCHES = 6
#: Batches that are not counted: the first ones start workers and fill caches.
WARM_UP = 2

SCHEMA = "item_id int, item_price int, customer string, at timestamp"


def write_orders(directory: Path, seed: int) -> None:
    """One file of orders per batch."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for batch in range(BATCHES):
        customers = rng.integers(0, 100_000, ROWS)
        table = pa.table(
            {
                "item_id": rng.integers(0, 100_000, ROWS, dtype=np.int32),
                "item_price": rng.integers(1, 1000, ROWS, dtype=np.int32),
                "customer": pa.array(np.char.mod("c%06d", customers), pa.string()),
                "at": pa.array(1_700_000_000_000_000 + batch * ROWS + np.arange(ROWS)).cast(
                    pa.timestamp("us", "UTC")
                ),
            }
        )
        write_batch(directory, batch, table)


Sink = Callable[[DataFrame, Path], Any]


def to_stream(df: DataFrame, path: Path) -> Any:
    return df.writeStream.format("trailmark").option("timeColumn", "at").option("path", str(path))


def to_stream_unsynced(df: DataFrame, path: Path) -> Any:
    return to_stream(df, path).option("durability", "unsynced")


def to_parquet(df: DataFrame, path: Path) -> Any:
    return df.writeStream.format("parquet").option("path", str(path))


def copy(spark: SparkSession, orders: Path, root: Path, sink: Sink) -> list[int]:
    """Milliseconds of each batch after the first ones."""
    writer = sink(read_batches(spark, SCHEMA, orders), root / "copy")
    progress = run_to_end(writer, root / "checkpoint")
    assert len(progress) == BATCHES
    return batch_ms(progress[WARM_UP:])


def writing(report: Report, spark: SparkSession, orders: Path, root: Path, rounds: int) -> None:
    """Against Spark's file sink, which does not sync what it writes."""
    report.note("writing")
    sinks: dict[str, Sink] = {
        "stream": to_stream,
        "stream, unsynced": to_stream_unsynced,
        "parquet": to_parquet,
    }
    times: dict[str, list[float]] = {name: [] for name in sinks}
    for turn, name, sink in in_turn(sinks, rounds + 1):
        taken = copy(spark, orders, root / f"{name}-{turn}", sink)
        if turn:  # the first turn compiles Spark's own code
            times[name].append(median(taken))
    for name, limit in (("stream", 1.25), ("stream, unsynced", None)):
        ratio = median(a / b for a, b in zip(times[name], times["parquet"], strict=True))
        report.add(Figure(f"writing, {name} / parquet", ratio, "x", limit))
    for name, each in times.items():
        spread = f"{min(each):,.0f} to {max(each):,.0f}"
        report.add(Figure(f"  {name}, ms per batch ({spread})", median(each), "ms"))
    for name in ("stream", "parquet"):
        size = sum(f.stat().st_size for f in (root / f"{name}-1" / "copy").rglob("*.*"))
        report.add(Figure(f"  {name}, bytes per row", size / BATCHES / ROWS, "bytes"))


class RowsFromNowhere(DataSource):
    """The ceiling of any source in Python: the rows are in memory, and only handed over."""

    @classmethod
    def name(cls) -> str:
        return "nowhere"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Nowhere([field.name for field in schema])


class _Nowhere(DataSourceReader):
    def __init__(self, columns: list[str]) -> None:
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(BATCHES * 2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        rows = 1 << 16
        numbers = pa.array(np.arange(rows, dtype=np.int32))
        made = {
            "item_id": numbers,
            "item_price": numbers,
            "customer": pa.array(["c000000"] * rows),
            "at": pa.array(np.arange(rows)).cast(pa.timestamp("us", "UTC")),
        }
        batch = pa.record_batch({name: made[name] for name in self._columns})
        left = ROWS // 2
        while left > 0:
            yield batch.slice(0, min(left, rows))
            left -= rows


def reading(report: Report, spark: SparkSession, root: Path, rounds: int) -> None:
    """The rows that `writing` has left, into an aggregate of Spark's own.

    Parquet reads the two columns that are needed. Python sources are not told; a schema says it.
    """
    report.note("reading")
    spark.dataSource.register(RowsFromNowhere)
    two = "item_id int, item_price int"
    copies = {
        "stream": ("trailmark", SCHEMA, "stream-1"),
        "stream, two columns": ("trailmark", two, "stream-1"),
        "ceiling": ("nowhere", SCHEMA, "stream-1"),
        "ceiling, two columns": ("nowhere", two, "stream-1"),
        "parquet": ("parquet", SCHEMA, "parquet-1"),
    }
    times: dict[str, list[float]] = {name: [] for name in copies}
    for turn, name, (kind, schema, place) in in_turn(copies, 2 * rounds + 1):
        started = time.perf_counter()
        rows = spark.read.format(kind).schema(schema).load(str(root / place / "copy"))
        found = rows.agg(F.count("*"), F.sum("item_id"), F.sum("item_price")).collect()
        taken = time.perf_counter() - started
        assert found[0][0] == ROWS * BATCHES
        if turn:
            times[name].append(taken)
    for name in ("stream", "stream, two columns", "ceiling", "ceiling, two columns"):
        ratio = median(b / a for a, b in zip(times[name], times["parquet"], strict=True))
        limit = 0.7 if name.startswith("stream") else None
        report.add(Figure(f"reading, rate of {name} / of parquet", ratio, "x", limit, "at least"))
    for name, taken_s in times.items():
        spread = f"{min(taken_s):.2f} to {max(taken_s):.2f}"
        name = f"  {name}, s for {ROWS * BATCHES:,} rows ({spread})"
        report.add(Figure(name, median(taken_s), "s"))


class ReadsCounted(LocalStorage):
    """Counts the files that are read, by the directory they are in."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: dict[str, int] = {}

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        self._count(path)
        return super().read(path, offset, length)

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        self._count(path)
        return super().read_tail(path, length)

    def _count(self, path: str) -> None:
        kind = "index" if path.endswith(".json") else path.split("/")[0]
        self.reads[kind] = self.reads.get(kind, 0) + 1


def finding(report: Report, spark: SparkSession, root: Path, batches: int) -> None:
    """From a time in the middle of a long stream, with and without a stored index."""
    report.note(f"writing {batches:,} small batches")
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    storage = LocalStorage(root, Durability.UNSYNCED)
    writer = StreamWriter(storage, open_stream(storage, schema, time_column="at"))
    for batch in range(batches):
        ids = batch * 10 + np.arange(10)
        times = pa.array(1_700_000_000_000_000 + ids * 1_000_000).cast(schema.field("at").type)
        writer.commit(writer.write([pa.record_batch([pa.array(ids), times], schema=schema)]))
    middle_us = 1_700_000_000_000_000 + batches // 2 * 10_000_000
    for state in ("no index", "index"):
        counted = ReadsCounted(root)
        started = time.perf_counter()
        view = open_view(counted)
        first = view.find(middle_us)
        taken = time.perf_counter() - started
        assert first == batches // 2
        report.add(Figure(f"finding a time, {state}", taken, "s"))
        segments = counted.reads.get("batches", 0) + counted.reads.get("data", 0)
        limit = 3 if state == "index" else None
        report.add(Figure(f"  segments read for it, {state}", segments, "", limit))
    found = next(iter(view.batches(first, first + 1, Span())))
    assert next(view.read(found.chunks[0], ["id"], Span())).column("id")[0].as_py() == first * 10
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(middle_us // 1_000_000))
    reader = spark.read.format("trailmark").option("startingTimestamp", moment)
    taken_s = []
    for _ in range(5):
        started = time.perf_counter()
        rows = reader.load(str(root)).limit(1).collect()
        taken_s.append(time.perf_counter() - started)
        assert rows[0]["id"] >= first * 10
    report.add(Figure("to the first row in Spark, from the middle", median(taken_s), "s", 2))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--batches", type=int, default=10_000, help="of the long stream")
    parser.add_argument("--only", choices=("copies", "finding"), help="one part")
    arguments = parser.parse_args()
    spark = start_session()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        root = Path(folder)
        if arguments.only != "finding":
            write_orders(root / "orders", seed=1)
            writing(report, spark, root / "orders", root, arguments.rounds)
            reading(report, spark, root, arguments.rounds)
        if arguments.only != "copies":
            finding(report, spark, root / "long", arguments.batches)
    spark.stop()
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
