"""Speed on Spark: time per batch against a query that does nothing but move the same rows.

The other query reads the rows of the same shuffle in a Python worker, looks at none of them, and
returns as many rows as Trailmark has results. Both run in turn in one session.

Prints one line per figure: name, value, limit, ok or short. Exit code 1 if any is short.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import trailmark as tm
from bench.batch_files import batch_ms, read_batches, run_to_end, write_batch
from bench.experiment import in_turn
from bench.figures import Figure, Report
from bench.session import start_session

BUCKETS = 2
#: Eight times the windows that are open in a bucket, and a twentieth of the time.
CONTINUOUS = tm.Continuous(q=360_000, interval="5 ms", period="100 ms")
#: Batches that are not counted: the first ones start workers and fill caches.
WARM_UP = 2


@dataclass(frozen=True, slots=True)
class Workload:
    """``items`` different keys, windows of ``window`` orders, batches of ``tuples`` orders."""

    name: str
    tuples: int
    items: int
    window: int
    limit: float
    keys: str = "int"
    batches: int = 8

    def key_column(self, ids: npt.NDArray[np.int32]) -> pa.Array:
        # Spark puts 0 and 1 into the same one of two partitions.
        ids = ids * 2 if self.items == 2 else ids
        if self.keys == "int":
            return pa.array(ids)
        return pa.array(np.char.mod("item-%011d", ids), pa.string())

    @property
    def results(self) -> int:
        """Results of a batch in each of the buckets."""
        return self.tuples // self.window // BUCKETS

    def write(self, directory: Path, seed: int) -> None:
        """One file per batch, ordered by time."""
        directory.mkdir(parents=True)
        rng = np.random.default_rng(seed)
        for batch in range(self.batches):
            ids = rng.integers(0, self.items, self.tuples, dtype=np.int32)
            price = rng.integers(1, 1000, self.tuples, dtype=np.int32)
            rows = pa.table({"item_id": self.key_column(ids), "item_price": price})
            write_batch(directory, batch, rows)

    @property
    def schema(self) -> str:
        return f"item_id {'int' if self.keys == 'int' else 'string'}, item_price int"


WORKLOADS = (
    Workload("1,000,000 tuples, 100,000 ids, window 10", 1_000_000, 100_000, 10, 1.12),
    Workload("1,000,000 tuples, 2 ids, window 1000", 1_000_000, 2, 1000, 1.12),
    Workload("1,000,000 tuples, 100,000 ids, window 1", 1_000_000, 100_000, 1, 1.12),
    Workload("1,000,000 tuples, string keys, window 10", 1_000_000, 100_000, 10, 1.4, "text"),
    Workload("1,000 tuples, 100,000 ids, window 10", 1_000, 100_000, 10, 1.3, batches=24),
)


def ours(df: DataFrame, work: Workload, path: Path, buckets: int = BUCKETS) -> DataFrame:
    return tm.aggregate(
        df,
        by="item_id",
        window=tm.count_window(work.window),
        values={"avg_price": tm.avg("item_price")},
        path=path,
        buckets=buckets,
        checkpoint=CONTINUOUS,
    )


def pass_through(df: DataFrame, work: Workload, path: Path) -> DataFrame:
    """The ceiling: Spark to Python and back."""
    results, is_text = work.results, work.keys == "text"

    def move(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        keys = np.arange(results, dtype=np.int32)
        column = pa.array(np.char.mod("item-%011d", keys)) if is_text else pa.array(keys)
        yield pa.record_batch([column, pa.array(np.zeros(results))], ["item_id", "avg_price"])

    kind = "string" if is_text else "int"
    shuffled = df.repartition(BUCKETS, "item_id")
    moved: DataFrame = shuffled.mapInArrow(move, f"item_id {kind}, avg_price double")
    return moved


Make = Callable[[DataFrame, Workload, Path], DataFrame]


def run(spark: SparkSession, work: Workload, orders: Path, root: Path, make: Make) -> list[int]:
    """Milliseconds of each batch after the first ones."""
    df = make(read_batches(spark, work.schema, orders), work, root / "log")
    progress = run_to_end(df.writeStream.format("noop"), root / "checkpoint")
    assert len(progress) == work.batches
    return batch_ms(progress[WARM_UP:])


_MAKES: dict[str, Make] = {"ours": ours, "pass": pass_through}


def take_turns(
    spark: SparkSession, work: Workload, root: Path, rounds: int
) -> dict[str, list[float]]:
    """Milliseconds per batch of both queries, a median for every round."""
    orders = root / "orders"
    work.write(orders, seed=1)
    times: dict[str, list[float]] = {name: [] for name in _MAKES}
    for turn, name, make in in_turn(_MAKES, rounds + 1):
        taken = run(spark, work, orders, root / f"{name}-{turn}", make)
        if turn:  # the first turn compiles Spark's own code
            times[name].append(median(taken))
    return times


def compare(report: Report, spark: SparkSession, work: Workload, root: Path, rounds: int) -> None:
    report.note(work.name)
    times = take_turns(spark, work, root, rounds)
    ratio = median(a / b for a, b in zip(times["ours"], times["pass"], strict=True))
    report.add(Figure(f"time, ours / pass-through: {work.name}", ratio, "x", work.limit))
    for name, each in times.items():
        spread = f"{min(each):,.0f} to {max(each):,.0f}"
        report.add(Figure(f"  {name}, ms per batch ({spread})", median(each), "ms"))
    if work is WORKLOADS[0]:
        written(report, work, root / f"ours-{rounds}" / "log")


def written(report: Report, work: Workload, path: Path) -> None:
    """Files and bytes of both logs; nothing is trimmed in so few batches."""
    files = [file for file in path.glob("*/*/*") if file.is_file()]
    per_bucket = len(files) / work.batches / BUCKETS
    report.add(Figure("files per bucket and batch", per_bucket, "", 2))
    size = sum(file.stat().st_size for file in files) / work.batches / work.tuples
    report.add(Figure("bytes written per tuple", size, "bytes", 14))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each query")
    parser.add_argument("--only", type=int, help="the number of one workload, from 0")
    arguments = parser.parse_args()
    spark = start_session()
    report = Report()
    chosen = WORKLOADS if arguments.only is None else (WORKLOADS[arguments.only],)
    for number, work in enumerate(chosen):
        with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
            compare(report, spark, work, Path(folder) / str(number), arguments.rounds)
    spark.stop()
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
