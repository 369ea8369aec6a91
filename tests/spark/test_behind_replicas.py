"""A union behind replicas: a query that follows them writes a stream, which the union merges with
others. It is killed, and has to go on with the other replica."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import trailmark as tm
from tests.support.replica_streams import Streams, Windows, at
from tests.support.spark_query import Query
from tests.support.spark_runs import Application, wait_until
from tests.support.spark_union import NAMES, REPLICA_WINDOW_S
from trailmark.log import LocalStorage
from trailmark.streams.union.decisions import newest_decision

_LONG_S = 3 * REPLICA_WINDOW_S
_RETURNED = pa.schema(
    [("time", pa.timestamp("us", "UTC")), ("item", pa.int32()), ("n", pa.int64())]
)


def _replica(streams: Streams, root: Path, name: str) -> None:
    """Runs one over all that is there."""
    rows = tm.union(
        {each: streams.root / each for each in NAMES},
        time="time",
        path=root / name / "union",
        interval="500 ms",
        reader=name,
    )
    counts = tm.aggregate(
        rows,
        by="item",
        window=tm.time_window("time", f"{REPLICA_WINDOW_S} seconds"),
        values={"n": tm.count(), "total": tm.sum("price")},
        path=root / name / "counts",
        buckets=2,
        numbered=True,
    )
    _run(counts, root / name / "check")


def _run(df: DataFrame, checkpoint: Path) -> None:
    writer = df.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def _totals(root: Path) -> DataFrame:
    """What was sold, less what came back."""
    both = tm.union(
        {"sold": root / "sold", "returned": root / "returned"},
        time="time",
        path=root / "totals-union",
    )
    return tm.aggregate(
        both,
        by="item",
        window=tm.time_window("time", f"{_LONG_S} seconds"),
        values={"n": tm.sum("n")},
        path=root / "totals",
        buckets=2,
    )


def _return_some(root: Path, seconds: int) -> list[tuple[int, int, int]]:
    """One of an item in every second: time, item and number."""
    rows = [(second, second % 5, -1) for second in range(seconds)]
    table = pa.Table.from_pylist(
        [{"time": at(time), "item": item, "n": n} for time, item, n in rows], schema=_RETURNED
    )
    writer = tm.stream_writer(
        root / "returned", _RETURNED, name="desk", time_column="time", delay="0 seconds"
    )
    writer.append(table)
    writer.heartbeat(at(seconds + _LONG_S))
    return rows


def _expected(sold: Windows, returned: list[tuple[int, int, int]], end: int) -> Counter[Any]:
    """By plain counting: item, begin and sum of all windows that have ended."""
    sums: Counter[tuple[int, int]] = Counter()
    rows = [(begin + REPLICA_WINDOW_S, item, n) for item, begin, n, _ in sold] + returned
    for time, item, n in rows:
        if time < end // _LONG_S * _LONG_S:
            sums[item, time // _LONG_S * _LONG_S] += n
    return Counter((*key, n) for key, n in sums.items())


def test_what_replicas_give_is_merged_with_other_streams_exactly(
    spark: SparkSession, tmp_path: Path
) -> None:
    streams, sold = Streams(tmp_path / "in"), tmp_path / "sold"
    paths = [tmp_path / name / "counts" for name in ("a", "b")]
    check = tmp_path / "sold-check"
    inputs = ",".join(map(str, paths))
    query = Query("sold", inputs, "", str(check), str(sold), "", "", "followed")

    def following() -> Application:
        return Application(tmp_path / "app", [query], master="local[1]")

    def has_all() -> bool:
        there = (sold / "meta.json").exists()
        return there and tm.read_table(sold).num_rows == streams.windows().total()

    streams.go_on(10)
    _replica(streams, tmp_path, "a")
    with following() as application:
        application.wait_until("the first windows are there", has_all)
        # Only the other one has what comes next, and it is killed in the batch with that.
        streams.go_on(8)
        planned = len([*check.glob("offsets/[0-9]*")])
        _replica(streams, tmp_path, "b")
        wait_until("it begins", lambda: len([*check.glob("offsets/[0-9]*")]) > planned)
        application.kill_driver(with_workers=True)
    paths[0].rename(tmp_path / "gone")
    with following() as application:
        application.wait_until("it has gone on with the other one", has_all)
        streams.go_on(6)
        _replica(streams, tmp_path, "b")
        application.wait_until("all is there", has_all)
    assert Counter(tm.read_table(sold)["n"].to_pylist()) == Counter(
        n for _, _, n, _ in streams.windows()
    )
    returned = _return_some(tmp_path, streams.seconds)
    totals = _totals(tmp_path)
    _run(totals, tmp_path / "totals-check")
    assert newest_decision(LocalStorage(tmp_path / "totals-union")).late_rows == 0
    found = tm.read_table(tmp_path / "totals").to_pylist()
    assert Counter(
        (row["item"], round((row["window"]["start"] - at(0)).total_seconds()), row["n"])
        for row in found
    ) == _expected(streams.windows(), returned, streams.seconds)
