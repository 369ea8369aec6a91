"""Speed of users' operators: `tm.apply` against what Spark itself has for the same.

Whole form: a pass-through, against the same rows moved to Python and back by `mapInArrow`, without
logs and with them. Keyed form: a running count and maximum per key, against `transformWithState`,
with equal results; and recoveries with 2,000,000 keys.

Prints one line per figure: name, value, limit, ok or short. Exit code 1 if any is short.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import trailmark as tm
from bench.batch_files import batch_ms, read_batches, run_to_end, write_batch
from bench.experiment import in_turn
from bench.figures import Figure, Report
from bench.recoveries import measure_recoveries
from bench.session import start_session
from trailmark.engine import BatchReport, Bucket, OperatorLogs
from trailmark.log import open_storage
from trailmark.operators.keyed import Keyed

BUCKETS = 2
KEYS = 100_000
MANY_KEYS = 2_000_000
OBJECTIVE = "2 seconds"
#: Batches that are not counted: the first ones start workers and fill caches.
WARM_UP = 1
SCHEMA = "item_id long, price double"
OUTPUT = "item_id long, n long, highest double"
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": str(BUCKETS),
}

Make = Callable[[DataFrame, Path], DataFrame]


def orders(rows: int, keys: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"item_id": rng.integers(0, keys, rows), "price": rng.random(rows)})


# The whole form, without state: what a batch costs beside the user's own work.


def moved(df: DataFrame, path: Path) -> DataFrame:
    return df.repartition(BUCKETS).mapInArrow(_same, SCHEMA)


def moved_by_columns(df: DataFrame, path: Path) -> DataFrame:
    """By a hash, as Trailmark does: a batch that is done again finds every row where it was."""
    return df.repartition(BUCKETS, "item_id", "price").mapInArrow(_same, SCHEMA)


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def pass_through(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def unlogged(df: DataFrame, path: Path) -> DataFrame:
    return tm.apply(df, pass_through, schema=SCHEMA, checkpoint=None, buckets=BUCKETS)


def logged(df: DataFrame, path: Path) -> DataFrame:
    return tm.apply(df, pass_through, schema=SCHEMA, path=path, buckets=BUCKETS)


def compare_whole(report: Report, spark: SparkSession, root: Path, rounds: int, rows: int) -> None:
    report.note(f"pass-through of {rows:,} rows a batch")
    directory = root / "orders"
    directory.mkdir(parents=True)
    batches = 6
    for batch in range(batches):
        write_batch(directory, batch, orders(rows, KEYS, batch))
    makes: dict[str, Make] = {
        "mapInArrow": moved,
        "mapInArrow by columns": moved_by_columns,
        "unlogged": unlogged,
        "logged": logged,
    }
    times: dict[str, list[float]] = {name: [] for name in makes}
    for turn, name, make in in_turn(makes, rounds + 1):
        place = root / f"{name}-{turn}"
        df = make(read_batches(spark, SCHEMA, directory), place / "log")
        progress = run_to_end(df.writeStream.format("noop"), place / "checkpoint")
        assert sum(each["sink"]["numOutputRows"] for each in progress) == batches * rows, name
        if turn:  # the first turn compiles Spark's own code
            times[name].append(median(batch_ms(progress[WARM_UP:])))
    _ratio(report, times, "unlogged", "mapInArrow", 1.1)
    _ratio(report, times, "unlogged", "mapInArrow by columns", None)
    _ratio(report, times, "logged", "unlogged", None)
    for name, each in times.items():
        report.add(Figure(f"  {name}, ms per batch", median(each), "ms"))


def _ratio(
    report: Report, times: dict[str, list[float]], one: str, other: str, limit: float | None
) -> None:
    ratio = median(a / b for a, b in zip(times[one], times[other], strict=True))
    report.add(Figure(f"time, tm.apply {one} / {other}", ratio, "x", limit))


# The keyed form: a running count and maximum per key.


class Running:
    """All keys of a batch at once."""

    state: ClassVar[dict[str, pa.DataType]] = {"n": pa.int64(), "highest": pa.float64()}
    initial: ClassVar[dict[str, float]] = {"highest": -np.inf}

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> pa.Table:
        state["n"] += keys.counts()
        np.maximum.at(state["highest"], keys.of_rows, rows["price"].to_numpy())
        return keys.table(n=state["n"], highest=state["highest"])


class RunningRows(StatefulProcessor):
    """The same for Spark: a key at a time, a row at a time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("running", "n long, highest double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n, highest = self.state.get() or (0, -np.inf)
        for row in rows:
            n, highest = n + 1, max(highest, row.price)
        self.state.update((n, highest))
        yield Row(item_id=key[0], n=n, highest=highest)

    def close(self) -> None:
        pass


def ours(df: DataFrame, path: Path) -> DataFrame:
    return tm.apply(
        df,
        Running,
        by="item_id",
        schema=OUTPUT,
        path=path,
        recover_within=OBJECTIVE,
        buckets=BUCKETS,
    )


def transform_with_state(df: DataFrame, path: Path) -> DataFrame:
    return df.groupBy("item_id").transformWithState(RunningRows(), OUTPUT, "Append", "None")


def compare_keyed(report: Report, spark: SparkSession, root: Path, rows: int) -> None:
    report.note(f"running count and maximum, {KEYS:,} keys, {rows:,} rows a batch")
    directory = root / "orders"
    directory.mkdir(parents=True)
    batches = 4
    for batch in range(batches):
        write_batch(directory, batch, orders(rows, KEYS, batch))
    rates, sums = {}, {}
    makes: dict[str, Make] = {"tm.apply": ours, "transformWithState": transform_with_state}
    for name, make in makes.items():
        found: list[Any] = []
        df = make(read_batches(spark, SCHEMA, directory), root / name / "log")
        writer = df.writeStream.outputMode("append").foreachBatch(partial(_sums, found))
        progress = run_to_end(writer, root / name / "checkpoint")
        assert len(progress) >= batches
        taken = batch_ms(progress[WARM_UP:batches])
        rates[name], sums[name] = rows / median(taken) * 1000, found
    assert sums["tm.apply"] == sums["transformWithState"], sums
    ratio = rates["tm.apply"] / rates["transformWithState"]
    report.add(Figure("rows/s, tm.apply / transformWithState", ratio, "x", 20, "at least"))
    for name, rate in rates.items():
        report.add(Figure(f"  {name}", rate, "rows/s"))


def _sums(found: list[Any], df: DataFrame, batch: int) -> None:
    """What both have to agree on: how many rows, their counts, and the sum of the maxima."""
    row = df.agg(F.count("*"), F.sum("n"), F.sum(F.round("highest", 12))).first()
    assert row is not None
    found.append((row[0], row[1], round(row[2], 3)))


# Recoveries with many keys, on the engine alone.


def recover_many(report: Report, root: Path, rows: int) -> None:
    report.note(f"recoveries with {MANY_KEYS:,} keys in {BUCKETS} buckets")
    schema = pa.schema([("item_id", pa.int64()), ("price", pa.float64())])
    output = pa.schema([("item_id", pa.int64()), ("n", pa.int64()), ("highest", pa.float64())])
    operator = Keyed(schema, Running, by="item_id", output=output)
    policy = tm.Continuous.within(OBJECTIVE)

    def opened() -> list[Bucket]:
        logs = OperatorLogs(open_storage(str(root)), operator, buckets=BUCKETS, query_id="bench")
        return [Bucket(operator, logs, number, policy) for number in range(BUCKETS)]

    def run(buckets: list[Bucket], batch: int, is_small: bool) -> list[BatchReport]:
        table = orders(1000 if is_small else rows, MANY_KEYS, batch)
        bucket_of = table["item_id"].to_numpy() % BUCKETS
        parts = [table.filter(pa.array(bucket_of == number)) for number in range(BUCKETS)]
        return [bucket.run(batch, part) for bucket, part in zip(buckets, parts, strict=True)]

    buckets, batch = opened(), 0
    while sum(r.account.open_windows for r in run(buckets, batch, False)) < 0.99 * MANY_KEYS:
        batch += 1
    what = f"{MANY_KEYS:,} keys"
    measure_recoveries(report, what, 2.0, opened, run, buckets, batch)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.operators", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each query")
    parser.add_argument("--only", choices=("whole", "keyed", "recovery"))
    arguments = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        root = Path(folder)
        if arguments.only in (None, "recovery"):
            recover_many(report, root / "recovery", 500_000)
        if arguments.only in (None, "whole", "keyed"):
            spark = start_session(settings=ROCKSDB)
            if arguments.only != "keyed":
                compare_whole(report, spark, root / "whole", arguments.rounds, 1_000_000)
            if arguments.only != "whole":
                compare_keyed(report, spark, root / "keyed", 400_000)
            spark.stop()
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
