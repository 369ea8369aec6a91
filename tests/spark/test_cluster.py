"""A cluster of hosts, each with a network interface and memory of its own, and clocks an hour
apart: buckets stay where their states are; hosts are killed, have no room left, are frozen and cut
off, and drivers, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.clocks import ahead, wrong_clock
from tests.support.cluster import Cluster, go_on
from tests.support.network import LinkedHost, hosts_on_a_switch
from tests.support.spark_java import LIGHT_CHECKPOINT
from tests.support.spark_orders import (
    Orders,
    assert_sink_is_right,
    make_query,
    newest_of,
    recoveries,
)
from tests.support.spark_query import Query
from tests.support.spark_runs import SMALL_EXECUTORS, Application, hold_a_worker, release
from trailmark.log import StreamLog, open_storage, read_meta
from trailmark.records import Stream

#: What docs/clusters.md says to set, and failures that are noticed soon.
_CONF = {
    **SMALL_EXECUTORS,
    **LIGHT_CHECKPOINT,
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "1s",
    # A task that finds a disk full goes to another host, soon.
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.timeout": "3s",
}
_LOST_AFTER_S = 6
_BUCKETS = 3
_HOUR_S = 3_600
#: Why a bucket recovers on a host that is full, as its listener says.
_NO_ROOM = "there is no room in the cache"


@pytest.fixture
def hosts() -> Iterator[list[LinkedHost]]:
    """For a master, two drivers and three workers."""
    with hosts_on_a_switch(6) as found:
        yield found


def _query(root: Path, orders: Orders) -> Query:
    """Its states are where they are by default, in the memory of a host."""
    query = make_query(root, orders, "count", buckets=_BUCKETS, slow_s=0.05)
    return replace(query, cache="")


def _application(
    directory: Path, cluster: Cluster, driver: LinkedHost, query: Query, **conf: str
) -> Application:
    settings = {**_CONF, **driver.driver_conf(), **conf}
    return Application(directory, [query], master=cluster.url, conf=settings, wrapper=driver.start)


def test_hosts_that_are_killed_frozen_and_cut_off_leave_no_trace_in_the_results(
    tmp_path: Path, hosts: list[LinkedHost]
) -> None:
    master, driver, _, *workers = hosts
    orders = Orders(tmp_path / "in", seed=31)
    orders.feed(50)
    query = _query(tmp_path, orders)
    clock = wrong_clock(tmp_path)
    apart = [
        ahead(host, hours * _HOUR_S, clock) for host, hours in zip(workers, (1, 0, -1), strict=True)
    ]
    with Cluster(
        tmp_path / "cluster",
        apart,
        master=master,
        lost_after_s=_LOST_AFTER_S,
        local_dirs="/dev/shm/spark",
    ) as cluster:
        with _application(tmp_path / "app", cluster, driver, query) as application:
            application.wait_for_batch(query, 8)

            came, killed_in = _hold(cluster, application, query)
            cluster.kill(came)
            release(query)
            application.wait_for_batch(query, killed_in + 5)

            _, came_in = _hold(cluster, application, query)
            cluster.start_worker(came)
            application.wait_until("its executor is up", lambda: bool(cluster.executors(came)))
            with cluster.full(came):
                release(query)
                application.wait_until("it has no room", lambda: _NO_ROOM in application.errors())
                assert not cluster.states(came)
            application.wait_until("it has a bucket again", lambda: bool(cluster.states(came)))

            host, frozen_in = _hold(cluster, application, query)
            frozen = cluster.freeze(host)
            release(query)
            application.wait_for_batch(query, frozen_in + 2)
            go_on(frozen)  # and with the batch that others have done meanwhile

            host, cut_in = _hold(cluster, application, query)
            workers[host].link.cut()
            release(query)
            application.wait_for_batch(query, cut_in + 2)
            workers[host].link.mend()
            application.wait_for_batch(query, cut_in + 4)

            hold_a_worker(application, query)
            application.kill_driver(with_workers=True)
            release(query)
        with _application(tmp_path / "app", cluster, driver, query) as application:
            application.finish()
    assert_sink_is_right(query, orders)
    told = _times_told(query)
    assert max(told) - min(told) > 1.5 * _HOUR_S, "buckets were on hosts with all three clocks"
    recovered_in = {recovery.batch for recovery in recoveries(query)}
    print(f"killed {killed_in}, came {came_in}, frozen {frozen_in}, cut {cut_in}: {recovered_in}")
    # Executors that come after the first batches get buckets of those that were there.
    assert recovered_in.isdisjoint(range(5, killed_in)), "buckets stay where they are"
    assert recovered_in.isdisjoint(range(killed_in + 3, came_in)), "and all are warm again soon"


def _times_told(query: Query) -> list[float]:
    """When batches were written, by the clocks of the hosts that wrote them: in seconds."""
    storage = open_storage(query.path)
    meta = read_meta(storage)
    assert meta is not None
    logs = [StreamLog(storage, Stream.OUTPUT, meta.log_id, bucket) for bucket in range(_BUCKETS)]
    return [segment.footer.written_us / 1e6 for log in logs for segment in log.read_from()]


def _hold(cluster: Cluster, application: Application, query: Query) -> tuple[int, int]:
    """A host that is in the middle of a batch, and the batch."""
    host = cluster.host_of(hold_a_worker(application, query))
    return host, newest_of(query, "offsets")


def test_a_driver_that_is_cut_off_and_another_in_its_place_give_no_result_twice(
    tmp_path: Path, hosts: list[LinkedHost]
) -> None:
    master, first_host, second_host, *workers = hosts
    orders = Orders(tmp_path / "in", seed=32)
    orders.feed(18)
    query = _query(tmp_path, orders)
    # The executors of a driver that is cut off know of nothing, and keep their cores.
    conf = {"spark.executor.cores": "1", "spark.cores.max": "3"}
    with (
        Cluster(tmp_path / "cluster", workers, master=master, cores=2) as cluster,
        _application(tmp_path / "first", cluster, first_host, query, **conf) as first,
    ):
        first.wait_for_batch(query, 4)
        _, cut_in = _hold(cluster, first, query)
        first_host.link.cut()
        release(query)
        with _application(tmp_path / "second", cluster, second_host, query, **conf) as second:
            second.wait_for_batch(query, cut_in + 2)
            first_host.link.mend()
            second.finish()
        first.wait_until("it has noticed", lambda: bool(first.outcomes()))
        (failure,) = first.outcomes()
        assert failure, "it was not the one to finish"
    assert_sink_is_right(query, orders)


#: Executors come when tasks have to wait, and go when they have nothing to do, with states or
#: without.
_ELASTIC = {
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.enabled": "true",
    # They would stay as long as they have what the batch was shuffled to; so it goes elsewhere.
    "spark.dynamicAllocation.shuffleTracking.enabled": "false",
    "spark.dynamicAllocation.initialExecutors": "3",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
}


def test_executors_that_are_given_back_and_decommissioned_leave_no_trace_in_the_results(
    tmp_path: Path, hosts: list[LinkedHost]
) -> None:
    master, driver, _, *workers = hosts
    orders = Orders(tmp_path / "in", seed=33)
    orders.feed(30)
    query = _query(tmp_path, orders)

    def holding(cluster: Cluster) -> list[int]:
        return [number for number in range(len(workers)) if cluster.executors(number)]

    with (
        Cluster(tmp_path / "cluster", workers, master=master) as cluster,
        _application(tmp_path / "app", cluster, driver, query, **_ELASTIC) as application,
    ):
        application.wait_for_batch(query, 4)

        busy, given_back_in = _hold(cluster, application, query)
        application.wait_until("the others are given back", lambda: holding(cluster) == [busy])
        release(query)
        _hold(cluster, application, query)  # of three tasks the first: two have to wait for it
        application.wait_until("others come", lambda: len(holding(cluster)) == len(workers))
        release(query)
        application.wait_for_batch(query, given_back_in + 4)

        left, left_in = _hold(cluster, application, query)
        (executor,) = cluster.executors(left)
        cluster.decommission(left)
        release(query)
        application.wait_until("it has ended", lambda: executor not in cluster.executors(left))
        application.finish()
    assert_sink_is_right(query, orders)
    recovered_in = {recovery.batch for recovery in recoveries(query)}
    print(f"given back {given_back_in}, decommissioned {left_in}: {recovered_in}")
    assert recovered_in & set(range(given_back_in, left_in)), "states went with their executors"
