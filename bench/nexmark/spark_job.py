"""NEXMark on Spark: on Trailmark's operators, or on Spark's own with their state in RocksDB.

Results go to Parquet files, once, whatever fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.nexmark import spark_queries, trailmark_queries
from bench.nexmark.tables import Tables
from bench.peers.jobs.spark_job import PARTITIONS, Account, say, start_session

_QUERIES = {"trailmark": trailmark_queries.QUERIES, "spark": spark_queries.QUERIES}


def run(job: dict[str, Any]) -> None:
    place, spark = Path(job["place"]), start_session()
    account = Account(place / "batches.jsonl")
    spark.streams.addListener(account)
    cache = Path(job["cache"]) if "cache" in job else None
    tables = Tables(spark, Path(job["events"]), place / "log", job["longest_ms"], PARTITIONS, cache)
    results = _QUERIES[job["variant"]][job["query"]](tables)
    writer = results.writeStream.format("parquet").option("path", str(place / "results"))
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    say("ready")
    writer.trigger(availableNow=True).start().awaitTermination()
    account.wait_for(job["batches"])
    say("done", **account.totals)
    spark.stop()


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
