"""A picture of a query that goes on, and one picture after another."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.followed import Followed
from tests.support.meddling import Meddled
from tests.support.orders import count_case, random_orders
from trailmark.checkpoint.policy import Continuous
from trailmark.inspection import StatusReader, read_status


def _counted(batches: int) -> Followed:
    rows = random_orders(random.Random(3), batches=batches, rows=20, items=5)
    return Followed(count_case(rows), Continuous(q=20, u=60))


def _merge(run: Followed) -> None:
    run.query.logs().output(0).merge(run.next_batch - 3)


def _trim(run: Followed) -> None:
    run.query.logs().output(0).trim(run.next_batch - 2)


def _next(run: Followed) -> None:
    run.step()


def _cut(run: Followed) -> None:
    run.query.logs().output(0).set_aside_after(run.next_batch - 4)


@pytest.mark.parametrize("meddle", [_merge, _trim, _next, _cut])
def test_whatever_happens_while_it_looks_the_picture_is_that_of_one_batch(
    meddle: Callable[[Followed], None],
) -> None:
    run = _counted(14)
    accounts = {0: run.step()[0].account}
    accounts |= {batch: run.step()[0].account for batch in range(1, 12)}
    counting = Meddled(run.disk, -1, lambda: None)
    read_status(counting)
    assert counting.looks > 10
    for look in range(counting.looks):
        twin = run.copy()
        found = read_status(Meddled(twin.disk, look, lambda twin=twin: meddle(twin)))  # type: ignore[misc]
        (bucket,) = found.buckets
        assert not bucket.problem
        if bucket.batch in accounts:
            assert bucket.account == accounts[bucket.batch]
        else:
            assert bucket.batch == 12
        assert bucket.recent is not None
        assert bucket.recent.batches >= 1


def test_one_picture_after_another_reads_each_footer_once() -> None:
    run = _counted(30)
    run.run(20)
    reader = StatusReader(run.disk.storage())
    assert reader.read().last_batch == 19
    for _ in range(10):
        run.step()
        calls = run.disk.calls
        reader.read()
        assert run.disk.calls - calls < 16


def test_a_log_that_was_cut_and_written_anew_is_not_taken_for_the_old_one() -> None:
    run = _counted(12)
    run.run(6)
    at_five = run.copy()
    run.run(6)
    reader = StatusReader(run.disk.storage())
    old = reader.read().buckets[0]
    logs = run.query.logs()
    run.query.stop()
    for log in (logs.output(0), logs.input(0)):
        log.set_aside_after(5)
    at_five.disk = at_five.query.disk = run.disk
    rows = list(at_five.case.batches)
    object.__setattr__(at_five.case, "batches", (*rows[:6], *reversed(rows[6:])))
    reports = [at_five.step() for _ in range(6)]
    new = reader.read().buckets[0]
    assert new.account == reports[-1][0].account
    assert old.recent is not None
    assert new.recent is not None
    outcomes = [at_five.judge.outcome(0, batch) for batch in range(12)]
    assert new.recent.results == sum(len(each.results) for each in outcomes)
    assert new.recent.batches == 12
