"""`tm.barrier` on Spark: the n-th tuples of all inputs come out together, whatever happens."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import trailmark as tm
from tests.support.spark_feed import Feed, Query, rows_of

_NAMES = ("pressed", "heated", "cooled")
_BATCHES = 5


def _schema(name: str) -> str:
    return f"line int, at long, {name} string"


class Steps:
    """Three streams of steps, of which some bring more than others."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root = root
        self.rng = random.Random(1)
        self.feeds = {name: Feed(spark, root / name, _schema(name)) for name in _NAMES}
        self.came: list[dict[str, list[tuple[int | None, int, str]]]] = []

    def add(self, batches: range) -> None:
        for batch in batches:
            came: dict[str, list[tuple[int | None, int, str]]] = {}
            for name, feed in self.feeds.items():
                count = 0 if batch == 1 and name == "cooled" else self.rng.randrange(5, 30)
                ats = self.rng.sample(range(1000), count)
                rows = [
                    (self.rng.choice((1, 2, 3, None)), 1000 * batch + at, f"{name} {batch} {at}")
                    for at in ats
                ]
                columns = [list(each) for each in zip(*rows, strict=True)] or [[], [], []]
                kinds = (pa.int32(), pa.int64(), pa.string())
                arrays = [pa.array(v, k) for v, k in zip(columns, kinds, strict=True)]
                feed.add(pa.table(arrays, names=["line", "at", name]))
                came[name] = sorted(rows, key=lambda row: row[1])
            self.came.append(came)

    def barrier(self, **given: Any) -> DataFrame:
        arguments: dict[str, Any] = {
            "by": "line",
            "order_by": "at",
            "path": self.root / "log",
            "cache_dir": self.root / "cache",
        }
        inputs = given.pop("inputs", {name: feed.stream() for name, feed in self.feeds.items()})
        return tm.barrier(inputs, **(arguments | given))

    def expected(self, *, by_line: bool) -> Counter[tuple[Any, ...]]:
        queues: dict[str, dict[Any, list[Any]]] = {name: {} for name in _NAMES}
        for came in self.came:
            for name, rows in came.items():
                for line, at, text in rows:
                    key = line if by_line else "all"
                    queues[name].setdefault(key, []).append((line, at, text))
        found: Counter[tuple[Any, ...]] = Counter()
        for key in queues["pressed"]:
            mine = [queues[name].get(key, []) for name in _NAMES]
            for together in zip(*mine, strict=False):
                if by_line:
                    found[(key, *(v for _, at, text in together for v in (at, text)))] += 1
                else:
                    found[tuple(v for each in together for v in each)] += 1
        return found


@pytest.mark.parametrize("by", ["line", None])
def test_the_nth_tuples_come_out_together_though_caches_are_lost(
    spark: SparkSession, tmp_path: Path, by: str | None
) -> None:
    steps, query = Steps(spark, tmp_path), Query(tmp_path / "ours")
    for batches in (range(2), range(2, _BATCHES)):
        steps.add(batches)
        query.run(steps.barrier(by=by, checkpoint=tm.Periodic(2)))
        shutil.rmtree(tmp_path / "cache")  # as on another host
    expected = steps.expected(by_line=by is not None)
    assert query.rows(spark) == expected
    assert sum(expected.values()) > 30
    keys = ["line"] if by else ["line_pressed", "at_pressed", "pressed", "line_heated"]
    assert steps.barrier(by=by).columns[: len(keys)] == keys
    assert tm.read_table(tmp_path / "log").schema.names == steps.barrier(by=by).columns
    text = str(tm.explanation(steps.barrier(by=by)))
    assert ("barrier by line" in text) == (by is not None)
    at_rest = {
        name: spark.read.schema(_schema(name)).parquet(str(feed.directory))
        for name, feed in steps.feeds.items()
    }
    once = rows_of(steps.barrier(inputs=at_rest, by=by, path=tmp_path / "none"))
    assert once == expected
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_put_together_is_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    steps = Steps(spark, tmp_path)
    one, two, _ = (feed.stream() for feed in steps.feeds.values())
    table = spark.createDataFrame([(1, 2, "x")], _schema("heated"))
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("does not belong together", "loss", {"loss": "bounded"}),
        ("in one bucket; 2 are asked for", "buckets", {"by": None, "buckets": 2}),
        ("from 2 to", "inputs", {"inputs": [one]}),
        ("by name, or a list", "inputs", {"inputs": one}),
        ("others do not", "inputs", {"inputs": [one, table]}),
        ("must be a DataFrame", "inputs (1)", {"inputs": ["one", two]}),
        ("no column", "by (pressed)", {"by": "line2"}),
        ("no column", "order_by (pressed)", {"order_by": "when"}),
        ("one for each input", "order_by", {"order_by": {"pressed": "at"}}),
        (
            "is int32 in '1' and string in '2'",
            "by",
            {"inputs": [one, two.withColumn("line", two["line"].cast("string"))]},
        ),
    ]
    for what, where, given in cases:
        with pytest.raises(tm.TrailmarkError, match=what) as refused:
            steps.barrier(**given)
        assert refused.value.where == where, what
    assert not (tmp_path / "log").exists()
