"""A process that stands still, is thought dead, and comes back; or does not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.compare import assert_same_rows
from tests.support.oracle import Oracle
from tests.support.orders import count_case, orders, random_orders
from tests.support.plain import plain_rows
from tests.support.processes import STEPS, Place, Run, Worker, serve
from tests.support.verdict import assert_logs_are_right, assert_state_is_right, logged_results
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import BatchReport
from trailmark.errors import BatchGoesBackward

_GOES_ON = 5


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", ["nothing", "merge", "merge and trim"])
def test_a_process_that_was_thought_dead_harms_nothing_when_it_comes_back(
    tmp_path: Path, step: str, after: str
) -> None:
    rng = random.Random(9)
    batches = random_orders(rng, batches=14, rows=30, items=12)
    case = count_case(batches, size=5, slide=4)
    # All footprints are in the newest segment, so that all others may be trimmed.
    place = Place(tmp_path / "log", case, Continuous(u=0), cache=tmp_path / "cache")
    stopped_in = 4
    with Worker(serve, place) as zombie:
        for batch in range(stopped_in):
            assert isinstance(zombie.ask(Run(batch, case.batches[batch])), BatchReport)
        zombie.send(Run(stopped_in, case.batches[stopped_in], stop_at=step))
        zombie.wait_until_stopped()
        bucket = place.bucket()
        for batch in range(stopped_in, stopped_in + _GOES_ON):
            report = bucket.run(batch, case.batches[batch])
            if report.recovery is not None and step != "input":
                assert report.recovery.why == "the cache is in use by another process"
        logs = place.logs()
        if after != "nothing":
            logs.output(0).merge(stopped_in + 3)
            logs.input(0).merge(stopped_in + 3)
        if after == "merge and trim":
            logs.input(0).trim(stopped_in + 4)
            logs.output(0).trim(stopped_in + 4)
        zombie.go_on()
        answer = zombie.receive()
        if after == "merge and trim":
            assert isinstance(answer, BatchReport | BatchGoesBackward), answer
        else:
            assert isinstance(answer, BatchReport), answer
            assert answer.was_logged or step == "commit"
            _assert_answer(case.oracle(), case.batches, answer)
        # It is not told that it was away: the next batch is in the log as well.
        again = zombie.ask(Run(stopped_in + 1, case.batches[stopped_in + 1]))
        if after != "merge and trim":
            assert isinstance(again, BatchReport)
            assert again.was_logged
        for batch in range(stopped_in + _GOES_ON, len(batches)):
            # By turns, whoever has the state and whoever has not.
            answer = (
                zombie.ask(Run(batch, case.batches[batch], keep=False))
                if batch % 2
                else bucket.run(batch, case.batches[batch])
            )
            assert isinstance(answer, BatchReport), answer
            assert not answer.was_logged
        bucket.close()
    if after != "merge and trim":
        oracle = assert_logs_are_right(place, case.batches)[0]
    else:
        oracle = _assert_end_is_right(place)
    assert_state_is_right(place, 0, oracle, len(batches) - 1)


def _assert_answer(oracle: Oracle, batches: Sequence[pa.RecordBatch], answer: BatchReport) -> None:
    expected: list[dict[str, Any]] = []
    for batch in range(answer.batch + 1):
        expected = oracle.process(batch, plain_rows(batches[batch])).results
    assert_same_rows(answer.results, oracle.published(expected), f"batch {answer.batch}")


def _assert_end_is_right(place: Place) -> Oracle:
    """What is left of the logs is whole and has the oracle's results."""
    oracle: Oracle = place.case.oracle()
    log = place.logs().output(0)
    assert log.verify().is_whole, log.verify().problems
    assert place.logs().input(0).verify().is_whole
    for batch, rows in enumerate(place.case.batches):
        expected = oracle.process(batch, plain_rows(rows)).results
        if log.contains(batch):
            assert_same_rows(logged_results(log.read(batch)), expected, f"batch {batch}")
    return oracle


def test_a_process_killed_while_it_is_stopped_gives_the_cache_back(tmp_path: Path) -> None:
    case = count_case([[(1, 1)], [(1, 2)], [(1, 3)], [(2, 4)]])
    place = Place(tmp_path / "log", case, Continuous(), cache=tmp_path / "cache")
    with Worker(serve, place) as worker:
        worker.ask(Run(0, case.batches[0]))
        worker.send(Run(1, orders([(1, 2)]), stop_at="choose"))
        worker.wait_until_stopped()
        worker.kill()
    bucket = place.bucket()
    report = bucket.run(1, case.batches[1])
    assert report.recovery is not None
    assert report.recovery.why == "no whole table in the cache"
    bucket.run(2, case.batches[2])
    bucket.close()
    bucket = place.bucket()
    assert bucket.run(3, case.batches[3]).recovery is None
    bucket.close()
    assert_logs_are_right(place, case.batches)
