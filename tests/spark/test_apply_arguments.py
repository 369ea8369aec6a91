"""What is wrong with an operator of a user's is said at once, on the driver, and by its name."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.spark_apply import Count, Place, Total, orders, variant
from trailmark.errors import SchemaChanged, TrailmarkError


class Argued(Count):
    def __init__(self, limit: int) -> None:
        self.limit = limit


class ArguedTotal(Total):
    def __init__(self, first: int) -> None:
        self.rows = first


class Nothing:
    """A class that forgot what it is for."""


class Locked(Count):
    def __init__(self) -> None:
        self.guard = threading.Lock()


class Connected(Total):
    line: ClassVar[Any] = None


_WRONG: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "no operator": (None, {}, "operator", "a class with a method process"),
    "a number": (3, {}, "operator", "a class with a method process"),
    "a class without process": (Nothing, {}, "operator", "Nothing has no method process"),
    "a state without process": (
        variant(Nothing, state={"n": pa.int64()}),
        {},
        "operator",
        "Nothing has no method process",
    ),
    "a class made of arguments": (Argued, {}, "operator", "operator=Argued(...)"),
    "a whole class made of arguments": (ArguedTotal, {}, "operator", "operator=ArguedTotal(...)"),
    "process of other arguments": (
        variant(Total, process=lambda self, one, two: None),
        {},
        "operator",
        "Total.process cannot be called with a batch",
    ),
    "a function of nothing": (lambda: None, {}, "operator", "cannot be called with a batch"),
    "half a checkpoint": (
        variant(Nothing, process=lambda self, batch: None, get_checkpoint=lambda self: b""),
        {},
        "operator",
        "get_checkpoint and no restore_checkpoint",
    ),
    "no keys": (Count, {"by": None}, "by", "A keyed operator needs key columns"),
    "an empty list of keys": (Total, {"by": []}, "by", "At least one key column"),
    "a key that is no name": (Total, {"by": 3}, "by", "name of a column or a list"),
    "a key of Spark's": (Count, {"by": [F]}, "by", "name of a column or a list"),
    "a key that is not there": (Count, {"by": "id"}, "by", "no column 'id'"),
    "a whole key that is not there": (Total, {"by": "id"}, "by", "no column 'id'"),
    "a key that cannot be one": (Count, {"by": "value"}, "value", "cannot be a key"),
    "a nested key": (Count, {"by": "tags"}, "by", "array<string>"),
    "a nested key of the whole form": (Total, {"by": "tags"}, "by", "array<string>"),
    "an order that is not there": (Total, {"order_by": "seq"}, "order_by", "no column 'seq'"),
    "an order of lists": (Total, {"order_by": "tags"}, "order_by", "cannot be ordered"),
    "a schema of no type": (Count, {"schema": "item lnog"}, "schema", "LNOG"),
    "a schema of Arrow's alone": (
        Count,
        {"schema": pa.schema([("item", pa.uint8())])},
        "schema",
        "uint8",
    ),
    "no schema": (Count, {"schema": None}, "schema", "must name the columns"),
    "a schema with a name twice": (Count, {"schema": "n int, n long"}, "schema", "same name"),
    "a schema that a log cannot have": (Count, {"schema": "v variant"}, "schema", "variant"),
    "a schema with a name of the log": (Count, {"schema": "`$n` long"}, "schema", "$n"),
    "a delay of no time": (Count, {"delay": "5 seconds"}, "delay", "no column was named"),
    "late rows of no time": (Total, {"late": "keep"}, "late", "no column was named"),
    "time in the whole form": (Total, {"time": "at"}, "time", "is for keyed operators"),
    "time that is none": (Count, {"time": "item"}, "time", "must be timestamps"),
    "timers without time": (
        variant(Count, on_event_timer=lambda self, keys, due, state: None),
        {},
        "time",
        "Count uses event time",
    ),
    "a flush of a stream": (Count, {"flush": True}, "flush", "does not stream"),
    "no path": (Count, {"path": None}, "path", "checkpoint=None"),
    "a policy and an objective": (
        Count,
        {"checkpoint": "often", "recover_within": "1 second"},
        "checkpoint, recover_within",
        "either",
    ),
    "a lock": (Locked, {}, "operator", "Locked.guard (cannot pickle '_thread.lock' object)"),
    "a function that holds a lock": (
        lambda batch, guard=threading.Lock(): batch,  # noqa: B008
        {},
        "operator",
        "cannot be sent to Spark's workers",
    ),
}


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(
        spark, tmp_path, "item int, value double, word string, at timestamp, tags array<string>"
    )


@pytest.mark.parametrize("name", _WRONG)
def test_a_wrong_argument_is_named(place: Place, name: str) -> None:
    operator, given, where, text = _WRONG[name]
    with pytest.raises(TrailmarkError, match=re.escape(text)) as refused:
        place.apply(operator, **given)
    assert where in refused.value.where
    assert not place.path.exists()


def test_what_belongs_to_one_process_is_refused_by_the_name_of_its_attribute(
    place: Place,
) -> None:
    with socket.socket() as line:
        instance = Connected()
        instance.line = line  # type: ignore[misc]
        with pytest.raises(TrailmarkError, match=r"Connected\.line .*socket.*") as refused:
            place.apply(instance, schema="rows long")
    assert "make them in a method" in refused.value.fix

    def asks_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
        place.spark.range(1).count()
        return batch

    with pytest.raises(TrailmarkError, match="asks_spark cannot be sent"):
        place.apply(asks_spark)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("item int", "needed are"),
        ("item int, n int", "'n' is int32"),
        ("item long, n long", "item"),
    ],
)
def test_initial_states_of_other_columns_are_refused(
    place: Place, columns: str, message: str
) -> None:
    states = place.spark.createDataFrame([], columns)
    with pytest.raises(TrailmarkError, match=message) as refused:
        place.apply(Count, initial_state=states)
    assert refused.value.where == "initial_state"


def test_initial_states_that_stream_or_are_no_states_are_refused(place: Place) -> None:
    still = place.spark.createDataFrame([], "item int, n long")
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (Count, {"initial_state": place.feed.stream()}, "does not stream"),
        (Count, {"initial_state": [(1, 2)]}, "does not stream"),
        (Total, {"initial_state": still}, "is for keyed operators"),
        (Count, {"initial_state": still, "df": still}, "is for streams"),
    ]
    for operator, given, message in wrong:
        with pytest.raises(TrailmarkError, match=message) as refused:
            place.apply(operator, **given)
        assert refused.value.where == "initial_state"


def test_logs_of_another_operator_are_refused_at_once(place: Place) -> None:
    place.feed.add(orders((1, 1)).append_column("tags", pa.array([["a"]])))
    place.run(Count)
    for operator, given, message in (
        (Total, {"schema": "rows long"}, "operator.operator: keyed -> whole"),
        (Count, {"by": ["item", "word"]}, "operator.by"),
        (Count, {"schema": "item int, n int"}, "result"),
        (Count, {"buckets": 3}, "buckets: 2 -> 3"),
        (Count, {"time": "at"}, "operator.time"),
        (
            Count,
            {"initial_state": place.spark.createDataFrame([], "item int, n long")},
            "inputs: input -> input, initial",
        ),
    ):
        with pytest.raises(SchemaChanged, match=re.escape(message)):
            place.apply(operator, **given)
