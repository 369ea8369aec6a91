"""A Kafka broker before and behind an operator, by Spark's own source and sink: processes that are
killed, a topic that cannot be reached, offsets that are gone."""

from __future__ import annotations

import json
import random
import re
import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from build_support.kafka import connector_jars
from tests.support.kafka import Broker, Message, Topic, why_there_is_none
from tests.support.kafka_orders import START, Counts, Order, Producing, counted
from tests.support.spark_feed import Query
from tests.support.spark_runs import Application, environment, wait_until
from tests.support.spark_streams import follow
from tests.support.stream_steps import is_interrupted, newest_commit
from trailmark.cli import main
from trailmark.log import LocalStorage
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.decisions import newest_decision

_ROOT = Path(__file__).parents[2]
_JOB = _ROOT / "examples" / "through_kafka.py"
_WINDOW_S = 10
_START_S = round(START.timestamp())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    reason = why_there_is_none()
    if reason:
        pytest.skip(reason)
    running = Broker(tmp_path_factory.mktemp("kafka") / "broker")
    yield running
    running.close()


# A job that is killed, with brokers that are


def test_a_broker_and_a_driver_that_are_killed_leave_every_result_once(
    spark: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    """Once in the log, and at least once in the topic, where the key says which is which."""
    orders, results = Topic(broker, "orders", partitions=3), Topic(broker, "counts")
    reader = Query(tmp_path, "reader")
    with Producing(orders, seed=1) as producer:
        with _job(tmp_path, broker) as job:
            _wait_for_batches(job, tmp_path, 3)
            reader.run(_followed(spark, tmp_path))  # from now on, what it has not read stays
            broker.kill()
            time.sleep(1.5)
            broker.start()
            _wait_for_batches(job, tmp_path, 3)
            job.kill_driver(with_workers=False)
        with _job(tmp_path, broker) as job:
            _wait_for_batches(job, tmp_path, 3)
            producer.end()
            expected = counted(producer.orders[:-1], _WINDOW_S)
            _wait_for_results(job, tmp_path, results, len(expected))
            job.kill_driver(with_workers=True)
    reader.run(_followed(spark, tmp_path))
    found = [
        (row.item, row.start - _START_S, row.n, row.total)
        for row in spark.read.parquet(str(reader.out)).collect()
    ]
    assert len(expected) > 100, "a test without results proves nothing"
    assert Counter(found) == Counter((*window, *result) for window, result in expected.items())
    assert _in_topic(results.read()) == expected


def _job(place: Path, broker: Broker) -> Application:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(place / "local"),
    }
    words = ["--master", "local[2]", "--jars", ",".join(connector_jars())]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    given = environment()
    given["PYSPARK_SUBMIT_ARGS"] = f"{shlex.join(words)} {given['PYSPARK_SUBMIT_ARGS']}"
    return Application.of_script(place, _JOB, {**given, "KAFKA_SERVERS": broker.address})


def _wait_for_batches(job: Application, place: Path, more: int) -> None:
    wanted = newest_commit(_checkpoint(place)) + more
    job.wait_until("batches", lambda: newest_commit(_checkpoint(place)) >= wanted)


def _wait_for_results(job: Application, place: Path, topic: Topic, number: int) -> None:
    """Until the topic has so many different ones, by batches that are committed."""
    looked_at = -1

    def has_all() -> bool:
        nonlocal looked_at
        newest = newest_commit(_checkpoint(place))
        if newest == looked_at or is_interrupted(_checkpoint(place)):
            return False
        looked_at = newest
        return len(_in_topic(topic.read())) == number

    job.wait_until("all windows", has_all)


def _checkpoint(place: Path) -> str:
    return str(place / "ckpt/counts")


def _followed(spark: SparkSession, place: Path) -> DataFrame:
    start = F.unix_timestamp("window.start").alias("start")
    return follow(spark, place / "logs/counts", reader="test").select("item", start, "n", "total")


def _in_topic(messages: list[Message]) -> Counts:
    """The last message of each key; those before it are the same."""
    found: Counts = {}
    for message in messages:
        item, start = map(int, message.key.split())
        value = json.loads(message.value)
        result = value["n"], value["total"]
        assert found.setdefault((item, start - _START_S), result) == result
    return found


# Batches that are repeated, messages that are gone


