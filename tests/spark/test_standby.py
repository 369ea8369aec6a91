"""`tm.standby` in one session: what it refuses, how it ends, and what it goes on from."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from tests.support.spark_runs import wait_until
from trailmark.errors import SettingError
from trailmark.leases import Holder, Pass, newest_term, open_lease
from trailmark.leases.fence import VARIABLE
from trailmark.leases.terms import Term, publish_term
from trailmark.spark.rehearsal import rehearse
from trailmark.spark.standby import _passed_on


class _Shop:
    """Orders, and a query that counts them in windows of two."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.starts = 0
        (root / "in").mkdir()

    def order(self, number: int) -> None:
        aside = self.root / f"{number}.json"
        lines = [json.dumps({"item": number, "price": n}) for n in range(2)]
        aside.write_text("\n".join(lines))
        aside.rename(self.root / f"in/{number}.json")

    def build(self, spark: SparkSession, **trigger: Any) -> StreamingQuery:
        self.starts += 1
        rows = spark.readStream.schema("item INT, price INT").option("maxFilesPerTrigger", 1)
        counts = tm.aggregate(
            rows.json(str(self.root / "in")),
            by="item",
            window=tm.count_window(2),
            values={"total": tm.sum("price")},
            path=str(self.root / "logs"),
            buckets=1,
        )
        writer = counts.writeStream.format("parquet").trigger(
            **trigger or {"processingTime": "0 seconds"}
        )
        writer = writer.option("checkpointLocation", str(self.root / "checkpoint"))
        return writer.start(str(self.root / "out"))

    def standby(self, build: Callable[[SparkSession], Any] | None = None, **more: Any) -> str:
        given = {"lease": self.root / "lease", "session": self.spark, **more}
        return tm.standby(self.build if build is None else build, **given)

    def items(self) -> list[int]:
        if not (self.root / "logs/meta.json").exists():
            return []
        return sorted(tm.read_table(self.root / "logs")["item"].to_pylist())

    def is_free(self) -> bool:
        term = newest_term(open_lease(self.root / "lease")[1])
        return term is not None and term.is_released


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> _Shop:
    return _Shop(spark, tmp_path)


def test_queries_that_end_end_it_and_others_can_begin(shop: _Shop) -> None:
    shop.order(0)
    assert shop.standby(lambda spark: [shop.build(spark, availableNow=True)]) == "finished"
    assert shop.items() == [0]
    assert shop.is_free()
    assert VARIABLE not in os.environ
    assert VARIABLE not in shop.spark.sparkContext.environment


def test_a_query_that_fails_raises_and_gives_the_lease_back(shop: _Shop) -> None:
    def build(spark: SparkSession) -> StreamingQuery:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

        def fail(_df: object, _batch: int) -> None:
            raise ValueError("the sink is broken")

        return rows.writeStream.foreachBatch(fail).trigger(availableNow=True).start()

    with pytest.raises(Exception, match="the sink is broken"):
        shop.standby(build)
    assert shop.is_free()


def test_one_write_of_its_predecessor_to_the_checkpoint_is_survived(
    shop: _Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "trailmark")
    shop.order(0)

    def meddle() -> None:
        wait_until("a batch", lambda: shop.items() == [0] and _commits(shop) == 1)
        # As a driver does that wakes, after the file came and before its successor saw it.
        noted, planned = (shop.root / "checkpoint" / each for each in ("sources/0", "offsets"))
        entry = (noted / "0").read_text().replace("/0.json", "/1.json")
        (noted / "1").write_text(entry.replace('"batchId":0', '"batchId":1'))
        (planned / "1").write_text(
            (planned / "0").read_text().replace('"logOffset":0', '"logOffset":1')
        )
        shop.order(1)
        wait_until("the batch of both", lambda: shop.items() == [0, 1])
        shop.order(2)
        wait_until("another one", lambda: shop.items() == [0, 1, 2])
        _take_away(shop)

    assert _beside(meddle, shop.standby) == "lost"
    assert shop.starts == 2
    assert sum("wrote once more" in line for line in caplog.messages) == 1


