"""The state of `tm.apply` from one start to the next: what it begins with, what it gains, and what
becomes of it without a policy."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.spark_apply import COUNTED, Count, Place, Total, orders, variant
from tests.support.spark_feed import rows_of
from trailmark.errors import SchemaChanged, SettingError


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def _states(place: Place, *rows: tuple[int | None, int | None]) -> DataFrame:
    return place.spark.createDataFrame(list(rows), COUNTED)


def _fails(self: Any, keys: Any, rows: Any, state: Any) -> None:
    raise ValueError("on purpose")


# What keys begin with


def test_keys_begin_with_the_states_that_they_are_given_once(place: Place) -> None:
    begun = _states(place, (1, 10), (None, 20), (7, 70))
    place.feed.add(orders((1, 1), (2, 2)))
    place.run(Count, initial_state=begun)
    place.feed.add(orders((1, 3), (None, 4)))
    place.run(Count, initial_state=_states(place, (1, 500), (None, 500)))
    shutil.rmtree(place.cache)
    place.feed.add(orders((1, 5), (7, 6)))
    place.run(Count, initial_state=begun)
    assert place.rows() == {
        (1, 11): 1,
        (2, 1): 1,
        (1, 12): 1,
        (None, 21): 1,
        (1, 13): 1,
        (7, 71): 1,
    }
    assert not list((place.path / "initial").iterdir()), "what nobody needs is gone"


def test_states_are_there_once_though_the_first_batch_is_done_again(place: Place) -> None:
    begun = _states(place, (1, 10), (2, 20))
    place.feed.add(orders((1, 1), (2, 2)))
    # Spark may stop the task of a bucket before its input is in the log: the other one has failed.
    while len(list(place.path.glob("in/*/*.seg"))) < 2:
        assert "on purpose" in place.refusal(variant(Count, process=_fails), initial_state=begun)
    other = place.refusal(Count, initial_state=_states(place, (1, 99), (2, 99)))
    assert "InputDiffers" in other
    assert "initial_state with which the batch was first tried" in other
    place.run(Count, initial_state=begun)
    assert place.rows() == {(1, 11): 1, (2, 21): 1}


def test_states_of_every_type_can_be_given(place: Place) -> None:
    kinds = {
        "t": pa.timestamp("us", "UTC"),
        "words": pa.list_(pa.string()),
        "seen": pa.map_(pa.string(), pa.int64()),
        "price": pa.decimal128(12, 2),
    }

    def process(self: Any, keys: Any, rows: Any, state: Any) -> Any:
        return keys.table(
            t=pa.array(state["t"], kinds["t"]),
            words=state["words"].array(),
            seen=state["seen"].array(),
            price=state["price"],
        )

    begun = place.spark.sql(
        "SELECT 1 item, timestamp'2024-01-01 12:00:00' t, array('a', 'b') words, map('k', 3L) seen,"
        " 1.25BD price"
    ).withColumn("price", F.col("price").cast("decimal(12,2)"))
    place.feed.add(orders((1, 1)))
    place.run(
        variant(Count, state=kinds, process=process), initial_state=begun, schema=begun.schema
    )
    assert place.spark.read.parquet(str(place.query.out)).collect() == begun.collect()


@pytest.mark.parametrize(
    ("rows", "message"),
    [([(1, 1), (2, 2), (1, 3)], "a key more than once"), ([(1, None)], "has nulls in 'n'")],
)
def test_states_that_cannot_be_are_refused_before_anything_is_logged(
    place: Place, rows: Any, message: str
) -> None:
    place.feed.add(orders((1, 1)))
    with pytest.raises(SettingError, match=message) as refused:
        place.apply(Count, initial_state=_states(place, *rows))
    assert refused.value.where == "initial_state"
    place.run(Count, initial_state=_states(place, (1, 5)))
    assert place.rows() == {(1, 6): 1}


# What is declared in another way


def test_a_column_that_is_added_begins_with_its_initial_value(place: Place) -> None:
    class More(Count):
        state: ClassVar[Any] = {
            "n": pa.int64(),
            "since": pa.int32(),
            "words": pa.list_(pa.string()),
        }
        initial: ClassVar[Any] = {"since": 40}

        def process(self, keys: Any, rows: Any, state: Any) -> Any:
            state["n"] += keys.counts()
            state["since"] += 1
            return keys.table(n=state["n"] * 1000 + state["since"] + state["words"].lengths())

    place.feed.add(orders((1, 1), (1, 2), (2, 2)))
    place.run(Count)
    place.feed.add(orders((1, 3), (3, 4)))
    place.run(More)
    assert place.rows() == {(1, 2): 1, (2, 1): 1, (1, 3041): 1, (3, 1041): 1}
    place.feed.add(orders((1, 5)))
    for kinds, message in (
        ({"n": pa.int32()}, "state column n: int64 -> int32"),
        ({"since": pa.int32()}, "state column n: int64 -> absent"),
    ):
        with pytest.raises(SchemaChanged, match=message):
            place.run(variant(More, state=kinds, initial={}))
    assert "The logged state has 'since'" in place.refusal(Count)
    retyped = variant(More, state={**More.state, "since": pa.int64()})
    assert "'since' is int32 in the log and int64 now" in place.refusal(retyped)
    place.run(More)
    assert place.rows()[1, 4042] == 1, "nothing is lost meanwhile"


def test_a_life_that_is_declared_later_is_that_of_the_keys_that_have_rows_from_then_on(
    place: Place,
) -> None:
    """Batches that are replayed have been logged without a time."""
    given = {"checkpoint": tm.UpstreamBackup()}
    place.feed.add(orders((1, 1)), orders((1, 2), (2, 2)))
    place.run(Count, **given)
    shutil.rmtree(place.cache)
    place.feed.add(orders((1, 3)))
    place.run(variant(Count, clock_time_to_live="1 day"), **given)
    assert place.rows() == {(1, 1): 1, (1, 2): 1, (2, 1): 1, (1, 3): 1}


def test_a_class_may_be_called_another_name(place: Place) -> None:
    place.feed.add(orders((1, 1)))
    place.run(Count)
    place.feed.add(orders((1, 2)))
    place.run(type("Renamed", (Count,), {}))
    assert place.rows() == {(1, 1): 1, (1, 2): 1}


# Without a policy


class Overheard:
    """What Trailmark warns of in the workers that this comes to goes into a file, too."""

    def __init__(self, said: Path) -> None:
        self._said = said

    def __setstate__(self, members: dict[str, Any]) -> None:
        self.__dict__.update(members)
        logger = logging.getLogger("trailmark")
        if not any(
            getattr(each, "baseFilename", "") == str(self._said) for each in logger.handlers
        ):
            logger.addHandler(logging.FileHandler(self._said))


class Counted(Overheard, Count):
    """With a state to lose."""


def test_without_a_policy_a_state_lasts_as_long_as_its_query(place: Place) -> None:
    said = place.root / "said"
    given: dict[str, Any] = {"checkpoint": None, "path": None}
    place.feed.add(orders((1, 1)), orders((1, 2), (2, 2)), orders((1, 3)))
    place.run(Counted(said), **given)
    assert place.rows() == {(1, 1): 1, (1, 2): 1, (2, 1): 1, (1, 3): 1}
    assert not said.read_text()
    place.feed.add(orders((1, 4)))
    place.run(Counted(said), **given)
    assert place.rows()[1, 1] == 2, "it begins anew"
    assert said.read_text().count("begins batch 3 without state") == 2, "once for each bucket"
    assert not place.path.exists()


def test_without_a_policy_a_batch_that_is_evaluated_twice_counts_once(place: Place) -> None:
    place.feed.add(orders((1, 1)), orders((1, 2), (2, 2)), orders((1, 3)))
    found = []

    def write(df: DataFrame, batch: int) -> None:
        found.append((df.count(), rows_of(df)))

    counted = place.apply(Count, checkpoint=None)
    writer = counted.writeStream.foreachBatch(write).trigger(availableNow=True)
    writer.option("checkpointLocation", str(place.query.checkpoint)).start().awaitTermination()
    assert found == [(1, {(1, 1): 1}), (2, {(1, 2): 1, (2, 1): 1}), (1, {(1, 3): 1})]


def test_without_a_policy_queries_of_one_dataframe_have_states_of_their_own(place: Place) -> None:
    place.feed.add(orders((1, 1)), orders((1, 2)), orders((1, 3)))
    counted = place.apply(Count, checkpoint=None)
    for name in ("one", "two"):
        writer = counted.writeStream.option("checkpointLocation", str(place.root / name / "ckpt"))
        out = str(place.root / name / "out")
        writer.trigger(availableNow=True).start(out).awaitTermination()
        found = rows_of(place.spark.read.parquet(out))
        assert found == {(1, 1): 1, (1, 2): 1, (1, 3): 1}


@pytest.mark.parametrize(
    ("operator", "more"),
    [
        (Count, {"time": "at"}),
        (variant(Count, clock_time_to_live="1 day"), {}),
        (Count, {"initial_state": None}),
    ],
    ids=["time", "clock", "initial state"],
)
def test_without_a_policy_there_are_no_times_and_no_initial_states(
    place: Place, operator: Any, more: dict[str, Any]
) -> None:
    if "initial_state" in more:
        more = {"initial_state": _states(place, (1, 1))}
    with pytest.raises(SettingError, match="need logs") as refused:
        place.apply(operator, checkpoint=None, **more)
    assert refused.value.where == "checkpoint=None"


def test_a_function_without_a_policy_has_nothing_to_lose(place: Place) -> None:
    class Items(Overheard):
        def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.select(["item"])

    said = place.root / "said"
    for second in range(2):
        place.feed.add(orders((1, second)))
        place.run(Items(said), by=None, schema="item int", checkpoint=None)
    assert place.rows() == {(1,): 2}
    assert not said.read_text()


def test_an_object_without_a_policy_goes_on_from_batch_to_batch(place: Place) -> None:
    place.feed.add(orders((1, 1)), orders((1, 2), (1, 2)), orders((1, 3)))
    place.run(Total, schema="rows long", buckets=1, checkpoint=None)
    assert place.rows() == {(1,): 1, (3,): 1, (4,): 1}