class _Numbered:
    """Windows of three orders of an item, from a topic into another."""

    def __init__(
        self, spark: SparkSession, place: Path, broker: Broker, *, partitions: int
    ) -> None:
        self._spark, self._place, self._broker = spark, place, broker
        self.orders = Topic(broker, f"{place.name}-orders", partitions)
        self.results = Topic(broker, f"{place.name}-results")
        self._rng = random.Random(place.name)

    def write(self, count: int) -> list[Order]:
        orders = [Order(self._rng.randrange(4), self._rng.randrange(1000), 0) for _ in range(count)]
        self.orders.write(order.message() for order in orders)
        return orders

    def run(self, into: Any = None, **options: str) -> None:
        """All that is there, into the other topic or into a function."""
        rows = self._spark.readStream.format("kafka").option("subscribe", self.orders.name)
        rows = rows.option("kafka.bootstrap.servers", self._broker.address)
        rows = rows.option("startingOffsets", "earliest").options(**options)
        sums = tm.aggregate(
            rows.load().selectExpr(
                "CAST(CAST(key AS STRING) AS INT) AS item",
                "CAST(get_json_object(CAST(value AS STRING), '$.price') AS BIGINT) AS price",
                "offset",
            ),
            by="item",
            window=tm.count_window(3),
            values={"total": tm.sum("price"), "until": tm.max("offset")},
            order_by="offset",
            path=self._place / "logs",
            buckets=2,
        )
        key, value = "concat_ws(' ', item, until) AS key", "CAST(total AS STRING) AS value"
        if into is None:
            writer = sums.selectExpr(key, value).writeStream.format("kafka")
            writer = writer.option("kafka.bootstrap.servers", self._broker.address)
            writer = writer.option("topic", self.results.name)
        else:
            writer = sums.writeStream.foreachBatch(into)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    @property
    def checkpoint(self) -> Path:
        return self._place / "checkpoint"

    def logged(self) -> list[tuple[int, int]]:
        rows = tm.read_table(self._place / "logs").to_pylist()
        return sorted((row["item"], row["total"]) for row in rows)


def _sums(orders: list[Order]) -> list[tuple[int, int]]:
    """Of every three orders of an item, one at a time."""
    found, open_windows = [], defaultdict[int, list[int]](list)
    for order in orders:
        window = open_windows[order.item]
        window.append(order.price)
        if len(window) == 3:
            found.append((order.item, sum(window)))
            window.clear()
    return sorted(found)


