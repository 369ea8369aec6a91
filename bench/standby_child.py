"""A driver for `bench.standby`: counts orders of a stream, alone or as one of two.

``python -m bench.standby_child HOME NAME standby|alone``
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from bench.session import start_session

BUCKETS = 2


def start(spark: SparkSession, home: Path) -> StreamingQuery:
    orders = spark.readStream.format("trailmark").load(str(home / "orders"))
    means = tm.aggregate(
        orders,
        by="item_id",
        window=tm.count_window(2),
        values={"mean": tm.avg("price")},
        path=home / "means",
        buckets=BUCKETS,
    )
    writer = means.writeStream.format("parquet")
    return writer.option("checkpointLocation", str(home / "checkpoint")).start(str(home / "out"))


def main(home: Path, name: str, mode: str) -> int:
    logging.basicConfig(filename=home / f"{name}.log", format="%(asctime)s %(message)s")
    logging.getLogger("trailmark").setLevel(logging.INFO)
    spark = start_session(settings={"spark.driver.memory": "1g"})
    if mode == "alone":
        start(spark, home).awaitTermination()
        return 0
    tm.standby(lambda spark: start(spark, home), lease=home / "lease", session=spark, name=name)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
