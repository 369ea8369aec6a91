"""A driver for `bench.cluster`, on a host of a cluster.

``python -m bench.cluster_child HOME batch ROUNDS`` compares times per batch, and prints them as
JSON; so does ``grow`` with those of few and many buckets (see `bench.scaling.batches`).
``python -m bench.cluster_child HOME count NAME`` counts small batches to their end. ``HOME`` has
``settings.json``, what the session is started with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import trailmark as tm
from bench.batch_files import read_batches, run_to_end
from bench.scaling.batches import batch_times
from bench.session import start_session
from bench.spark import WORKLOADS, Workload, take_turns

#: As many as there are workers with one core.
BUCKETS = 2
SMALL = Workload("small batches", 2_000, 1_000, 10, 0, batches=200)


def count(spark: SparkSession, home: Path, name: str) -> None:
    """A window of every item is open between any two batches, so no state is empty."""
    means = tm.aggregate(
        read_batches(spark, SMALL.schema, home / "orders"),
        by="item_id",
        window=tm.count_window(SMALL.window),
        values={"mean": tm.avg("item_price")},
        path=home / name / "means",
        buckets=BUCKETS,
        retain_batches=None,
    )
    run_to_end(means.writeStream.format("noop"), home / name / "checkpoint")


def main(home: Path, task: str, word: str) -> int:
    settings = json.loads((home / "settings.json").read_text())
    spark = start_session(settings=settings)
    if task == "batch":
        print(json.dumps(take_turns(spark, WORKLOADS[0], home / "batch", int(word))))
    elif task == "grow":
        print(json.dumps(batch_times(spark, home / "grow", int(word))))
    else:
        count(spark, home, word)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