def test_a_batch_that_is_repeated_is_in_the_topic_twice_and_its_key_says_so(
    spark: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    """As if the driver had died between the last message and Spark's commit."""
    query = _Numbered(spark, tmp_path, broker, partitions=2)
    orders = query.write(60)
    query.run()
    orders += query.write(60)
    query.run()
    (query.checkpoint / f"commits/{newest_commit(str(query.checkpoint))}").unlink()
    query.run()
    assert query.logged() == _sums(orders), "once each"
    messages = query.results.read()
    named = {message.key: message.value for message in messages}
    assert len(messages) > len(named), "the batch was sent again"
    assert set(messages) == {Message(*each) for each in named.items()}, "the same messages"
    found = [(int(key.split()[0]), int(value)) for key, value in named.items()]
    assert sorted(found) == _sums(orders)


def test_messages_that_are_gone_end_the_query_until_it_is_told_to_go_on_without_them(
    spark: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    query = _Numbered(spark, tmp_path, broker, partitions=1)
    orders = query.write(60)
    query.run()
    orders += query.write(60)
    query.orders.forget_before(75)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        query.run()
    assert query.logged() == _sums(orders[:60]), "nothing was taken in"
    query.run(failOnDataLoss="false")
    query.run()
    assert query.logged() == _sums(orders[:60] + orders[75:])


def test_a_batch_whose_messages_are_gone_before_it_is_repeated_is_cut_off(
    spark: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    """Trailmark has it already, and does not take another version of it."""

    def take_and_die(rows: DataFrame, _: int) -> None:
        rows.collect()
        raise RuntimeError("before Spark's commit")

    query = _Numbered(spark, tmp_path, broker, partitions=1)
    orders = query.write(60)
    query.run()
    orders += query.write(60)
    with pytest.raises(StreamingQueryException, match="before Spark's commit"):
        query.run(take_and_die)
    query.orders.forget_before(75)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        query.run()
    with pytest.raises(StreamingQueryException, match="in the log with other rows") as refused:
        query.run(failOnDataLoss="false")
    assert "trailmark truncate" in str(refused.value)
    before = newest_commit(str(query.checkpoint))
    assert main(["truncate", str(tmp_path / "logs"), "--to-batch", str(before), "--yes"]) == 0
    query.run(failOnDataLoss="false")
    query.run()
    assert query.logged() == _sums(orders[:60] + orders[75:])


# A topic that cannot be reached


_PAGE = _ROOT / "docs" / "kafka.md"
_REGIONS = ("eu", "us", "asia")
_SHORT_S = 2


def test_a_topic_that_stalls_is_answered_without_and_replaced_when_it_is_back(
    spark: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    """The examples of the page, over topics in which something happens all the time."""
    _, ingesting, merging = _examples(tmp_path)
    regions = _Regions(broker)
    union, counts = LocalStorage(tmp_path / "union/orders"), tmp_path / "logs/by-region"
    names: dict[str, Any] = {"spark": spark, "tm": tm, "F": F, **regions.servers}
    names["columns"] = "item int, price int, ordered_at timestamp"
    exec(compile(ingesting, str(_PAGE), "exec"), names)
    queries = names["ingesting"]
    try:
        streams = [tmp_path / "streams" / region / "batches" for region in _REGIONS]
        regions.send_until("three streams", lambda: all(map(Path.exists, streams)))
        exec(compile(merging, str(_PAGE), "exec"), names)
        queries.append(names["query"])
        regions.send_until("windows of all", lambda: len(regions.counted_in(counts)) > 2)
        broker.line.hold()
        regions.send_until(
            "answers without asia", lambda: _misses_asia(union) and _has_tentative(counts)
        )
        broker.line.go_on()
        regions.send_until("asia is back", lambda: newest_decision(union).phase is Phase.STABLE)
        expected = counted(regions.sent, _SHORT_S)
        wait_until("all windows", lambda: len(regions.counted_in(counts)) == len(expected))
    finally:
        broker.line.go_on()
        for query in queries:
            query.stop()
    assert regions.counted_in(counts) == expected
    assert newest_decision(union).late_rows == 0
    assert not _has_tentative(counts, answers="current")


def _examples(root: Path) -> list[str]:
    """Of a session's directory nothing is known, so paths are made full ones."""
    code = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), flags=re.DOTALL)
    return [re.sub(r'"((?:streams|union|logs|ckpt)/[\w{}-]+)"', rf'"{root}/\1"', c) for c in code]


def _misses_asia(union: LocalStorage) -> bool:
    ahead = newest_decision(union).ahead
    return ahead is not None and "asia" in ahead.missing


def _has_tentative(path: Path, answers: str = "all") -> bool:
    if not (path / "meta.json").exists():
        return False
    return any(tm.read_table(path, answers=answers)["tentative"].to_pylist())


class _Regions:
    """A topic for each region, and one order after another in all of them, as of now."""

    def __init__(self, broker: Broker) -> None:
        self._topics = [Topic(broker, f"orders-{region}") for region in _REGIONS]
        #: Asia's is the same broker, behind a line that can be held up.
        addresses = (broker.address, broker.address, broker.line.address)
        self.servers = dict(zip(map(str.upper, _REGIONS), addresses, strict=True))
        self._began_s = time.time() // _SHORT_S * _SHORT_S
        self._began = datetime.fromtimestamp(self._began_s, timezone.utc)
        self.sent: list[Order] = []
        self._found: Counts = {}

    def send_until(self, what: str, is_so: Callable[[], bool]) -> None:
        def send() -> bool:
            for topic in self._topics:
                number = len(self.sent)
                order = Order(number % 2, number, round(time.time() - self._began_s, 3))
                topic.write([order.message(self._began)])
                self.sent.append(order)
            time.sleep(0.05)
            return is_so()

        wait_until(what, send)

    def counted_in(self, path: Path) -> Counts:
        """What stands, each window once; also what the log does not keep any more."""
        if not (path / "meta.json").exists():
            return {}
        found: Counts = {}
        for row in tm.read_table(path).to_pylist():
            window = row["item"], round((row["window"]["start"] - self._began).total_seconds())
            assert window not in found, f"window {window} came twice"
            found[window] = row["n"], row["total"]
            assert self._found.setdefault(window, found[window]) == found[window]
        return dict(self._found)
