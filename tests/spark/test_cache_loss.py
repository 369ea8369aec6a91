"""The cache of operator state goes away, or has no room: that costs time, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.spark_orders import Orders, assert_sink_is_right, make_query, recoveries
from tests.support.spark_runs import Application


def test_a_cache_that_is_deleted_between_batches_is_recovered_from_the_log(
    tmp_path: Path, application: Application
) -> None:
    orders = Orders(tmp_path / "in", seed=11)
    queries = [make_query(tmp_path, orders, window) for window in ("count", "time")]
    first_after = []
    for _ in range(3):
        first_after.append(len(orders.files))
        orders.feed(3)
        assert application.run(queries) == ""
        for query in queries:
            shutil.rmtree(query.cache)
    for query in queries:
        assert_sink_is_right(query, orders)
        found = recoveries(query)
        # All buckets, in the first batch after each deletion, and in no other.
        places = [(recovery.batch, recovery.bucket) for recovery in found]
        assert places == [(batch, bucket) for batch in first_after[1:] for bucket in (0, 1)]
        assert all(recovery.why == "no whole table in the cache" for recovery in found)
        assert all(recovery.footprints > 0 for recovery in found)


def test_a_cache_that_is_deleted_all_the_time_changes_no_result(
    tmp_path: Path, application: Application
) -> None:
    orders = Orders(tmp_path / "in", seed=12)
    orders.feed(12)
    queries = [make_query(tmp_path, orders, window, slow_s=0.02) for window in ("count", "time")]
    running = application.start(queries)
    deleted = 0
    while not running.has_ended:
        for query in queries:
            deleted += Path(query.cache).exists()
            shutil.rmtree(query.cache, ignore_errors=True)
        time.sleep(0.005)
    assert running.outcome() == ""
    assert deleted > 10
    for query in queries:
        assert_sink_is_right(query, orders)
        assert len(recoveries(query)) > 10


def _with_small_disks(kilobytes: dict[str, int]) -> list[str]:
    """A command under which there is little room in some directories; skips where it cannot be.

    The disks are in a mount namespace of their own: they end with the application, whatever
    happens.
    """
    mounts = []
    for number, (directory, size) in enumerate(kilobytes.items(), start=1):
        Path(directory).mkdir(parents=True)
        mounts.append(f'mount -t tmpfs -o size={size}k,mode=700 none "${number}"')
    script = " && ".join([*mounts, f"shift {len(mounts)}", 'exec "$@"'])
    namespace = ["unshare", "--mount", "--map-root-user"]
    command = [*namespace, "sh", "-c", script, "sh", *kilobytes]
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs unshare(1) to mount a small disk")
    if tried.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {tried.stderr.strip()}")
    return command


def test_a_cache_on_a_full_disk_changes_no_result(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "in", seed=13, rows=3000, items=400)
    orders.feed(8)
    never = make_query(tmp_path, orders, "time")
    at_first = make_query(tmp_path, orders, "count")
    # The tables of `at_first` need 344 kB in the first batches and 528 kB from the third on.
    wrapper = _with_small_disks({never.cache: 16, at_first.cache: 440})
    with Application(tmp_path / "app", [never, at_first], wrapper=wrapper) as application:
        application.finish()
        assert "works without its cache: No room for" in application.errors()
    last = len(orders.files) - 1
    for query in (never, at_first):
        assert_sink_is_right(query, orders)
        assert last in {recovery.batch for recovery in recoveries(query)}, "there was no room"
    assert len(recoveries(never)) == never.buckets * last, "nor was there ever any"
    assert 1 not in {recovery.batch for recovery in recoveries(at_first)}, "there was some"
