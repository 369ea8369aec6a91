"""Two aggregates and two operators of users' in one query, each with another policy: drivers,
workers and executors are killed under them, and the sink is what plain Python gives."""

from __future__ import annotations

import random
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.seeds import seeds
from tests.support.spark_orders import (
    Orders,
    assert_sink_is_right,
    files_taken,
    make_query,
    newest_of,
    newest_segments,
    recoveries,
)
from tests.support.spark_query import Query
from tests.support.spark_runs import (
    EAGER_SPECULATION,
    SMALL_EXECUTORS,
    Application,
    Cluster,
    caught,
    executor_of,
    hold_a_worker,
    release,
    set_trap,
    wait_until,
)

_KILLS = 20
#: More than an application gets through before it is killed.
_AHEAD = 6


def _strike(application: Application, query: Query, kill: int, rng: random.Random) -> bool:
    """Kills the driver: in the middle of a batch, after one, or while it starts. Tells whether a
    batch was under way."""
    if kill % 2:
        hold_a_worker(application, query)
    elif kill % 4:
        application.wait_for_batch(query)
        time.sleep(rng.uniform(0, 1))
    else:
        time.sleep(rng.uniform(1, 6))
    application.kill_driver(with_workers=rng.random() < 0.5)
    return newest_of(query, "offsets") > newest_of(query, "commits")


@pytest.mark.parametrize("seed", seeds(1))
def test_twenty_kills_of_the_driver_lose_no_result_and_repeat_none(
    tmp_path: Path, seed: int
) -> None:
    print(f"TRAILMARK_SEED={seed} TRAILMARK_CASES=1 repeats it, but for the moments of the kills.")
    rng = random.Random(seed)
    orders = Orders(tmp_path / "in", seed)
    query = make_query(tmp_path, orders, "chain", slow_s=0.05)
    hits, killed = 0, []
    with ExitStack() as until_the_end:
        for kill in range(_KILLS):
            orders.feed_until(_AHEAD, ahead_of=files_taken(query))
            application = until_the_end.enter_context(Application(tmp_path / "app", [query]))
            hits += _strike(application, query, kill, rng)
            killed.append(application)
            release(query)
            if kill % 3 == 0 or kill == _KILLS - 1:  # as on another host
                shutil.rmtree(query.cache, ignore_errors=True)
        orders.feed_until(_AHEAD, ahead_of=files_taken(query))
        until_the_end.enter_context(Application(tmp_path / "app", [query])).finish()
        wait_until("nothing stays behind", lambda: not any(app.processes() for app in killed), 30)
    assert_sink_is_right(query, orders)
    assert hits >= _KILLS // 2
    assert len(recoveries(query)) >= query.buckets
    print(f"{len(orders.files)} files; {hits} hits; {recoveries(query)}")


def test_workers_are_killed_tasks_fail_and_the_cache_is_deleted(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "in", seed=3)
    orders.feed(13)
    query = make_query(tmp_path, orders, "chain")
    with Application(tmp_path / "app", [query], master="local[2,4]") as application:
        for after in (3, 6):
            application.wait_for_batch(query, after)
            worker = hold_a_worker(application, query)
            batch = newest_of(query, "offsets")
            assert batch > newest_of(query, "commits"), "the batch is not through"
            assert min(newest_segments(query, "out")) <= batch
            application.kill(worker)
            release(query)
        application.wait_for_batch(query, 8)
        set_trap(query, "raise")
        application.wait_until("one has failed", lambda: bool(caught(query, "raise")))
        application.wait_for_batch(query, 10)
        shutil.rmtree(query.cache)
        application.finish()
        assert "fails once, for a test" in application.errors()
    assert_sink_is_right(query, orders)
    assert len(recoveries(query)) >= query.buckets, "at least when the cache was gone"


def test_an_executor_is_killed_and_a_task_has_a_twin(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "in", seed=4)
    orders.feed(13)
    query = make_query(tmp_path, orders, "chain", slow_s=0.02)
    conf = {**SMALL_EXECUTORS, **EAGER_SPECULATION}
    with (
        Cluster(tmp_path / "cluster", ["127.0.0.1", "127.0.0.2"]) as cluster,
        Application(tmp_path / "app", [query], master=cluster.url, conf=conf) as application,
    ):
        application.wait_for_batch(query, 4)
        worker = hold_a_worker(application, query)
        # It stands still with the state in its hands: what completes the batch is its twin.
        application.wait_for_batch(query, newest_of(query, "offsets"))
        assert caught(query, "hold") == [worker], "it was not let go before"
        release(query)
        application.wait_for_batch(query, 7)
        worker = hold_a_worker(application, query)
        killed = executor_of(worker)
        application.kill(killed)
        release(query)
        application.finish()
    assert_sink_is_right(query, orders)
