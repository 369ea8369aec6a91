"""Code of a user's that fails in a worker: one clear line, nothing lost, and the mended code goes
on with the same batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_apply import Count, Place, Total, orders, variant

_NOTHING_LOST = "Nothing of the batch was written: mend the operator and start the query again"


def _raises(self: Any, keys: Any, rows: Any, state: Any) -> Any:
    state["n"] += 1
    raise ValueError("in the middle")


def _raises_deep(self: Any, keys: Any, rows: Any, state: Any) -> Any:
    return rows["word"].cast(pa.int64())


def _no_column(self: Any, keys: Any, rows: Any, state: Any) -> Any:
    state["n"] += 100
    return keys.table(n=rows["price"])


def _no_state(self: Any, keys: Any, rows: Any, state: Any) -> Any:
    return keys.table(n=state["total"])


def _misfit_state(self: Any, keys: Any, rows: Any, state: Any) -> Any:
    state["n"] = state["n"] * 0.5


def _few(self: Any, keys: Any, rows: Any, state: Any) -> Any:
    return keys.table()


def _text(self: Any, keys: Any, rows: Any, state: Any) -> Any:
    return keys.table(n=["many"] * len(keys))


_FAILURES: dict[str, tuple[Any, list[str]]] = {
    "it raises": (_raises, ["Count.process raised ValueError: in the middle", "in _raises)"]),
    "a library raises": (_raises_deep, ["raised ArrowInvalid", "in _raises_deep)"]),
    "an unknown column": (_no_column, ["price", "in _no_column)"]),
    "an unknown column of the state": (_no_state, ["The state has no column 'total'", "batch 1"]),
    "a state of another type": (_misfit_state, ["float64 is not int64", "state['n']"]),
    "a missing column of results": (_few, ["['item']; declared are ['item', 'n']"]),
    "results of another type": (_text, ["Column 'n' was returned as string", "int64"]),
}


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def test_what_fails_in_a_keyed_operator_is_told_and_can_be_mended(place: Place) -> None:
    """One query, which is started again after each of the failures."""
    given = {"buckets": 1, "checkpoint": tm.Continuous(q=10)}
    place.feed.add(orders((1, 1), (2, 2), (1, 3)))
    assert place.run(Count, **given) == [0]
    place.feed.add(orders((1, 4), (3, 5)))
    for name, (process, words) in _FAILURES.items():
        said = place.refusal(variant(Count, process=process), **given)
        for word in words:
            assert word in said, f"{name}: {said}"
        assert place.rows() == {(1, 2): 1, (2, 1): 1}
    assert place.run(Count, **given) == [1]
    assert place.rows() == {(1, 2): 1, (2, 1): 1, (1, 3): 1, (3, 1): 1}


def test_a_timer_in_the_past_is_refused_and_can_be_mended(place: Place) -> None:
    def past(self: Any, keys: Any, rows: Any, state: Any) -> None:
        state.event_timer = np.datetime64("2024-01-01")

    def mended(self: Any, keys: Any, rows: Any, state: Any) -> None:
        state.event_timer = np.datetime64("2024-03-01T00:00:50")

    def tell(self: Any, keys: Any, due: Any, state: Any) -> Any:
        return keys.table(n=np.ones(len(keys), dtype=np.int64))

    good = variant(Count, process=mended, on_event_timer=tell)
    place.feed.add(orders((1, 10)), orders((1, 20)))
    place.run(good, time="at")
    place.feed.add(orders((2, 100)))
    said = place.refusal(variant(good, process=past), time="at")
    assert "set state.event_timer to 2024-01-01T00:00:00.000000, which has passed" in said
    place.run(good, time="at")
    assert place.rows() == {(1, 1): 1, (2, 1): 1}


def test_what_fails_in_a_whole_operator_is_told_and_can_be_mended(place: Place) -> None:
    """Each run begins without a cache, so that the object is restored."""
    given: dict[str, Any] = {"schema": "rows long", "buckets": 1}
    place.feed.add(orders((1, 1), (2, 2), (1, 3)))
    place.run(Total, **given)
    place.feed.add(orders((1, 4), (3, 5)))
    failures: list[tuple[dict[str, Any], str]] = [
        ({"process": lambda self, batch: batch["price"]}, "Total.process raised KeyError"),
        ({"get_checkpoint": lambda self: {"rows": 1}}, "Total.get_checkpoint returned dict"),
        ({"restore_checkpoint": lambda self, state: 1 // 0}, "Total.restore_checkpoint raised"),
        ({"__init__": lambda self: 1 // 0}, "Total raised ZeroDivisionError"),
    ]
    for number, (members, words) in enumerate(failures):
        cache = place.root / f"cache {number}"
        said = place.refusal(variant(Total, **members), cache_dir=cache, **given)
        assert words in said, said
        assert place.rows() == {(3,): 1}
    place.run(Total, cache_dir=place.root / "the last cache", **given)
    assert place.rows() == {(3,): 1, (5,): 1}


def test_fields_of_structs_are_neither_dropped_nor_made_up(place: Place) -> None:
    def pair(self: Any, keys: Any, rows: Any, state: Any) -> Any:
        return keys.table(both=pa.array([{"a": 1, "c": 2}] * len(keys)))

    place.feed.add(orders((1, 1)))
    schema = "item int, both struct<a: long, b: long>"
    said = place.refusal(variant(Count, process=pair), schema=schema)
    assert "Column 'both' was returned as struct<a: int64, c: int64>" in said
    assert _NOTHING_LOST in said


def test_a_module_that_the_workers_lack_is_named_with_what_to_do(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = place.root / "only_here" / "my_own_operators.py"
    module.parent.mkdir()
    module.write_text("from tests.support.spark_apply import Count\n\nclass Mine(Count): ...\n")
    monkeypatch.syspath_prepend(str(module.parent))
    import my_own_operators  # type: ignore[import-not-found]

    place.feed.add(orders((1, 1)))
    said = place.refusal(my_own_operators.Mine)
    assert "No module named 'my_own_operators'" in said
    assert "addPyFile" in said
    place.spark.sparkContext.addPyFile(str(module))
    place.run(my_own_operators.Mine)
    assert place.rows() == {(1, 1): 1}
    del sys.modules["my_own_operators"]
