"""Operators, streams and the listener on a server of Spark Connect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.connect import ConnectServer, run_client, why_not
from tests.support.spark_orders import (
    Orders,
    assert_sink_is_right,
    make_query,
    newest_of,
    recoveries,
)
from tests.support.spark_query import run
from tests.support.spark_runs import Application, hold_a_worker, release
from tests.support.spark_versions import needs_spark

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


#: Before, Spark takes all that is there as one batch where a source is written in Python.
_TAKES_BATCHES = needs_spark("4.2", "an availableNow run of several batches beside ticks")


@pytest.fixture(scope="module")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect") / "server") as server:
        yield server


@_TAKES_BATCHES
@pytest.mark.parametrize("window", ["count", "time"])
def test_operators_give_what_the_oracle_gives_also_after_a_restart(
    tmp_path: Path, connect_server: ConnectServer, window: str
) -> None:
    orders = Orders(tmp_path / "in", seed=11)
    query = make_query(tmp_path, orders, window)
    for turn in ("first", "second"):
        orders.feed(3)
        with Application(tmp_path / turn, [query], master=connect_server.url) as client:
            client.finish()
        assert client.batches(window)[-1] == newest_of(query, "commits"), "it was listened to"
    assert_sink_is_right(query, orders)


@_TAKES_BATCHES
def test_operators_of_all_kinds_in_a_row_give_what_plain_python_gives(
    tmp_path: Path, connect_server: ConnectServer
) -> None:
    orders = Orders(tmp_path / "in", seed=15)
    orders.feed(9)
    query = make_query(tmp_path, orders, "chain")
    with Application(tmp_path / "client", [query], master=connect_server.url) as client:
        client.finish()
    assert_sink_is_right(query, orders)


@_TAKES_BATCHES
def test_a_server_killed_in_the_middle_of_a_batch_leaves_no_trace_in_the_results(
    tmp_path: Path,
) -> None:
    orders = Orders(tmp_path / "in", seed=12)
    orders.feed(8)
    query = make_query(tmp_path, orders, "time")
    with (
        ConnectServer(tmp_path / "killed") as killed,
        Application(tmp_path / "first", [query], master=killed.url) as client,
    ):
        client.wait_for_batch(query, 1)
        hold_a_worker(client, query)
        planned = newest_of(query, "offsets")
        assert planned > newest_of(query, "commits")
        killed.kill()
    release(query)
    with (
        ConnectServer(tmp_path / "next") as server,
        Application(tmp_path / "second", [query], master=server.url) as client,
    ):
        client.finish()
    assert_sink_is_right(query, orders)
    assert planned in [recovery.batch for recovery in recoveries(query)]


@_TAKES_BATCHES
@pytest.mark.parametrize("window", ["count", "time"])
def test_what_was_begun_there_goes_on_in_a_session_with_a_driver_of_its_own(
    tmp_path: Path, connect_server: ConnectServer, spark: SparkSession, window: str
) -> None:
    orders = Orders(tmp_path / "in", seed=13)
    orders.feed(3)
    query = make_query(tmp_path, orders, window)
    with Application(tmp_path / "first", [query], master=connect_server.url) as client:
        client.finish()
    orders.feed(3)
    assert run(spark, [query])
    assert_sink_is_right(query, orders)


_STREAMS = """
import trailmark as tm

def add(first):
    rows = spark.range(first, first + 4)
    rows.write.format("trailmark").mode("append").save("PLACE/stream")

for first in (0, 4):
    add(first)
    rows = spark.readStream.format("trailmark").option("reader", "me").load("PLACE/stream")
    writer = rows.writeStream.format("trailmark").option("checkpointLocation", "PLACE/checkpoint")
    writer.trigger(availableNow=True).start("PLACE/moved").awaitTermination()
print(spark.read.format("trailmark").load("PLACE/moved").count())
print(sorted(tm.read_table("PLACE/moved")["id"].to_pylist()))
"""


def test_streams_are_written_read_and_followed(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    said = run_client(connect_server.url, _STREAMS.replace("PLACE", str(tmp_path)), tmp_path)
    assert said == ["8", "[0, 1, 2, 3, 4, 5, 6, 7]"]


_OTHERS = """
import pyarrow as pa
import trailmark as tm
from pyspark.sql import functions as F

