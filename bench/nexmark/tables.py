"""The events as streams of Spark's, for queries on its own operators and on Trailmark's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.batch_files import read_batches
from bench.nexmark.plain import WINDOW_MS

SCHEMAS = {
    "person": "id long, name string, city string, state string, joined timestamp",
    "auction": "id long, seller long, category long, opened timestamp, expires timestamp",
    "bid": "auction long, bidder long, price long, at timestamp, arrived timestamp",
}
#: What each query reads.
READS: dict[str, tuple[str, ...]] = {
    "q3": ("person", "auction"),
    "q4": ("auction", "bid"),
    "q5": ("bid",),
    "q6": ("auction", "bid"),
    "q7": ("bid",),
    "q8": ("person", "auction"),
    "q11": ("bid",),
    "q12": ("bid",),
}


@dataclass(frozen=True)
class Tables:
    """The streams of a directory, a file of each at a time; ``place`` is for what has to survive,
    ``cache`` for the state that Trailmark keeps between batches, if not where it does by itself."""

    spark: SparkSession
    directory: Path
    place: Path
    longest_ms: int
    partitions: int = 2
    cache: Path | None = None

    @property
    def person(self) -> DataFrame:
        return self._read("person")

    @property
    def auction(self) -> DataFrame:
        return self._read("auction")

    @property
    def bid(self) -> DataFrame:
        return self._read("bid")

    def _read(self, kind: str) -> DataFrame:
        return read_batches(self.spark, SCHEMAS[kind], self.directory / kind)


def window_start(column: str) -> Column:
    """The start of the window that a time is in, as a column ``start``."""
    ms = F.unix_millis(column)
    return F.timestamp_millis(ms - ms % WINDOW_MS).alias("start")
