"""Operators of users' on Spark: a query over orders that is run, broken, mended and run again, and
what the oracles make of the input that it logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import trailmark as tm
from tests.support.compare import exact
from tests.support.keyed import KeyedCase
from tests.support.spark_feed import Feed, Query, Rows, logged_segments
from tests.support.spark_orders import sink_files
from tests.support.whole import WholeCase
from trailmark.records import Stream
from trailmark.spark.sessions import refusal_in

SCHEMA = "item int, value double, word string, at timestamp"
COUNTED = "item int, n long"
START = datetime(2024, 3, 1, tzinfo=timezone.utc)


def orders(*rows: tuple[int | None, int]) -> pa.Table:
    """Items and the seconds at which they were ordered."""
    return pa.table(
        {
            "item": pa.array([item for item, _ in rows], pa.int32()),
            "value": pa.array([float(second) for _, second in rows], pa.float64()),
            "word": pa.array([f"at {second}" for _, second in rows], pa.string()),
            "at": pa.array(
                [START + timedelta(seconds=second) for _, second in rows],
                pa.timestamp("us", "UTC"),
            ),
        }
    )


class Count:
    """How many rows each key has had."""

    state: ClassVar[dict[str, pa.DataType]] = {"n": pa.int64()}

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> Any:
        state["n"] += keys.counts()
        return keys.table(n=state["n"])


class Total:
    """How many rows there have been, as an object with a checkpoint."""

    def __init__(self) -> None:
        self.rows = 0

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.rows += batch.num_rows
        return pa.RecordBatch.from_pydict({"rows": pa.array([self.rows], pa.int64())})

    def get_checkpoint(self) -> bytes:
        return str(self.rows).encode()

    def restore_checkpoint(self, state: bytes) -> None:
        self.rows = int(state)


def variant(kind: type, **members: Any) -> Any:
    """The class with other members, by the same name."""
    return type(kind.__name__, (kind,), members)


def latest(keys: Any, rows: pa.RecordBatch) -> Any:
    """The greatest event time of each key."""
    found = np.full(len(keys), np.iinfo(np.int64).min)
    np.maximum.at(found, keys.of_rows, rows["at"].cast(pa.int64()).to_numpy())
    return found.view("M8[us]")


class Place:
    """A stream of orders and a query with one operator over it."""

    def __init__(self, spark: SparkSession, root: Path, schema: str = SCHEMA) -> None:
        self.spark = spark
        self.root = root
        self.feed = Feed(spark, root / "in", schema)
        self.query = Query(root)
        self.path = root / "log"
        self.cache = root / "cache"

    def apply(self, operator: Any, df: DataFrame | None = None, **given: Any) -> DataFrame:
        arguments: dict[str, Any] = {
            "by": "item",
            "schema": COUNTED,
            "path": self.path,
            "buckets": 2,
            "cache_dir": self.cache,
        }
        return tm.apply(self.feed.stream() if df is None else df, operator, **(arguments | given))

    def run(self, operator: Any, **given: Any) -> list[int]:
        """The batches that were run."""
        before = self.newest_batch()
        self.query.run(self.apply(operator, **given))
        return list(range(before + 1, self.newest_batch() + 1))

    def newest_batch(self) -> int:
        names = [path.name for path in (self.query.checkpoint / "commits").glob("[0-9]*")]
        return max(map(int, names), default=-1)

    def refusal(self, operator: Any, **given: Any) -> str:
        """The one line that says why a run has ended early."""
        with pytest.raises(StreamingQueryException) as refused:
            self.run(operator, **given)
        found = refusal_in(str(refused.value))
        assert found is not None, refused.value
        return found

    def rows(self) -> Rows:
        """All rows of the sink. Spark does not read one that nothing was committed to."""
        is_there = (self.query.out / "_spark_metadata").exists()
        if not is_there or not sink_files(str(self.query.out)):
            return Counter()
        return self.query.rows(self.spark)


def keyed_rows(path: Path, case: KeyedCase) -> Rows:
    """What the oracle makes of the logged input of a keyed operator."""
    return _oracle_rows(path, case)


def whole_rows(path: Path, case: WholeCase) -> Rows:
    """What the oracle makes of the logged input of a whole operator."""
    return _oracle_rows(path, case)


def _oracle_rows(path: Path, case: Any) -> Rows:
    expected: Rows = Counter()
    for segments in logged_segments(path, Stream.INPUT):
        oracle = case.oracle()
        for segment in segments:
            outcome = case.expected(oracle, segment)
            expected.update(_exact(oracle.published(outcome.results)))
    return expected


def _exact(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(exact(value) for value in row.values()) for row in rows]
