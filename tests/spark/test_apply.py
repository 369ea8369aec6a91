"""`tm.apply` gives what the oracles give, in both forms, for every type of key and of state."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

import trailmark as tm
from tests.support.keyed import Everything, KeyedCase, Wanted
from tests.support.spark_apply import START, Place, Total, keyed_rows, orders, whole_rows
from tests.support.spark_feed import logged_rows, rows_of, table_rows
from tests.support.whole import SmoothArrow, SmoothBytes, WholeCase

_KEYS: dict[str, tuple[str, pa.DataType, Callable[[random.Random], Any]]] = {
    "k_tiny": ("tinyint", pa.int8(), lambda rng: rng.randrange(-2, 2)),
    "k_small": ("smallint", pa.int16(), lambda rng: rng.randrange(-300, -295)),
    "k_whole": ("int", pa.int32(), lambda rng: rng.randrange(4)),
    "k_big": ("bigint", pa.int64(), lambda rng: rng.choice([1 << 40, -5, 7])),
    "k_flag": ("boolean", pa.bool_(), lambda rng: rng.random() < 0.5),
    "k_text": ("string", pa.string(), lambda rng: rng.choice(["", "ß\0", "longer than 16 bytes"])),
    "k_day": ("date", pa.date32(), lambda rng: date(1969, 12, rng.randrange(28, 32))),
    "k_instant": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        lambda rng: START + timedelta(microseconds=rng.randrange(3)),
    ),
    "k_local": (
        "timestamp_ntz",
        pa.timestamp("us"),
        lambda rng: datetime(2024, 1, rng.randrange(1, 4)),
    ),
    "k_price": ("decimal(12,3)", pa.decimal128(12, 3), lambda rng: Decimal(rng.randrange(3)) / 8),
}
_REST = "value double, word string, at timestamp"
_COLUMNS = (
    *("small", "big", "total", "has_word", "when", "last", "raw"),
    *("price", "day", "recent", "words", "seen", "flags"),
)


def _tables(rng: random.Random, by: list[str], batches: int = 3, rows: int = 60) -> list[pa.Table]:
    def some(make: Callable[[], Any], nulls: float = 0.1) -> list[Any]:
        return [None if rng.random() < nulls else make() for _ in range(rows)]

    def at(batch: int) -> datetime:
        return START + timedelta(seconds=10 * batch + rng.randrange(-9, 10))

    return [
        pa.table(
            {
                **{
                    name: pa.array(some(lambda make=_KEYS[name][2]: make(rng)), _KEYS[name][1])  # type: ignore[misc]
                    for name in by
                },
                "value": pa.array(some(lambda: rng.randrange(-50, 1000) / 4), pa.float64()),
                "word": pa.array(some(lambda: rng.choice(["", "x", "y" * 40, "ß\0"]))),
                "at": pa.array(
                    some(lambda b=batch: at(b), 0.05),  # type: ignore[misc]
                    pa.timestamp("us", "UTC"),
                ),
            }
        )
        for batch in range(batches)
    ]


def _case(by: list[str], wanted: Wanted, **given: Any) -> KeyedCase:
    fields = [(name, _KEYS[name][1]) for name in by]
    rest = [("value", pa.float64()), ("word", pa.string()), ("at", pa.timestamp("us", "UTC"))]
    return KeyedCase(pa.schema([*fields, *rest]), tuple(by), wanted, (), **given)


def _given(case: KeyedCase) -> dict[str, Any]:
    """What `tm.apply` has to be told of a case."""
    return {"by": list(case.by), "schema": case.output, "late": case.late}


#: Two keys at once, so that all types are through in a few queries.
@pytest.mark.parametrize(
    "by", [["k_tiny", "k_text"], ["k_small", "k_day"], ["k_whole", "k_instant"]], ids=str
)
def test_a_keyed_operator_gives_what_the_oracle_gives(
    spark: SparkSession, tmp_path: Path, by: list[str]
) -> None:
    """Timers, lives, late rows and removed keys; of every type a column in the state."""
    wanted = Wanted(
        _COLUMNS, remove_at=25, event_timer=3_000_000, event_ttl=15_000_000, clock_ttl=1 << 50
    )
    case = _case(by, wanted, late="keep", delay_us=2_000_000)
    place = Place(spark, tmp_path, ", ".join([*(f"{n} {_KEYS[n][0]}" for n in by), _REST]))
    tables = _tables(random.Random(1), by, batches=4)
    place.feed.add(*tables)
    policy = tm.Continuous(q=20)
    place.run(case.code(), time="at", delay="2 seconds", checkpoint=policy, **_given(case))
    assert place.rows() == keyed_rows(place.path, case)
    assert {"new", "old", "event"} <= {row[2] for row in place.rows()}
    assert logged_rows(place.path) == table_rows(tables, tables[0].schema.names)


@pytest.mark.parametrize("by", [["k_big", "k_flag"], ["k_local", "k_price"]], ids=str)
def test_what_is_recovered_is_what_the_oracle_has(
    spark: SparkSession, tmp_path: Path, by: list[str]
) -> None:
    """Every run begins without a cache: all of the state comes out of the log."""
    case = _case(by, Wanted(_COLUMNS, remove_at=25))
    place = Place(spark, tmp_path, ", ".join([*(f"{n} {_KEYS[n][0]}" for n in by), _REST]))
    for number, table in enumerate(_tables(random.Random(2), by)):
        place.feed.add(table)
        cache = tmp_path / f"cache {number}"
        place.run(case.code(), cache_dir=cache, checkpoint=tm.UpstreamBackup(), **_given(case))
    assert place.rows() == keyed_rows(place.path, case)


@pytest.mark.parametrize("user", [SmoothBytes, SmoothArrow])
def test_a_whole_operator_gives_what_the_oracle_gives(
    spark: SparkSession, tmp_path: Path, user: Any
) -> None:
    rng = random.Random(3)
    case = WholeCase(user, ())
    (port,) = case.operator().ports
    place = Place(spark, tmp_path, "item int, value double, words array<string>")
    given = {"by": "item", "schema": "item int, smooth double, rows long"}
    for number in range(3):
        rows = [
            (rng.choice((None, 1, 2, 3)), rng.randrange(1000) / 7, ["a"] * rng.randrange(3))
            for _ in range(40)
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        place.feed.add(pa.table(columns, schema=port.schema))
        place.run(user, cache_dir=tmp_path / f"cache {number}", **given)
    assert place.rows() == whole_rows(place.path, case)
    assert place.rows().total() > 30


def test_a_function_is_an_operator_without_state(spark: SparkSession, tmp_path: Path) -> None:
    def cheap(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pa.array(batch["value"].to_numpy() < limit)).select(["item"])

    limit = 15
    place = Place(spark, tmp_path)
    place.feed.add(orders((1, 1), (2, 12)), orders((3, 30), (None, 13)))
    place.run(cheap, by=None, schema="item int")
    assert place.rows() == {(1,): 1, (2,): 1, (None,): 1}
    still = spark.read.schema(place.feed.schema).parquet(str(tmp_path / "in"))
    assert rows_of(tm.apply(still, cheap, schema="item int")) == place.rows()


def test_an_instance_brings_what_it_was_made_with(spark: SparkSession, tmp_path: Path) -> None:
    class From(Total):
        """The test's own class, with a state that is called so."""

        def __init__(self, first: int) -> None:
            super().__init__()
            self.state = {"rows": first}
            self.rows = first

    place = Place(spark, tmp_path)
    place.feed.add(orders((1, 1), (1, 2)), orders((1, 3)))
    given = {"schema": "rows long", "buckets": 1}
    place.run(From(100), **given)
    place.feed.add(orders((1, 4)))
    place.run(From(5), cache_dir=tmp_path / "another", **given)
    assert place.rows() == {(102,): 1, (103,): 1, (104,): 1}, "what is logged comes before"


