"""Executors in processes of their own: one is killed within a batch, also of a union that has to do
without a stream; a task has a twin."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.network import loopback_hosts
from tests.support.spark_orders import (
    Orders,
    assert_sink_is_right,
    make_query,
    newest_of,
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
)
from tests.support.stalled import Stalled


def test_an_executor_killed_in_the_middle_of_a_batch_is_replaced_without_a_trace_in_the_results(
    tmp_path: Path,
) -> None:
    orders = Orders(tmp_path / "in", seed=21)
    orders.feed(10)
    queries = [make_query(tmp_path, orders, window) for window in ("count", "time")]
    application = Application(
        tmp_path / "app",
        queries,
        master="local-cluster[2,1,1024]",
        conf=SMALL_EXECUTORS,
        serve=True,
    )
    killed: dict[str, int] = {}
    with application:
        for query, after in zip(queries, (1, 4), strict=True):
            application.wait_for_batch(query, after)
            worker = hold_a_worker(application, query)
            killed[query.name] = newest_of(query, "offsets")
            assert killed[query.name] > newest_of(query, "commits"), "the batch is not through"
            _replace_executor(application, worker)
            release(query)
        application.wait_until("the end of both", lambda: application.outcomes() == [""])
        stalled = Stalled(tmp_path)
        running = stalled.start(application)
        _replace_executor(application, stalled.hold("eu", range(45, 65)))
        stalled.let_go()
        stalled.go_on("asia", range(25, 65))
        stalled.finish()
        assert running.outcome() == ""
        application.finish()
    stalled.assert_is_right()
    for query in queries:
        assert_sink_is_right(query, orders)
        assert killed[query.name] in {recovery.batch for recovery in recoveries(query)}


def _replace_executor(application: Application, worker: int) -> None:
    """Kills the one that a worker works for, and waits for the next."""
    executor = executor_of(worker)
    application.kill(executor)
    application.wait_until("there is another one", lambda: len(application.executors()) == 2)
    assert executor not in application.executors()


def test_a_task_and_its_speculative_twin_give_one_result(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "in", seed=22)
    orders.feed(10)
    query = make_query(tmp_path, orders, "count", slow_s=0.02)
    conf = {**SMALL_EXECUTORS, **EAGER_SPECULATION}
    with (
        Cluster(tmp_path / "cluster", loopback_hosts(2)) as cluster,
        Application(tmp_path / "app", [query], master=cluster.url, conf=conf) as application,
    ):
        held_in = []
        for after in (1, 4):
            application.wait_for_batch(query, after)
            worker = hold_a_worker(application, query)
            held_in.append(newest_of(query, "offsets"))
            # It stands still with the table in its hands: what completes the batch is its twin.
            application.wait_for_batch(query, held_in[-1])
            assert caught(query, "hold") == [worker], "it was not let go before"
            release(query)
        application.finish()
    assert_sink_is_right(query, orders)
    whys = {recovery.batch: recovery.why for recovery in recoveries(query)}
    for batch in held_in:
        assert whys[batch] == "the cache is in use by another process", whys
