"""The scripts of docs/high-availability.md run as they stand, until they are told to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import threading
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_runs import wait_until
from trailmark.leases import is_lease, newest_term, open_lease
from trailmark.log import LocalStorage

_PAGE = Path(__file__).parents[2] / "docs" / "high-availability.md"
_TIME = pa.timestamp("us", "UTC")


def _orders(root: Path) -> None:
    directory = root / "shop/orders"
    directory.mkdir(parents=True)
    lines = [json.dumps({"item": n % 2, "price": float(n)}) for n in range(200)]
    (directory / "0.json").write_text("\n".join(lines))


def _codes(tmp_path: Path) -> list[str]:
    """The examples, with what they read and write in a directory of the test."""
    found = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), flags=re.DOTALL)
    return [code.replace("shop/", f"{tmp_path}/shop/") for code in found]


def test_the_script_answers_hands_over_and_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path
) -> None:
    code, *_ = _codes(tmp_path)
    _orders(tmp_path)

    def is_answered() -> bool:
        logs = tmp_path / "shop/averages"
        return (logs / "meta.json").exists() and len(tm.read_table(logs)) == 2

    def tell() -> None:
        try:
            wait_until("both items have a mean", is_answered)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    names: dict[str, Any] = {}
    before = signal.getsignal(signal.SIGTERM)
    telling = threading.Thread(target=tell)
    telling.start()
    exec(compile(code, str(_PAGE), "exec"), names)
    telling.join()
    assert is_answered()
    assert names["ended"] == "stopped"
    assert signal.getsignal(signal.SIGTERM) == before
    assert not spark.streams.active
    term = newest_term(open_lease(tmp_path / "shop/lease")[1])
    assert term is not None
    assert term.is_released


def _streams(root: Path) -> None:
    schema = pa.schema([("at", _TIME), ("item", pa.int32())])
    for name in ("eu", "us"):
        writer = tm.stream_writer(
            root / "shop" / name, schema, name=name, time_column="at", delay="0 seconds"
        )
        times = pa.array([n * 1_000_000 for n in range(100)]).cast(_TIME)
        items = pa.array([n % 3 for n in range(100)], pa.int32())
        writer.append(pa.table([times, items], schema=schema))
        writer.heartbeat(datetime.fromtimestamp(100, timezone.utc))


def _run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, str(_PAGE), "exec"), names)
    return names


def test_replicas_are_followed_as_the_page_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, replica, reader, *_ = _codes(tmp_path)
    _streams(tmp_path)

    def run(code: str, name: str) -> None:
        monkeypatch.setattr("sys.argv", ["replica.py", name])
        _run(code)["query"].awaitTermination()

    run(replica, "a")
    run(reader, "")
    shutil.rmtree(tmp_path / "shop/a/counts")
    run(replica, "b")
    run(reader, "")
    found = spark.read.parquet(f"{tmp_path}/shop/results")
    assert found.count() == 10 * 3
    assert found.agg({"n": "sum"}).collect()[0][0] == 200


def test_a_union_is_behind_replicas_as_the_page_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, replica, _, _, follower, behind, _ = _codes(tmp_path)
    _streams(tmp_path)
    monkeypatch.setattr("sys.argv", ["replica.py", "b"])
    for code in (replica, follower):
        _run(code)["query"].awaitTermination()
    schema = pa.schema([("at", _TIME), ("item", pa.int32()), ("n", pa.int64())])
    desk = tm.stream_writer(
        tmp_path / "shop/returned", schema, name="desk", time_column="at", delay="0 seconds"
    )
    at = pa.array([30_000_000]).cast(_TIME)
    desk.append(pa.table([at, pa.array([0], pa.int32()), pa.array([-2])], schema=schema))
    desk.heartbeat(datetime.fromtimestamp(200, timezone.utc))
    left = _run(behind)["left"].writeStream.format("noop").trigger(availableNow=True)
    left.option("checkpointLocation", f"{tmp_path}/left").start().awaitTermination()
    found = {
        row["item"]: row["n"] for row in tm.read_table(tmp_path / "shop/left/counts").to_pylist()
    }
    # Of both streams, and without the window that ends with the minute.
    assert found == {item: 2 * len(range(item, 50, 3)) - 2 * (item == 0) for item in range(3)}


def test_replicas_take_turns_as_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    *_, turns = _codes(tmp_path)
    _streams(tmp_path)
    assert "tentative" in _run(turns)["orders"].columns
    assert is_lease(LocalStorage(tmp_path / "shop/turns.lease"))


def test_a_table_is_kept_by_the_feed_of_replicas_as_the_page_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, _, _, keeping, *_ = _codes(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(keeping, str(_PAGE), "exec"), names)
    (tmp_path / "shop").mkdir()
    once = "".join(re.findall(r"# (?:Once: |      )(CREATE .*)\n", keeping))
    columns = "item int, n long, tentative boolean, _change_type string, _commit_version long"
    batches = [
        [(1, 10, False, "insert", 0), (2, 5, True, "insert", 0)],
        [(2, 6, True, "insert", 1)],
        [(2, 11, False, "insert", 2), (None, None, True, "undo", 1), (3, 1, True, "insert", 2)],
        [(None, None, True, "undo", 3)],
    ]
    expected = [
        {(1, 10, 0), (2, 5, 1)},
        {(1, 10, 0), (2, 5, 1), (2, 6, 1)},
        {(1, 10, 0), (2, 6, 1), (2, 11, 0), (3, 1, 1)},
        {(1, 10, 0), (2, 11, 0)},
    ]
    with closing(sqlite3.connect(tmp_path / "shop/counts.db")) as database:
        database.executescript(once)
        for number, (rows, wanted) in enumerate(zip(batches, expected, strict=True)):
            for _ in range(2):  # Spark may run a batch again
                names["keep_current"](spark.createDataFrame(rows, columns), number)
                found = database.execute("SELECT item, n, tentative FROM counts").fetchall()
                assert sorted(found) == sorted(wanted)