_NESTED = (
    "item int, parts array<struct<at: timestamp, name: string>>, "
    "times map<string, array<timestamp>>, "
    "deep struct<raw: binary, price: decimal(10,2), more: struct<day: date, local: timestamp_ntz>>,"
    " took interval day to second, `a.dot and ``tick``` string"
)


def test_nested_columns_come_through_in_a_session_that_is_not_in_utc(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = spark.sql(
        "SELECT cast(id as int) item, array(named_struct('at', timestamp_seconds(id), 'name', "
        "'x'), null) parts, map('k', array(timestamp'2021-06-01 12:00:00', null)) times, "
        "named_struct('raw', cast('zz' as binary), 'price', 1.50BD, 'more', named_struct('day', "
        "date'2020-02-02', 'local', timestamp_ntz'2020-01-01 00:00:00')) deep, "
        "interval 90 minutes took, 'dots' `a.dot and ``tick``` FROM range(7)"
    )
    assert not made.schema["deep"].nullable, "what is never null may be so later, in a log"
    made = made.select(
        *(made[f"`{f.name.replace('`', '``')}`"].cast(f.dataType) for f in _types(_NESTED))
    )
    made.coalesce(1).write.parquet(str(tmp_path / "in"))
    place = Place(spark, tmp_path, _NESTED)
    stream = spark.readStream.schema(made.schema).parquet(str(tmp_path / "in"))
    place.query.run(place.apply(lambda batch: batch, stream, schema=made.schema))
    found = spark.read.parquet(str(place.query.out)).orderBy("item").collect()
    assert found == made.orderBy("item").collect()
    assert place.apply(lambda batch: batch, made, schema=made.schema).orderBy("item").collect() == (
        found
    )


def _types(ddl: str) -> list[spark_types.StructField]:
    found = spark_types.StructType.fromDDL(ddl)
    assert isinstance(found, spark_types.StructType)
    return list(found)


def test_results_may_be_wider_than_a_batch_and_larger_than_a_message(
    spark: SparkSession, tmp_path: Path
) -> None:
    class Explode(Everything):
        def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> pa.Table:
            state["n"] += keys.counts()
            numbers = np.arange(200_000)
            item = keys["item"].take(pa.array(numbers % len(keys)))
            return pa.table({"item": item, **{f"c{place}": numbers + place for place in range(20)}})

    place = Place(spark, tmp_path)
    place.feed.add(orders((1, 1), (2, 2), (3, 3)))
    columns = ", ".join(f"c{number} bigint" for number in range(20))
    place.run(Explode(Wanted(())), schema=f"item int, {columns}", buckets=1)
    found = spark.read.parquet(str(place.query.out)).selectExpr("count(*)", "sum(c19)", "max(c0)")
    assert found.first() == (200_000, sum(range(200_000)) + 19 * 200_000, 199_999)
