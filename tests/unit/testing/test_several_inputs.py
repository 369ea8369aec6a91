"""Joins and barriers in the tester: batches with the rows of each input."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trailmark as tm
from trailmark.errors import RecoveryDiffers, SettingError

_BATCHES: list[dict[str, list[dict[str, Any]]]] = [
    {"left": [{"item": 1, "bid": 5}, {"item": 2, "bid": 6}], "right": [{"item": 1, "ask": 4}]},
    {"right": [{"item": 2, "ask": 7}, {"item": 1, "ask": 9}]},
    {"left": [{"item": 1, "bid": 8}], "right": [{"item": 3, "ask": 1}]},
    {},
]


@pytest.mark.parametrize("checkpoint", [None, tm.Incremental(2, group_size=1)], ids=str)
@pytest.mark.parametrize("buckets", [1, 2])
def test_a_join_with_the_last_tuples_goes_through_every_crash(
    buckets: int, checkpoint: tm.Incremental | None
) -> None:
    windows = (tm.last_tuples(2, per_key=True), tm.last_tuples(1, per_key=True))
    query = tm.testing.join(on="item", windows=windows, how="full")
    report = tm.testing.run(
        query, _BATCHES, crash_at="everywhere", buckets=buckets, checkpoint=checkpoint
    )
    found = {(row["bid"], row["ask"]) for row in report.results.to_pylist()}
    assert found == {(5, 4), (6, 7), (5, 9), (8, 9)}
    assert report.crashes > 20
    assert report.recoveries > report.crashes // 2


def test_what_is_not_cut_into_groups_refuses_incremental() -> None:
    query = tm.testing.barrier(["left", "right"], by="item")
    with pytest.raises(SettingError, match="not cut into groups"):
        tm.testing.run(query, _BATCHES, checkpoint=tm.Incremental(2))


def test_a_join_by_time_ends_with_what_the_watermark_has_passed() -> None:
    batches = [
        {"left": [{"item": 1, "at": 0}, {"item": 4, "at": 0}], "right": [{"item": 1, "at": 1}]},
        {"left": [{"item": 2, "at": 50}], "right": [{"item": 3, "at": 60}]},
    ]
    schema = pa.schema([("item", pa.int64()), ("at", pa.timestamp("s"))])
    query = tm.testing.join(on="item", within=tm.interval("at", "at", after="5 s"), how="left")
    schemas = {"left": schema, "right": schema}
    report = tm.testing.run(query, batches, crash_at=1, schema=schemas, buckets=2)
    assert [row["item"] for row in report.results.to_pylist()] == [1, 4]


def test_a_barrier_goes_through_every_crash() -> None:
    query = tm.testing.barrier(["left", "right"], by="item")
    report = tm.testing.run(query, _BATCHES, crash_at="everywhere", checkpoint=tm.Periodic(2))
    assert {tuple(row.values()) for row in report.results.to_pylist()} == {
        (1, 5, 4),
        (2, 6, 7),
        (1, 8, 9),
    }


def test_a_condition_that_remembers_is_found_out() -> None:
    seen: list[int] = []

    def is_new(left: pa.RecordBatch, right: pa.RecordBatch) -> Any:
        seen.append(left.num_rows)
        return pc.greater(pa.array([len(seen)] * left.num_rows), 1)

    windows = (tm.last_tuples(5, per_key=True), tm.last_tuples(5, per_key=True))
    query = tm.testing.join(on="item", windows=windows, condition=is_new)
    with pytest.raises(RecoveryDiffers):
        tm.testing.run(query, _BATCHES, crash_at="everywhere")


@pytest.mark.parametrize(
    ("batches", "given", "what"),
    [
        ([[{"item": 1}]], {}, "no dictionary with the rows of left and right"),
        ([{"left": [], "middle": []}], {}, "no dictionary with the rows of left and right"),
        (_BATCHES, {"schema": pa.schema([])}, "a schema for each of left, right"),
        (_BATCHES, {"buckets": 2}, "Without keys there is only one bucket"),
        ([{"left": [{"item": 1}]}], {}, "no column 'item'"),
    ],
)
def test_what_cannot_be_run_is_refused(batches: Any, given: dict[str, Any], what: str) -> None:
    query = tm.testing.join(on="item", windows=(tm.last_tuples(2), tm.last_tuples(0)))
    with pytest.raises(SettingError, match=what):
        tm.testing.run(query, batches, **given)
