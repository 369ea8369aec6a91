"""Two aggregates and two operators of users' in one query, each with another policy: workers and
executors are killed under them, and the sink is what plain Python gives. Drivers are killed in
`test_driver_kills`."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.network import loopback_hosts
from tests.support.spark_orders import (
    Orders,
    assert_sink_is_right,
    make_query,
    newest_of,
    newest_segments,
    recoveries,
)
from tests.support.spark_runs import (
    EAGER_SPECULATION,
    SMALL_EXECUTORS,
    Application,
    caught,
    executor_of,
    hold_a_worker,
    release,
    set_trap,
)


def test_workers_are_killed_tasks_fail_and_the_cache_is_deleted(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "in", seed=3)
    orders.feed(9)
    query = make_query(tmp_path, orders, "chain")
    with Application(tmp_path / "app", [query], master="local[2,4]") as application:
        for after in (2, 4):
            application.wait_for_batch(query, after)
            worker = hold_a_worker(application, query)
            batch = newest_of(query, "offsets")
            assert batch > newest_of(query, "commits"), "the batch is not through"
            assert min(newest_segments(query, query.path, "out")) <= batch
            application.kill(worker)
            release(query)
        application.wait_for_batch(query, 5)
        set_trap(query, "raise")
        application.wait_until("one has failed", lambda: bool(caught(query, "raise")))
        application.wait_for_batch(query, 6)
        Path(query.cache).rename(tmp_path / "lost")  # at once: tasks go on to write there
        application.finish()
        assert "fails once, for a test" in application.errors()
    assert_sink_is_right(query, orders)
    assert len(recoveries(query)) >= query.buckets, "at least when the cache was gone"


def test_an_executor_is_killed_and_a_task_has_a_twin(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "in", seed=4)
    orders.feed(9)
    query = make_query(tmp_path, orders, "chain", slow_s=0.02)
    conf = {**SMALL_EXECUTORS, **EAGER_SPECULATION}
    with (
        Cluster(tmp_path / "cluster", loopback_hosts(2)) as cluster,
        Application(tmp_path / "app", [query], master=cluster.url, conf=conf) as application,
    ):
        application.wait_for_batch(query, 2)
        worker = hold_a_worker(application, query)
        # It stands still with the state in its hands: what completes the batch is its twin.
        application.wait_for_batch(query, newest_of(query, "offsets"))
        assert caught(query, "hold") == [worker], "it was not let go before"
        release(query)
        application.wait_for_batch(query, 4)
        worker = hold_a_worker(application, query)
        killed = executor_of(worker)
        application.kill(killed)
        release(query)
        application.finish()
    assert_sink_is_right(query, orders)
