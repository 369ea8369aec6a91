"""The program that gets killed: the average price of ten orders per item, with Trailmark on Spark.

It reads one file of orders per batch until there are no more, and leaves a line of JSON per batch
for whoever follows it. Started again after a crash, it goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from demo.orders import WINDOW
from demo.places import Places
from trailmark.engine.progress import Progress


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.query", description=__doc__)
    parser.add_argument("--orders", type=Path, required=True, help="directory of the input files")
    parser.add_argument("--root", type=Path, required=True, help="directory of the run")
    parser.add_argument("--cache", type=Path, required=True, help="directory of cached state")
    parser.add_argument("--recover-within", required=True, help="how long a recovery may take")
    options = parser.parse_args()
    run(Places(options.orders, options.root, options.cache, options.recover_within))


def run(places: Places) -> None:
    """The query, from where it is to the last file."""
    spark = _session(places.root / "spark")
    with places.progress.open("a", buffering=1) as file:

        def tell(kind: str, **fields: Any) -> None:
            file.write(json.dumps({"kind": kind, "time": time.time(), **fields}) + "\n")

        tm.listen(spark, on_progress=_teller(tell))
        query = _start(_averages(spark, places), places)
        tell("started")
        query.awaitTermination()
        spark.stop()  # waits for the listener


def _session(scratch: Path) -> SparkSession:
    """Embedded Spark as it comes, but quiet and with its temporary files in one place."""
    builder: SparkSession.Builder = SparkSession.builder
    return (
        builder.master("local[2]")
        .appName("trailmark-demo")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.local.dir", scratch)
        .config("spark.sql.warehouse.dir", scratch / "warehouse")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData")
        .getOrCreate()
    )


def _averages(spark: SparkSession, places: Places) -> DataFrame:
    orders = (
        spark.readStream.schema("item_id INT, item_price INT")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(places.orders))
    )
    return tm.aggregate(
        orders,
        by="item_id",
        window=tm.count_window(WINDOW),
        values={"avg_price": tm.avg("item_price"), "orders": tm.count()},
        path=places.root / "trailmark",
        recover_within=places.recover_within,
        cache_dir=places.cache,
    )


def _start(averages: DataFrame, places: Places) -> StreamingQuery:
    writer = averages.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(places.root / "checkpoint"))
    return writer.start(str(places.sink))


def _teller(tell: Callable[..., None]) -> Callable[[str, Progress], None]:
    def on_progress(path: str, found: Progress) -> None:
        tell(
            "batch",
            batch=found.batch,
            tuples=found.tuples,
            results=found.results,
            open_windows=found.open_windows,
            predicted_us=found.predicted_us,
            recoveries=[asdict(recovery) for recovery in found.recoveries],
        )

    return on_progress


if __name__ == "__main__":
    main()
