"""Replicas on Spark that hold new rows back while they correct: they do so one after the other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from tests.support.spark_runs import wait_until
from trailmark.leases import newest_term, open_lease
from trailmark.log import LocalStorage
from trailmark.log.json_text import load_guarded, read_text
from trailmark.streams.own_writer import OwnWriter
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.decision import Decision
from trailmark.streams.union.decisions import newest_decision

_START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int64())])
_NAMES, _REPLICAS = ("eu", "us"), ("a", "b")


def _at(seconds: float) -> datetime:
    return _START + timedelta(seconds=seconds)


def _go_on(writers: dict[str, OwnWriter], names: tuple[str, ...], seconds: range) -> None:
    for name in names:
        times = pa.array([_at(each) for each in seconds], _SCHEMA.field("at").type)
        rows = pa.table({"at": times, "item": [each % 2 for each in seconds]}, _SCHEMA)
        writers[name].append(rows)
        writers[name].heartbeat(_at(seconds.stop))


def _replica(root: Path, name: str) -> DataFrame:
    rows = tm.union(
        {each: root / each for each in _NAMES},
        time="at",
        path=root / name / "union",
        interval="1 second",
        max_rows_per_trigger=20,
        answer_within="2 seconds",
        on_correction="suspend",
        turns=root / "turns",
        term="5 seconds",
    )
    return tm.aggregate(
        rows,
        by="item",
        window=tm.time_window("at", "10 seconds"),
        values={"n": tm.count()},
        path=root / name / "counts",
        buckets=2,
        numbered=True,
    )


def _start(df: DataFrame, root: Path, name: str) -> StreamingQuery:
    writer = df.writeStream.format("noop").option("checkpointLocation", f"{root}/{name}/check")
    return writer.start()


def _wait_for(root: Path, what: str, is_so: Callable[[Decision], bool]) -> None:
    """Until the newest decision of each of them is as it should be."""
    for name in _REPLICAS:
        storage = LocalStorage(root / name / "union")
        wait_until(f"{what}: {name}", partial(_is_newest, storage, is_so))


def _is_newest(storage: LocalStorage, is_so: Callable[[Decision], bool]) -> bool:
    return is_so(newest_decision(storage))


def _is_through(each: Decision) -> bool:
    return each.phase is Phase.STABLE and each.released_us == _us(80)


def _decisions(root: Path, name: str) -> list[tuple[int, Decision]]:
    """All that were made, with when their batches were planned."""
    storage = LocalStorage(root / name / "union")
    found = []
    for file in sorted((root / name / "union/decisions").glob("*.json")):
        body = load_guarded(read_text(storage, f"decisions/{file.name}"))
        assert body is not None
        found.append((file.stat().st_mtime_ns, Decision.from_json(body["decision"])))
    return found


def test_replicas_correct_one_after_the_other_and_come_to_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    writers = {
        name: tm.stream_writer(
            tmp_path / name, _SCHEMA, name=name, time_column="at", delay="0 seconds"
        )
        for name in _NAMES
    }
    _go_on(writers, _NAMES, range(12))
    queries = [_start(_replica(tmp_path, name), tmp_path, name) for name in _REPLICAS]
    try:
        _wait_for(tmp_path, "they have begun", lambda each: each.number >= 0)
        _go_on(writers, _NAMES[:1], range(12, 80))
        _wait_for(tmp_path, "they have answered without us", lambda each: each.until_us == _us(80))
        _go_on(writers, _NAMES[1:], range(12, 80))
        _wait_for(tmp_path, "they are through", _is_through)
        # The next batch is planned when the last of a turn is over.
        _go_on(writers, _NAMES, range(80, 85))
        _wait_for(tmp_path, "they go on", lambda each: each.released_us == _us(85))
    finally:
        for query in queries:
            query.stop()
    decisions = [each for name in _REPLICAS for _, each in _decisions(tmp_path, name)]
    assert any(each.waits_for_turn for each in decisions), "the other one answered meanwhile"
    assert not _silent_together(tmp_path)
    expected = sorted((_at(begin), item, 10) for begin in range(0, 80, 10) for item in (0, 1))
    assert [_stands(tmp_path, name) for name in _REPLICAS] == [expected] * 2
    wait_until("the lease is given back", lambda: _is_free(tmp_path / "turns"))


def _stands(root: Path, name: str) -> list[tuple[datetime, int, int]]:
    rows = tm.read_table(root / name / "counts", answers="stable").to_pylist()
    return sorted((row["window"]["start"], row["item"], row["n"]) for row in rows)


def _silent_together(root: Path) -> bool:
    """Whether both were correcting at one moment, as their batches were planned."""
    ((begin, end), (other_begin, other_end)) = (_silent(root, name) for name in _REPLICAS)
    return begin < other_end and other_begin < end


def _silent(root: Path, name: str) -> tuple[int, int]:
    found = _decisions(root, name)
    silent = [n for n, (_, each) in enumerate(found) if each.phase is Phase.STABILIZATION]
    return found[silent[0]][0], found[silent[-1]][0]


def _is_free(path: Path) -> bool:
    newest = newest_term(open_lease(path)[1])
    return newest is not None and newest.is_released


def _us(seconds: int) -> int:
    return round(_at(seconds).timestamp() * 1_000_000)
