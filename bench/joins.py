"""Speed of joins: `tm.join` against Spark's own join of two streams, with equal results.

Both sides bring 1,000,000 tuples a batch over 100,000 keys, and a tuple has about one partner.
Spark keeps its state in RocksDB with changelog checkpoints, in its default format and in its
newest.

Prints one line per figure: name, value, limit, ok or short. Exit code 1 if any is short.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from bench.batch_files import batch_ms, read_batches, run_to_end, write_batch
from bench.experiment import in_turn
from bench.figures import Figure, Report
from bench.operators import BUCKETS, ROCKSDB
from bench.session import start_session

KEYS = 100_000
BATCHES = 4
#: Batches that are not counted: the first one starts workers and fills nothing yet.
WARM_UP = 1
#: Seconds of event time in a batch.
_SECONDS = 10
#: The columns of both sides beside the key: a time and a value.
_COLUMNS = {"left": ("seen", "bid"), "right": ("clicked", "price")}
#: The least that a join has to reach of Spark's throughput.
_LEAST = {"inner": 1.5, "left": 1.2}
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"

Make = Callable[[DataFrame, DataFrame, str, Path], DataFrame]


def side(rows: int, batch: int, time: str, value: str, seed: int) -> pa.Table:
    """Tuples of one batch: about ten of a key, at any time of its seconds."""
    rng = np.random.default_rng((seed, batch))
    at = (1_700_000_000 + _SECONDS * batch) * 1_000_000
    times = at + rng.integers(0, _SECONDS * 1000, rows) * 1000
    return pa.table(
        {
            "key": rng.integers(0, KEYS, rows),
            time: pa.array(times, pa.timestamp("us", "UTC")),
            value: rng.integers(0, 1 << 40, rows),
        }
    )


def reach_ms(rows: int) -> int:
    """How far times may lie apart, so that a tuple has one partner on the average."""
    return int(_SECONDS * 1000 * KEYS / rows / 2)


def ours(reach: int, left: DataFrame, right: DataFrame, how: str, path: Path) -> DataFrame:
    span = f"{reach} milliseconds"
    within = tm.interval("seen", "clicked", before=span, after=span)
    return tm.join(left, right, on="key", within=within, how=how, path=path, buckets=BUCKETS)


def sparks(reach: int, left: DataFrame, right: DataFrame, how: str, path: Path) -> DataFrame:
    span = f"INTERVAL {reach} MILLISECONDS"
    near = f"clicked BETWEEN seen - {span} AND seen + {span}"
    other = right.withColumnRenamed("key", "other").withWatermark("clicked", "0 seconds")
    timed = left.withWatermark("seen", "0 seconds")
    return timed.join(other, F.expr(f"key = other AND {near}"), how).drop("other")


def compare(report: Report, spark: SparkSession, root: Path, how: str, rows: int) -> None:
    report.note(f"{how} join, {rows:,} tuples a batch and side, {KEYS:,} keys")
    reach = reach_ms(rows)
    makes: dict[str, Make] = {
        "tm.join": partial(ours, reach),
        "Spark": partial(sparks, reach),
        "Spark, format 4": partial(sparks, reach),
    }
    rates: dict[str, float] = {}
    totals: dict[str, list[Any]] = {}
    for _, name, make in in_turn(makes, 1):
        spark.conf.set(_FORMAT, "4" if name.endswith("4") else "2")
        place = root / f"{how}-{name}"
        found: list[Any] = []
        left, right = (
            read_batches(spark, f"key long, {time} timestamp, {value} long", root / which)
            for which, (time, value) in _COLUMNS.items()
        )
        results = make(left, right, how, place / "log")
        writer = results.writeStream.outputMode("append").foreachBatch(partial(_sums, found))
        progress = run_to_end(writer, place / "checkpoint")
        taken = batch_ms(progress[WARM_UP:BATCHES])
        rates[name], totals[name] = 2 * rows / median(taken) * 1000, found
        written = sum(f.stat().st_size for f in place.rglob("*") if f.is_file())
        report.note(
            f"{name}: {written / (2 * rows * BATCHES):.1f} bytes a tuple on disk at the end"
        )
    _check_equal(totals)
    for name in list(makes)[1:]:
        ratio = rates["tm.join"] / rates[name]
        report.add(
            Figure(f"tuples/s, {how}: tm.join / {name}", ratio, "x", _LEAST[how], "at least")
        )
    for name, rate in rates.items():
        report.add(Figure(f"  {name}", rate, "tuples/s"))


def _sums(found: list[Any], df: DataFrame, batch: int) -> None:
    """What all have to agree on: how many rows, and the sums of both sides."""
    found.append(tuple(df.agg(F.count("*"), F.sum("bid"), F.sum("price")).first() or ()))


def _check_equal(totals: dict[str, list[Any]]) -> None:
    """The same rows in the end; a batch without data may come later."""
    sums = {
        name: tuple(sum(row[place] or 0 for row in found) for place in range(3))
        for name, found in totals.items()
    }
    assert len(set(sums.values())) == 1, sums


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.joins", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="tuples a batch and side")
    parser.add_argument("--only", choices=tuple(_LEAST))
    arguments = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        root = Path(folder)
        for seed, (which, (time, value)) in enumerate(_COLUMNS.items()):
            (root / which).mkdir()
            for batch in range(BATCHES):
                write_batch(root / which, batch, side(arguments.rows, batch, time, value, seed))
        spark = start_session(settings=ROCKSDB)
        for how in _LEAST:
            if arguments.only in (None, how):
                compare(report, spark, root, how, arguments.rows)
        spark.stop()
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
