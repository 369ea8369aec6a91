"""Trailmark and what Spark itself has for the same, each as one streaming query.

The count windows of `apply-in-pandas-with-state` and of both `transform-with-state` are written
as one would write them: a value per item (orders so far, their sum), whole slices of prices where
the interface hands over columns. `built-in` has no count windows: it keeps a running average and
gives the new one of every item that a batch has. `pass-through` keeps nothing: it moves the rows
of the shuffle to Python, and returns as many rows as there are full windows among them.

All but `trailmark` and `pass-through` keep their state in RocksDB with changelog checkpointing.

"results" counts the rows that the query gave to its sink, over all runs of it. What a batch gave is
kept in `batches.jsonl` under the place, so that a query that is started again goes on counting.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

PARTITIONS = 2
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_STATE = "orders int, total long"

_ONE_AT_A_TIME = threading.Lock()

Prices = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Job:
    """What the caller asks for. ``cache`` is where Trailmark keeps state between batches."""

    variant: str
    orders: str
    keys: str
    window: int
    place: str
    batches: int
    pace_s: float
    resume: bool
    cache: str | None = None

    @property
    def key_type(self) -> str:
        return "int" if self.keys == "int" else "string"

    @property
    def input_schema(self) -> str:
        return f"item_id {self.key_type}, item_price int"

    @property
    def output_schema(self) -> str:
        return f"item_id {self.key_type}, avg_price double"


def say(event: str, **values: Any) -> None:
    line = json.dumps({"event": event, "at": time.time(), **values}) + "\n"
    with _ONE_AT_A_TIME:  # the listener has a thread of its own
        sys.stdout.write(line)
        sys.stdout.flush()


# The queries.


def _trailmark(df: DataFrame, job: Job) -> DataFrame:
    import trailmark as tm

    return tm.aggregate(
        df,
        by="item_id",
        window=tm.count_window(job.window),
        values={"avg_price": tm.avg("item_price")},
        path=Path(job.place) / "log",
        buckets=PARTITIONS,
        recover_within="2 seconds",
        cache_dir=job.cache,
    )


def _pass_through(df: DataFrame, job: Job) -> DataFrame:
    window, is_text = job.window, job.keys == "text"

    def move(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = sum(batch.num_rows for batch in batches) // window
        keys = np.arange(results, dtype=np.int32)
        column = pa.array(np.char.mod("item-%011d", keys)) if is_text else pa.array(keys)
        yield pa.record_batch([column, pa.array(np.zeros(results))], ["item_id", "avg_price"])

    shuffled = df.repartition(PARTITIONS, "item_id")
    moved: DataFrame = shuffled.mapInArrow(move, job.output_schema)
    return moved


def _fold(
    orders: int, total: int, prices: Prices, window: int
) -> tuple[int, int, npt.NDArray[np.float64]]:
    """The open window after these prices, and the averages of those they have filled."""
    missing = window - orders
    if len(prices) < missing:
        return orders + len(prices), total + int(prices.sum()), np.empty(0)
    whole = (len(prices) - missing) // window
    full = prices[missing : missing + whole * window].reshape(whole, window)
    sums = np.concatenate(([total + prices[:missing].sum()], full.sum(axis=1)))
    rest = prices[missing + whole * window :]
    return len(rest), int(rest.sum()), sums / window


def _apply_in_pandas_with_state(df: DataFrame, job: Job) -> DataFrame:
    window = job.window

    def average(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        orders, total = state.get if state.exists else (0, 0)
        for frame in frames:
            orders, total, averages = _fold(orders, total, frame["item_price"].to_numpy(), window)
            if len(averages):
                yield pd.DataFrame({"item_id": key[0], "avg_price": averages})
        state.update((orders, total))

    return df.groupBy("item_id").applyInPandasWithState(
        average, job.output_schema, _STATE, "append", "NoTimeout"
    )


class _Averages(StatefulProcessor):
    """What both processors share: a value per item."""

    def __init__(self, window: int) -> None:
        self.window = window

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("open", _STATE)

    def _open(self) -> tuple[int, int]:
        # A value that is not there is None; asking whether it is there would be one more call.
        return self.state.get() or (0, 0)

    def close(self) -> None:
        pass


class _PandasAverages(_Averages):
    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        orders, total = self._open()
        for frame in rows:
            prices = frame["item_price"].to_numpy()
            orders, total, averages = _fold(orders, total, prices, self.window)
            if len(averages):
                yield pd.DataFrame({"item_id": key[0], "avg_price": averages})
        self.state.update((orders, total))


class _RowAverages(_Averages):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        orders, total = self._open()
        for row in rows:
            orders, total = orders + 1, total + row.item_price
            if orders == self.window:
                yield Row(item_id=key[0], avg_price=total / self.window)
                orders, total = 0, 0
        self.state.update((orders, total))


def _transform_with_state_in_pandas(df: DataFrame, job: Job) -> DataFrame:
    return df.groupBy("item_id").transformWithStateInPandas(
        _PandasAverages(job.window), job.output_schema, "Append", "None"
    )


def _transform_with_state(df: DataFrame, job: Job) -> DataFrame:
    return df.groupBy("item_id").transformWithState(
        _RowAverages(job.window), job.output_schema, "Append", "None"
    )


def _built_in(df: DataFrame, job: Job) -> DataFrame:
    return df.groupBy("item_id").avg("item_price")


_QUERIES: dict[str, Callable[[DataFrame, Job], DataFrame]] = {
    "trailmark": _trailmark,
    "pass-through": _pass_through,
    "apply-in-pandas-with-state": _apply_in_pandas_with_state,
    "transform-with-state": _transform_with_state,
    "transform-with-state-in-pandas": _transform_with_state_in_pandas,
    "built-in": _built_in,
}


# Running them.


class Account(StreamingQueryListener):
    """Rows and results of every batch, over all runs of the query."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._batches: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._is_over = False
        if file.exists():
            for line in file.read_text().splitlines():
                self._note(json.loads(line))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if progress.numInputRows == 0:
            return
        batch = {
            "batch": progress.batchId,
            "batch_rows": progress.numInputRows,
            "batch_results": progress.sink.numOutputRows,
            "batch_s": progress.durationMs["triggerExecution"] / 1000,
        }
        with self._file.open("a") as file:
            file.write(json.dumps(batch) + "\n")
        with self._changed:  # nobody hears of the batch before it has been told
            self._note(batch)
            say("progress", **self.totals, **batch)

    def _note(self, batch: dict[str, Any]) -> None:
        with self._changed:
            # A batch that ran again after a kill counts once.
            self._batches[batch["batch"]] = batch
            self._changed.notify_all()

    @property
    def totals(self) -> dict[str, int]:
        known = self._batches.values()
        return {
            "rows": sum(batch["batch_rows"] for batch in known),
            "results": sum(batch["batch_results"] for batch in known),
        }

    def wait_for(self, batches: int) -> None:
        """Until so many are known, or the query has ended: a thread of Spark's tells of both."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._batches) >= batches or self._is_over)


def start_session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        .config("spark.sql.streaming.stateStore.providerClass", _PROVIDER)
        .config(_CHANGELOG, "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run(job: Job) -> None:
    place = Path(job.place)
    if not job.resume and (place / "checkpoint").exists():
        raise SystemExit(f"There is a query in {place} already; it is not to be resumed.")
    spark = start_session()
    account = Account(place / "batches.jsonl")
    spark.streams.addListener(account)
    reader = spark.readStream.schema(job.input_schema).option("pathGlobFilter", "*.parquet")
    orders = reader.option("maxFilesPerTrigger", 1).parquet(job.orders)
    df = _QUERIES[job.variant](orders, job)
    writer = df.writeStream.format("noop").outputMode(
        "update" if job.variant == "built-in" else "append"
    )
    if job.pace_s:
        writer = writer.trigger(processingTime=f"{round(job.pace_s * 1000)} milliseconds")
    else:
        writer = writer.trigger(availableNow=True)
    say("ready")
    query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
    if job.pace_s:
        # A query that is paced does not end by itself.
        account.wait_for(job.batches)
        query.stop()
    query.awaitTermination()
    account.wait_for(job.batches)
    say("done", **account.totals)
    spark.stop()


if __name__ == "__main__":
    asked = Job(**json.loads(sys.argv[1]))
    if not shutil.which("java") and "JAVA_HOME" not in os.environ:
        raise SystemExit("There is no Java: JAVA_HOME is not set.")
    run(asked)