class Count:
    state = {"n": pa.int64()}

    def process(self, keys, rows, state):
        state["n"] += keys.counts()
        return keys.table(n=state["n"])

tm.register(spark)
rows = spark.range(12).select((F.col("id") % 3).alias("item"), F.col("id").alias("v"))
sums = tm.aggregate(
    rows, by="item", window=tm.count_window(2), values={"v": tm.sum("v")}, path="PLACE/unused"
)
print(sorted(map(tuple, sums.collect())))
timed = rows.withColumn("at", F.timestamp_seconds("v"))
timed.write.format("trailmark").mode("append").option("timeColumn", "at").save("PLACE/stream")

def run(df, name, **options):
    writer = df.writeStream.format("trailmark").options(**options)
    writer = writer.option("checkpointLocation", f"PLACE/checkpoint-{name}")
    writer.trigger(availableNow=True).start(f"PLACE/{name}").awaitTermination()
    return tm.read_table(f"PLACE/{name}")

stream = spark.readStream.format("trailmark").load("PLACE/stream")
counted = tm.apply(stream, Count, by="item", schema="item long, n long", checkpoint=None)
print(sorted(run(counted, "counted")["n"].to_pylist()))
paired = tm.barrier([stream.select("item", "v")] * 2, by="item", path="PLACE/logs", order_by="v")
print(run(paired, "paired").num_rows)
print(run(tm.with_heartbeat(stream), "beats", timeColumn="at", delay="1 second").num_rows)
"""


def test_everything_else_runs_as_it_does_with_a_driver(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    said = run_client(connect_server.url, _OTHERS.replace("PLACE", str(tmp_path)), tmp_path)
    sums = [(0, 3), (0, 15), (1, 5), (1, 17), (2, 7), (2, 19)]
    assert said == [str(sums), "[4, 4, 4]", "12", "12"]


_REFUSED = """
import trailmark as tm
from pyspark.sql import functions as F

rows = spark.readStream.format("rate").load()
answered = spark.readStream.format("trailmark").option("answers", "all").option("reader", "me")
answered = answered.schema("value long, tentative boolean").load("PLACE/logs").select("value")

def counted(df, path="PLACE/counts", values={"n": tm.count()}):
    return tm.aggregate(
        df, by="value", window=tm.count_window(2), values=values, path=path, buckets=2
    )

for call in (
    lambda: tm.explain(counted(rows)),
    lambda: tm.union({"one": "PLACE/one"}, time="timestamp", path="PLACE/union"),
    lambda: tm.standby(lambda spark: None, lease="PLACE/lease"),
    lambda: tm.standby(lambda spark: None, lease="PLACE/lease", session=spark),
    lambda: counted(rows, path="counts"),
    lambda: counted(rows, values={"n": F.sum("value")}),
    lambda: counted(answered),
):
    try:
        call()
    except tm.errors.SettingError as error:
        print(error.line)
"""


def test_what_needs_a_driver_is_refused_by_name(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    said = run_client(connect_server.url, _REFUSED.replace("PLACE", str(tmp_path)), tmp_path)
    expected = (
        "tm.explain is not supported on Spark Connect",
        "tm.union is not supported on Spark Connect",
        "tm.standby is not supported on Spark Connect",
        "tm.standby is not supported on Spark Connect",
        "'counts' is relative",
        "Spark Connect does not tell what a column computes",
        "Rows may be tentative",
    )
    assert len(said) == len(expected), said
    assert all(words in line for words, line in zip(expected, said, strict=True)), said


def test_logs_without_the_source_that_it_needs_are_refused(
    connect_server: ConnectServer, spark: SparkSession, tmp_path: Path
) -> None:
    orders = Orders(tmp_path / "in", seed=14)
    orders.feed(2)
    query = make_query(tmp_path, orders, "count")
    assert run(spark, [query])
    with Application(tmp_path / "client", [query], master=connect_server.url) as client:
        client.wait_until("it is refused", lambda: bool(client.outcomes()))
        (refusal,) = client.outcomes()
    assert "was begun in a session of its own driver" in refusal
