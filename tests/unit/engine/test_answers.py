"""A batch that is in the log is answered from there: neither lost nor repeated."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.compare import assert_same_rows
from tests.support.followed import Followed
from tests.support.harm import flip_in
from tests.support.hooked import HookedAggregate
from tests.support.orders import (
    count_case,
    orders,
    random_orders,
    random_timed_orders,
    time_case,
)
from tests.support.plain import plain_rows
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import BatchReport, Bucket
from trailmark.errors import DamagedSegment
from trailmark.records import Stream


@pytest.fixture
def run() -> Followed:
    batches = random_timed_orders(random.Random(1), batches=10, rows=25, items=4)
    case = time_case(batches, slide=5_000_000, late="keep")
    return Followed(case, Continuous(u=60))


def _assert_same_answer(again: BatchReport, first: BatchReport) -> None:
    assert again.was_logged
    assert again.recovery is None
    assert again.output_bytes == 0
    assert_same_rows(again.results, plain_rows(first.results), f"batch {first.batch}")
    assert again.results.schema == first.results.schema
    assert (again.late is None) == (first.late is None)
    if first.late is not None:
        assert again.late is not None
        assert again.late.to_pylist() == first.late.to_pylist()
    for name in ("batch", "bucket", "account", "late_rows", "late_updates", "null_times"):
        assert getattr(again, name) == getattr(first, name), name
    assert again.footprints_opened == first.footprints_opened
    assert again.footprints_checked == first.footprints_checked


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_second_evaluation_gives_the_answer_of_the_first(
    run: Followed, is_restarted: bool
) -> None:
    for (first,) in run.steps():
        if is_restarted:
            run.query.stop()
        files = run.disk.files()
        _assert_same_answer(run.query.run(first.batch, run.parts(first.batch))[0], first)
        assert run.disk.files() == files, "nothing is written"


def test_a_second_evaluation_leaves_the_state_where_it_is(run: Followed) -> None:
    for (first,) in run.steps():
        assert first.recovery is None
        run.query.run(first.batch, run.parts(first.batch))


def test_every_batch_the_output_log_holds_can_be_asked_for_again(run: Followed) -> None:
    answers = [report for (report,) in run.steps()]
    run.query.logs().output(0).merge(6)
    run.query.logs().input(0).trim(9)
    run.query.stop()
    for first in answers:
        _assert_same_answer(run.query.run(first.batch, run.parts(first.batch))[0], first)


def test_an_answer_that_is_damaged_is_refused_by_name(run: Followed) -> None:
    run.run(4)
    path = flip_in(run.disk, Stream.OUTPUT, 2)
    with pytest.raises(DamagedSegment) as refused:
        run.query.run(2, run.parts(2))
    assert path in refused.value.where
    run.run()


def test_the_order_of_rows_that_was_logged_first_counts() -> None:
    """The input was published, the output was not, and the rows come again in another order."""
    run = Followed(count_case([[(1, 5), (1, 6), (1, 7)], [(1, 8)]], size=2), Continuous())

    def fail() -> None:
        bucket.close()  # waits for the input segment
        raise RuntimeError("after the input")

    operator = HookedAggregate(run.case, after=fail)
    bucket = Bucket(operator, run.query.logs(), 0, run.query.policy, None, run.query.clock)
    with pytest.raises(RuntimeError, match="after the input"):
        bucket.run(0, run.case.batches[0])
    (report,) = run.query.run(0, [orders([(1, 7), (1, 6), (1, 5)])])
    assert not report.was_logged
    assert report.results.to_pylist() == [{"item": 1, "total": 11, "number": 2, "last": 6}]
    (report,) = run.query.run(1, run.parts(1))
    assert report.results.to_pylist() == [{"item": 1, "total": 15, "number": 2, "last": 8}]


def test_whoever_comes_second_with_the_output_answers_with_the_first_ones(
    tmp_path: Path,
) -> None:
    """Another process does the whole batch while this one is at work on it."""
    batches = random_orders(random.Random(2), batches=6, rows=30, items=8)
    run = Followed(count_case(batches, size=3), Continuous(u=20), cache_root=tmp_path / "cache")
    for batch in range(6):
        twin: list[BatchReport] = []

        def overtake(batch: int = batch, twin: list[BatchReport] = twin) -> None:
            twin.extend(run.step())

        operator = HookedAggregate(run.case, after=overtake)
        bucket = Bucket(operator, run.query.logs(), 0, run.query.policy, None, run.query.clock)
        _assert_same_answer(bucket.run(batch, run.case.batches[batch]), twin[0])
        assert not twin[0].was_logged
        assert bucket.state() is None, "its own work is thrown away"
        bucket.close()


def test_an_empty_batch_is_logged_like_any_other() -> None:
    run = Followed(count_case([[], [(1, 1)], [], []], size=2), Continuous())
    reports = [report for (report,) in run.steps()]
    assert [report.results.num_rows for report in reports] == [0, 0, 0, 0]
    assert run.query.logs().output(0).batches() == [0, 1, 2, 3]
    assert run.query.logs().input(0).batches() == [0, 1, 2, 3]
