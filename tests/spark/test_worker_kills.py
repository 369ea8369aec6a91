"""Tasks that end early: Python workers killed in the middle of a batch, and functions that fail."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark_java import LIGHT_CHECKPOINT
from tests.support.spark_orders import (
    Orders,
    assert_sink_is_right,
    make_query,
    newest_of,
    newest_segments,
    recoveries,
)
from tests.support.spark_runs import Application, caught, hold_a_worker, release, set_trap
from tests.support.spark_versions import needs_spark
from tests.support.stalled import Stalled

_WINDOWS = [
    "count",
    pytest.param(
        "time", marks=needs_spark("4.2", "an availableNow run of several batches beside ticks")
    ),
]


@pytest.fixture(scope="module")
def retrying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """An application whose tasks may fail three times."""
    directory = tmp_path_factory.mktemp("retrying")
    with Application(
        directory, [], master="local[2,4]", conf=LIGHT_CHECKPOINT, serve=True
    ) as application:
        yield application
        application.finish()


@pytest.mark.parametrize("window", _WINDOWS)
def test_workers_killed_in_the_middle_of_a_batch_are_replaced_without_a_trace_in_the_results(
    tmp_path: Path, retrying: Application, window: str
) -> None:
    orders = Orders(tmp_path / "in", seed=3)
    orders.feed(14)
    query = make_query(tmp_path, orders, window, name=f"killed-{window}")
    killed_in = []
    running = retrying.start([query])
    for after in (2, 5, 8):
        retrying.wait_for_batch(query, after)
        worker = hold_a_worker(retrying, query)
        assert worker in retrying.workers()
        batch = newest_of(query, "offsets")
        assert batch > newest_of(query, "commits"), "the batch is not through"
        assert min(newest_segments(query, query.path, "out")) < batch, "nor is the operator"
        retrying.kill(worker)
        killed_in.append(batch)
        release(query)
    assert running.outcome() == ""
    assert_sink_is_right(query, orders)
    found = recoveries(query)
    for batch in killed_in:
        # The one that was killed had the table half changed. The other bucket had no part in it.
        whys = [recovery.why for recovery in found if recovery.batch == batch]
        assert whys == ["no whole table in the cache"], found


@needs_spark("4.2", "tm.union")
def test_workers_killed_while_a_union_answers_without_a_stream_and_while_it_is_corrected(
    tmp_path: Path, retrying: Application
) -> None:
    stalled = Stalled(tmp_path)
    running = stalled.start(retrying)
    retrying.kill(stalled.hold("eu", range(45, 65)))
    stalled.let_go()
    retrying.kill(stalled.hold("asia", range(25, 65)))
    stalled.let_go()
    stalled.finish()
    assert running.outcome() == ""
    stalled.assert_is_right()


def test_workers_killed_at_any_moment_are_replaced_without_a_trace_in_the_results(
    tmp_path: Path, retrying: Application
) -> None:
    rng = random.Random(4)
    orders = Orders(tmp_path / "in", seed=4)
    orders.feed(30)
    query = make_query(tmp_path, orders, "count", name="random", slow_s=0.05)
    killed = 0
    running = retrying.start([query])
    for batch in range(1, 28, 3):
        # Not in every batch: a task may fail three times, and a kill may be felt by two of them.
        retrying.wait_for_batch(query, batch)
        time.sleep(rng.uniform(0, 0.5))
        workers = retrying.workers()
        if workers and not running.has_ended:
            retrying.kill(rng.choice(workers))
            killed += 1
    assert running.outcome() == ""
    assert killed >= 5
    assert_sink_is_right(query, orders)


@pytest.mark.parametrize("window", _WINDOWS)
def test_a_task_that_fails_once_is_retried_without_a_trace_in_the_results(
    tmp_path: Path, retrying: Application, window: str
) -> None:
    orders = Orders(tmp_path / "in", seed=5)
    orders.feed(8)
    query = make_query(tmp_path, orders, window, name=f"failing-{window}")
    running = retrying.start([query])
    retrying.wait_for_batch(query, 2)
    set_trap(query, "raise")
    assert running.outcome() == ""
    assert len(caught(query, "raise")) == 1, "it has failed"
    assert "fails once, for a test" in retrying.errors()
    assert_sink_is_right(query, orders)
    (recovery,) = recoveries(query)
    assert recovery.why == "no whole table in the cache"
    assert recovery.footprints > 0


def test_a_task_that_fails_too_often_ends_the_query_and_a_restart_goes_on(
    tmp_path: Path, retrying: Application
) -> None:
    orders = Orders(tmp_path / "in", seed=6)
    orders.feed(6)
    query = make_query(tmp_path, orders, "count", name="hopeless")
    assert retrying.run([query]) == ""
    orders.feed(6)
    set_trap(query, "refuse")
    assert "fails always, for a test" in retrying.run([query])
    Path(query.trap, "refuse").unlink()
    assert newest_of(query, "commits") == 5
    assert retrying.run([query]) == ""
    assert_sink_is_right(query, orders)