def test_whoever_finds_another_one_in_its_place_stops_and_says_so_once(
    shop: _Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.order(0)

    def replace() -> None:
        wait_until("a batch", lambda: shop.items() == [0])
        _take_away(shop)
        shop.order(1)

    assert _beside(replace, shop.standby) == "lost"
    assert not shop.spark.streams.active
    told = [line for line in caplog.messages if "lost" in line.lower()]
    assert len(told) == 1, told
    assert "another (elsewhere:1) has it and goes on" in told[0]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"build": None}, "build must be a function"),
        ({"rehearse": 7}, "rehearse must be a function"),
        ({"term": "10 ms"}, "too short"),
        ({"patience": "long"}, "not a duration"),
        ({"lease": ""}, "lease must be a directory"),
        ({"name": ""}, "cannot be the name"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    shop: _Shop, given: dict[str, Any], says: str
) -> None:
    build = given.pop("build", shop.build)
    with pytest.raises(SettingError, match=says):
        tm.standby(build, **{"lease": shop.root / "lease", "session": shop.spark, **given})
    assert shop.starts == 0


def test_a_build_that_returns_nothing_is_refused_and_nothing_goes_on(shop: _Shop) -> None:
    def build(spark: SparkSession) -> None:
        shop.build(spark)

    with pytest.raises(SettingError, match="build returned nothing, not the queries"):
        shop.standby(build)
    assert not shop.spark.streams.active
    assert shop.is_free()


def test_a_build_that_fails_half_way_leaves_nothing_running(shop: _Shop) -> None:
    def build(spark: SparkSession) -> None:
        shop.build(spark)
        raise ValueError("half of it")

    with pytest.raises(ValueError, match="half of it"):
        shop.standby(build)
    assert not shop.spark.streams.active
    assert shop.is_free()


def test_a_process_takes_part_in_one_lease_at_a_time(
    shop: _Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, '["lease", "token", 1000000, ""]')
    with pytest.raises(SettingError, match="takes part in a lease already"):
        shop.standby()


def test_a_lease_among_the_logs_is_refused(shop: _Shop) -> None:
    shop.order(0)
    shop.build(shop.spark, availableNow=True).awaitTermination()
    with pytest.raises(SettingError, match="inside of the logs at"):
        shop.standby(lease=shop.root / "logs/lease")


def test_a_rehearsal_runs_again_and_again_and_touches_only_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    for _ in range(2):
        rehearse(spark, tmp_path)
    left = {"cache", "checkpoint", "logs", "out", "stream"}
    assert {each.name for each in tmp_path.iterdir()} == left
    assert len(tm.read_table(tmp_path / "logs")) > 0, "a window has closed"
    assert not spark.streams.active


def test_sources_and_sinks_that_were_known_before_are_fenced_as_well(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows, path = spark.range(3), str(tmp_path / "stream")
    rows.write.format("trailmark").mode("append").save(path)
    lease = open_lease(tmp_path / "lease")[0]
    refused = pytest.raises(
        Exception, match=r"LeaseLost: The lease of this application is not held"
    )
    with _passed_on(spark, Pass(lease, "nobody", 1_000_000)), refused:
        rows.write.format("trailmark").mode("append").save(path)
    rows.write.format("trailmark").mode("append").save(path)
    assert tm.read_table(path).num_rows == 6


def _commits(shop: _Shop) -> int:
    return sum(1 for each in (shop.root / "checkpoint/commits").glob("[0-9]*"))


def _take_away(shop: _Shop) -> None:
    """Another process has the lease from now on."""
    storage = open_lease(shop.root / "lease")[1]
    taken = False
    while not taken:
        term = newest_term(storage)
        assert term is not None
        other = Holder("f" * 32, "another", "elsewhere", 1)
        taken = publish_term(storage, Term(term.number + 1, other, term.turn + 1, term.term_us))


def _beside(meddle: Callable[[], None], run: Callable[[], str]) -> str:
    failures: list[BaseException] = []

    def act() -> None:
        try:
            meddle()
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            failures.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    ended = run()
    thread.join()
    if failures:
        raise failures[0]
    return ended
