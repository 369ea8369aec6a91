"""A join of two streams of files, for `bench.join_crashes`, until it is killed.

``python -m bench.join_child ENGINE ROOT PLACE``: reads ROOT/left and ROOT/right, keeps all that it
writes in PLACE, and prints a line for every batch whose results it has.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import trailmark as tm
from bench.batch_files import read_batches
from bench.operators import BUCKETS, OBJECTIVE, ROCKSDB
from bench.session import start_session
from trailmark.kernel.columns import numbers

#: Tuples wait for so long, and match when they are much closer; both joins are told so.
REACH = "40 seconds"
_NEAR_US = 1_000_000
_SPARK = {"spark": "2", "spark-4": "4"}


def ours(left: DataFrame, right: DataFrame, place: Path) -> DataFrame:
    return tm.join(
        left,
        right,
        on="key",
        within=tm.interval("seen", "clicked", before=REACH, after=REACH),
        condition=_are_near,
        path=place / "log",
        cache_dir=place / "cache",
        recover_within=OBJECTIVE,
        buckets=BUCKETS,
    )


def _are_near(left: pa.RecordBatch, right: pa.RecordBatch) -> Any:
    return np.abs(numbers(left["seen"]) - numbers(right["clicked"])) < _NEAR_US


def sparks(left: DataFrame, right: DataFrame, place: Path) -> DataFrame:
    near = f"clicked BETWEEN seen - INTERVAL {REACH} AND seen + INTERVAL {REACH}"
    close = f"abs(unix_micros(seen) - unix_micros(clicked)) < {_NEAR_US}"
    other = right.withColumnRenamed("key", "other").withWatermark("clicked", "0 seconds")
    timed = left.withWatermark("seen", "0 seconds")
    return timed.join(other, F.expr(f"key = other AND {near} AND {close}")).drop("other")


def _tell(df: DataFrame, batch: int) -> None:
    print(batch, df.count(), flush=True)


def main() -> None:
    engine, root, place = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    spark = start_session(settings=ROCKSDB)
    make = ours
    if engine in _SPARK:
        spark.conf.set("spark.sql.streaming.join.stateFormatVersion", _SPARK[engine])
        make = sparks
    read = partial(read_batches, spark)
    left = read("key long, seen timestamp, bid long", root / "left")
    right = read("key long, clicked timestamp, price long", root / "right")
    writer = make(left, right, place).writeStream.foreachBatch(_tell)
    query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
