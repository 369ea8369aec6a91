"""Logs, streams and queries in an object store behind a proxy that misbehaves."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from tests.support.lives import life_of
from tests.support.logs import append, open_log, rows_of
from tests.support.object_store import new_bucket
from tests.support.s3_proxy import Plan, Proxy, RandomFaults
from tests.support.streams import Row, Written, often, orders, rows_by_batch, written
from trailmark.errors import StorageError
from trailmark.log import Storage, open_storage
from trailmark.records import START_OF_LOG, FrameKind, SegmentLink
from trailmark.settings import Durability
from trailmark.testing.disk import SimulatedDisk


@dataclass(frozen=True)
class _Place:
    """Stands for a disk, as far as a query asks for its storage."""

    url: str

    def storage(self, durability: Durability = Durability.SYNCED) -> Storage:
        del durability
        return open_storage(self.url)


def live_log(url: str) -> None:
    """A log is filled, merged and trimmed, and holds what it was given."""
    links: list[SegmentLink] = []

    def fill(last: int) -> None:
        log = open_log(open_storage(url))
        for batch in range(len(links), last + 1):
            previous = links[-1] if links else START_OF_LOG
            links.append(_until_done(partial(append, log, batch, previous)).link)

    fill(3)
    _until_done(lambda: open_log(open_storage(url)).merge(2))
    fill(5)
    _until_done(lambda: open_log(open_storage(url)).trim(4))
    _until_done(lambda: open_log(open_storage(url)).repair())
    log = open_log(open_storage(url))
    found = _until_done(lambda: list(log.read_from()))
    assert [segment.link for segment in found] == links[4:]
    assert all(each.table(FrameKind.INPUT) == rows_of(each.batch) for each in found)


def live_stream(url: str, commits: int = 4) -> None:
    """A query and a row of jobs write to one stream at once; every row is there once.

    Only a job that is told of a failure may find its rows there or not.
    """
    stream = _until_done(lambda: written(open_storage(url), time_column="time"))
    doubtful: list[Row] = []
    failures: list[BaseException] = []

    def run(commit: Callable[[Written, int], None]) -> None:
        mine = Written(open_storage(url), stream.meta, stream.clock)
        try:
            for number in range(commits):
                commit(mine, number)
        except BaseException as error:  # noqa: BLE001 - told to the test, which raises it
            failures.append(error)

    def as_query(mine: Written, number: int) -> None:
        _until_done(lambda: mine.add(orders(number), "query", number))

    def as_job(mine: Written, number: int) -> None:
        rows = orders(100 + number)
        try:
            mine.add(rows)
        except StorageError:
            doubtful.extend(rows)

    with often(trim=2, merge=4):
        threads = [threading.Thread(target=run, args=(act,)) for act in (as_query, as_job)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    found = Counter(_until_done(stream.rows))
    given = [row for n in range(commits) for row in (*orders(n), *orders(100 + n))]
    assert max(found.values()) == 1, "no row is there twice"
    assert set(given) - set(doubtful) <= set(found) <= set(given)
    assert _until_done(lambda: stream.log().verify()).problems == []


def live_job(url: str) -> None:
    """The least there is: jobs, one after another; one that is told to have failed may have run."""
    found: list[list[Row]] = []
    for batch in range(2):
        stream = _until_done(lambda: written(open_storage(url), time_column="time"))
        try:
            stream.add(orders(batch))
            is_told = False
        except StorageError:
            is_told = True
        before, found = found, _until_done(lambda: list(rows_by_batch(open_storage(url)).values()))
        assert found == [*before, orders(batch)] or (is_told and found == before)


def live_query(url: str, kind: str = "overlapping") -> None:
    """A query runs, is merged, trimmed and repaired, and gives what the oracle gives."""
    life = life_of(kind, cast(SimulatedDisk, _Place(url)))
    for step in life.steps():
        _until_done(step)
    _until_done(life.check)
    life.query.stop()


LIVES: dict[str, Callable[[str], None]] = {
    "job": live_job,
    "log": live_log,
    "stream": live_stream,
    "query": live_query,
}


def _until_done(act: Callable[[], Any], most: int = 5) -> Any:
    """Does it again when it is told to have failed, as Spark does."""
    for _ in range(most - 1):
        try:
            return act()
        except StorageError:
            continue
    return act()


def run_s3_case(proxy: Proxy, kind: str, seed: int) -> int:
    """One life in a new bucket with random faults; returns how many it met."""
    return run_planned(proxy, kind, RandomFaults(seed))


def run_planned(proxy: Proxy, kind: str, plan: Plan | None) -> int:
    """One life in a new bucket with the faults of a plan; returns how many it met."""
    proxy.begin(None)
    url = new_bucket()
    proxy.begin(plan)
    try:
        LIVES[kind](url)
        return len(proxy.met)
    finally:
        proxy.plan = None
