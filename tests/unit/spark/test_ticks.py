"""The source of ticks as Spark calls it, where a test on Spark could not choose the moment."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.support.orders import SECOND, TimedOrder, time_case, timed_orders
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import Bucket, OperatorLogs
from trailmark.log import LocalStorage
from trailmark.spark.ticks import TickReader

_START = {"batch": -1}


class Operator:
    """One bucket of an operator in a directory; every batch moves the watermark, or has no row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._case = time_case([[]], delay=0)
        self._batch = 0

    def run(self, *seconds: int) -> None:
        operator = self._case.operator()
        logs = OperatorLogs(LocalStorage(self.path), operator, buckets=1)
        rows: list[TimedOrder] = [("a", 1, each * SECOND) for each in seconds]
        bucket = Bucket(operator, logs, 0, Continuous())
        bucket.run(self._batch, timed_orders(rows))
        bucket.close()
        self._batch += 1


class Clock:
    """Stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now_us = 0.0

    def __call__(self) -> float:
        return self.now_us


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path / "log")


def _reader(operator: Operator, clock: Clock | None = None, *, is_on: bool = True) -> TickReader:
    return TickReader(str(operator.path), is_on=is_on, now_us=clock or Clock())


def test_an_offset_moves_once_for_every_watermark_that_has_moved(operator: Operator) -> None:
    reader = _reader(operator)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(_START, None) == reader.initialOffset() == _START
    operator.run(3)
    assert reader.latestOffset(_START, None) == {"batch": 0}
    assert reader.latestOffset({"batch": 0}, None) == {"batch": 0}
    operator.run()
    assert reader.latestOffset({"batch": 0}, None) == {"batch": 0}
    operator.run(25)
    assert reader.latestOffset({"batch": 0}, None) == {"batch": 2}
    assert reader.partitions({"batch": 0}, {"batch": 2}) == []


def test_a_new_process_goes_on_where_the_checkpoint_says(operator: Operator) -> None:
    operator.run(3)
    operator.run(25)
    for start in (-1, 0):
        assert _reader(operator).latestOffset({"batch": start}, None) == {"batch": 1}
    for start in (1, 7):  # it never goes back
        assert _reader(operator).latestOffset({"batch": start}, None) == {"batch": start}


def test_where_spark_does_not_say_where_it_stands_offsets_never_go_back(
    operator: Operator,
) -> None:
    """Before 4.2; a query that starts then asks for the partitions of an empty range."""
    operator.run(3)
    operator.run()
    reader = _reader(operator)
    assert reader.latestOffset() == _START
    reader.partitions({"batch": 0}, {"batch": 0})
    assert reader.latestOffset() == {"batch": 0}
    operator.run(25)
    reader.commit({"batch": 0})
    assert reader.latestOffset() == {"batch": 2}
    operator.run()
    reader.commit({"batch": 2})
    assert reader.latestOffset() == {"batch": 2}


def test_a_query_that_waits_looks_once_a_second(operator: Operator) -> None:
    clock = Clock()
    reader = _reader(operator, clock)
    operator.run()
    assert reader.latestOffset(_START, None) == _START
    operator.run(3)
    clock.now_us = 999_999
    assert reader.latestOffset(_START, None) == _START
    clock.now_us = 1_000_000
    assert reader.latestOffset(_START, None) == {"batch": 1}


@pytest.mark.parametrize("told_by", ["the commit before it", "its partitions", "the trigger"])
def test_an_answer_after_a_batch_is_never_an_old_one(operator: Operator, told_by: str) -> None:
    reader = _reader(operator)
    if told_by == "the trigger":
        reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(_START, None) == _START
    operator.run(3)
    if told_by == "the commit before it":
        reader.commit(_START)
    elif told_by == "its partitions":
        reader.partitions(_START, _START)
    assert reader.latestOffset(_START, None) == {"batch": 0}


def test_what_cannot_be_read_is_no_reason_to_fail(
    operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    operator.run(3)
    (segment,) = operator.path.glob("out/*/*.seg")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1])
    reader = _reader(operator)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(_START, None) == _START
    assert "cannot see whether a batch is due" in caplog.text
    segment.write_bytes(whole)
    assert reader.latestOffset(_START, None) == {"batch": 0}


def test_nothing_is_due_where_spark_is_told_to_run_no_batches_without_data(
    operator: Operator,
) -> None:
    operator.run(3)
    assert _reader(operator, is_on=False).latestOffset(_START, None) == _START


def test_it_travels_to_tasks_before_it_has_opened_anything(operator: Operator) -> None:
    reader = TickReader(str(operator.path), is_on=True)
    assert str(operator.path).encode() in pickle.dumps(reader)
