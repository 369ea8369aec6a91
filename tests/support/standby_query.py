"""A script with `tm.standby`, to be started several times, killed, stopped and started again.

``python -m tests.support.standby_query CONFIG.json`` says what happens, a line at a time::

    up NAME             Spark is up
    log MESSAGE         a line of the logger ``trailmark``
    batch NAME N        Spark has committed batch N of the query
    ended HOW           `tm.standby` has returned
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from tests.support.spark_query import COLUMNS, Config, Follower, Query, aggregate, open_session, say


@dataclass(frozen=True)
class StandbyConfig:
    """What a process is started with."""

    name: str
    scratch: str
    lease: str
    term: str
    query: Query

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> StandbyConfig:
        found = json.loads(path.read_text())
        return cls(**{**found, "query": Query(**found["query"])})


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"log {record.getMessage()}".replace("\n", " "))


def main(path: str) -> int:
    config = StandbyConfig.read(Path(path))
    query = config.query
    log = logging.getLogger("trailmark")
    log.addHandler(_Said())
    log.setLevel(logging.INFO)
    spark = open_session(Config("local[2]", config.scratch, [], {}))
    follower = Follower()
    tm.listen(spark, follower)
    follower.expect([query])
    say(f"up {config.name}")

    def build(spark: SparkSession) -> StreamingQuery:
        rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(query.input)
        return (
            aggregate(rows, query)
            .writeStream.format("parquet")
            .option("checkpointLocation", query.checkpoint)
            .queryName(query.name)
            .start(query.out)
        )

    ended = tm.standby(build, lease=config.lease, term=config.term, session=spark, name=config.name)
    say(f"ended {ended}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
