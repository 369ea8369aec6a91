"""The cache of operator state goes away, or has no room: that costs time, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.spark_orders import (
    Orders,
    assert_sink_is_right,
    make_query,
    newest_after,
    newest_of,
    recoveries,
)
from tests.support.spark_runs import Application


def test_a_cache_that_is_deleted_between_batches_is_recovered_from_the_log(
    tmp_path: Path, application: Application
) -> None:
    orders = Orders(tmp_path / "in", seed=11)
    queries = [make_query(tmp_path, orders, window) for window in ("count", "time")]
    first_after: dict[str, list[int]] = {query.name: [] for query in queries}
    for _ in range(3):
        for query in queries:
            first_after[query.name].append(newest_of(query, "commits") + 1)
        orders.feed(3)
        assert application.run(queries) == ""
        for query in queries:
            shutil.rmtree(query.cache)
    for query in queries:
        assert_sink_is_right(query, orders)
        found = recoveries(query)
        # All buckets, in the first batch after each deletion, and in no other.
        places = [(recovery.batch, recovery.bucket) for recovery in found]
        assert places == [
            (batch, bucket) for batch in first_after[query.name][1:] for bucket in (0, 1)
        ]
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
        Path(directory).mkdir(parents=True, exist_ok=True)
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
    # After the last file comes a batch without data, which closes windows of time.
    newest = newest_after(never, orders)
    assert len(recoveries(never)) == never.buckets * newest, "nor was there ever any"
    assert 1 not in {recovery.batch for recovery in recoveries(at_first)}, "there was some"


def test_a_table_that_outgrows_shared_memory_goes_on_in_temporary_files(tmp_path: Path) -> None:
    """As in a container, whose /dev/shm has 64 MB unless it is told otherwise."""
    orders = Orders(tmp_path / "in", seed=13, rows=3000, items=400)
    orders.feed(8)
    query = replace(make_query(tmp_path, orders, "count"), cache="")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    wrapper = [*_with_small_disks({"/dev/shm": 440}), "env", f"TMPDIR={temporary}"]
    with Application(tmp_path / "app", [query], wrapper=wrapper) as application:
        application.finish()
        said = application.errors()
    assert_sink_is_right(query, orders)
    moved = [recovery.bucket for recovery in recoveries(query)]
    assert sorted(set(moved)) == sorted(moved), "a bucket moves once, if at all"
    assert 0 < len(moved) == said.count(f"keeps its state in {temporary}") <= query.buckets
    assert "--shm-size" in said
    tokens = list(temporary.glob("trailmark-*/*/*/token"))
    assert len(tokens) == len(moved)
