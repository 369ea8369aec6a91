"""The examples of docs/tables.md: a table of Delta Lake that has every result once, and one that
follows corrections."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import trailmark as tm
from tests.support.spark_runs import wait_until
from trailmark.streams.own_writer import OwnWriter

_PAGE = Path(__file__).parents[2] / "docs" / "tables.md"
_START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int32())])
_NAMES = ("eu", "asia")
_ITEMS, _WINDOW_S = 3, 10

deltalake = pytest.importorskip("deltalake", reason="tables are written by deltalake")

#: Item, begin of the window in seconds, whether it is tentative, and how many.
Counts = Counter[tuple[int, float, bool, int]]


class _Regions:
    """Two streams that are counted in windows, and the table that follows the counts."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root = spark, root
        self._writers = {name: self._writer(name) for name in _NAMES}
        self._rows: Counter[tuple[int, int]] = Counter()
        union = tm.union(
            {name: root / name for name in _NAMES},
            time="at",
            path=root / "union",
            interval="1 second",
            answer_within="1 second",
        )
        counts = tm.aggregate(
            union,
            by="item",
            window=tm.time_window("at", f"{_WINDOW_S} seconds"),
            values={"n": tm.count()},
            path=root / "logs/counts",
            buckets=2,
        )
        code = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), flags=re.DOTALL)[-1]
        full = re.sub(r'"((?:tables|logs|ckpt)/\w+)"', rf'"{root}/\1"', code)
        self._code, self._starting = full.split("feed = ", 1)
        self.names: dict[str, Any] = {"spark": spark, "pa": pa}
        for name in ("CommitProperties", "DeltaTable", "Transaction"):
            self.names[name] = getattr(deltalake, name)
        exec(compile(self._code, str(_PAGE), "exec"), self.names)
        writer = counts.writeStream.format("noop")
        self._query = writer.option("checkpointLocation", str(root / "ckpt/counts")).start()

    def _writer(self, name: str) -> OwnWriter:
        given: dict[str, Any] = {"name": name, "time_column": "at", "delay": "1 second"}
        return tm.stream_writer(self._root / name, _SCHEMA, **given)

    def go_on(self, name: str, seconds: range) -> None:
        """A row of every item a second."""
        rows = [(second, item) for second in seconds for item in range(_ITEMS)]
        self._rows.update((item, second // _WINDOW_S * _WINDOW_S) for second, item in rows)
        times = [_START + timedelta(seconds=second) for second, _ in rows]
        columns = [pa.array(times, _SCHEMA.field("at").type), [item for _, item in rows]]
        self._writers[name].append(pa.table(columns, schema=_SCHEMA))
        self._writers[name].heartbeat(_START + timedelta(seconds=seconds.stop + 1))

    def follow(self) -> None:
        """Brings the table up to date, as the page does."""
        exec(compile(f"feed = {self._starting}", str(_PAGE), "exec"), self.names)
        self.names["query"].processAllAvailable()
        self.names["query"].stop()

    def changes(self) -> DataFrame:
        feed = self._spark.read.format("trailmark").option("readChangeFeed", "true")
        return feed.load(str(self._root / "logs/counts"))

    def table(self) -> Counts:
        rows = self.opened().to_pyarrow_table().to_pylist()
        return Counter(
            (row["item"], _seconds(row["start"]), row["tentative"], row["n"]) for row in rows
        )

    def opened(self) -> Any:
        return deltalake.DeltaTable(str(self._root / "tables/counts"))

    def current(self) -> Counts:
        """What the operator's log says."""
        if not (self._root / "logs/counts/meta.json").exists():
            return Counter()
        rows = tm.read_table(self._root / "logs/counts", answers="current").to_pylist()
        return Counter(
            (row["item"], _seconds(row["window"]["start"]), row["tentative"], row["n"])
            for row in rows
        )

    def wait_for(self, end: int, stable_until: int) -> None:
        """Until the windows before an end have come out, and no other; what is not stable of them
        is tentative."""

        wanted = {
            (item, float(start), start >= stable_until)
            for item in range(_ITEMS)
            for start in range(0, end, _WINDOW_S)
        }
        wait_until(
            f"windows before {end}",
            lambda: {(item, start, mark) for item, start, mark, _ in self.current()} == wanted,
        )

    def expected(self, until: int) -> Counts:
        """One row at a time, of what was written."""
        return Counter(
            (item, float(start), False, n)
            for (item, start), n in self._rows.items()
            if start < until
        )

    def close(self) -> None:
        self._query.stop()


def _seconds(at: datetime) -> float:
    return (at - _START).total_seconds()


@pytest.fixture
def regions(spark: SparkSession, tmp_path: Path) -> Iterator[_Regions]:
    made = _Regions(spark, tmp_path)
    yield made
    made.close()


def test_a_table_follows_corrections_and_a_batch_that_runs_twice_changes_nothing(
    regions: _Regions,
) -> None:
    for name in _NAMES:
        regions.go_on(name, range(25))
    regions.wait_for(20, 20)
    regions.follow()
    assert regions.table() == regions.current() == regions.expected(20)
    regions.go_on("eu", range(25, 45))
    regions.wait_for(40, 20)
    _follow_twice(regions)
    assert regions.table() == regions.current()
    assert {mark for _, _, mark, _ in regions.table()} == {False, True}
    before = regions.opened()
    regions.go_on("asia", range(25, 45))
    regions.wait_for(40, 40)
    _follow_twice(regions)
    assert regions.table() == regions.current() == regions.expected(40)
    _check_zombie(regions, before)


def _follow_twice(regions: _Regions) -> None:
    """The driver dies between the commit of the table and Spark's, and the query runs again."""
    apply = regions.names["keep_current"]

    def apply_and_die(changes: DataFrame, number: int) -> None:
        apply(changes, number)
        raise RuntimeError("behind the commit of the table")

    regions.names["keep_current"] = apply_and_die
    with pytest.raises(Exception, match="behind the commit of the table"):
        regions.follow()
    regions.names["keep_current"] = apply
    found = regions.table()
    regions.follow()
    assert regions.table() == found


def _check_zombie(regions: _Regions, before: Any) -> None:
    """Who has looked at the table, sleeps, and commits when another one has gone on, fails."""
    found = regions.table()
    regions.names["DeltaTable"] = lambda _: before
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        regions.names["keep_current"](regions.changes(), 0)
    assert regions.table() == found
