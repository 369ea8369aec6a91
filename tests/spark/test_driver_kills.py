"""kill -9 of the driver, again and again, in the middle of whatever it does: of a query with time
windows, and of one with two aggregates, two operators of users' and a join, each with another
policy."""

from __future__ import annotations

import random
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
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
    operator_paths,
    recoveries,
)
from tests.support.spark_query import Query
from tests.support.spark_runs import Application, hold_a_worker, release, wait_until

_KILLS = 20
#: Of these, so many while an operator is at work.
_INSIDE = 4
#: More than an application gets through before it is killed.
_AHEAD = 8


@dataclass
class Hits:
    """What the kills interrupted, added up over all queries."""

    batches: int = 0
    operators: int = 0
    hand_overs: int = 0

    def look_at(self, query: Query) -> None:
        planned, done = newest_of(query, "offsets"), newest_of(query, "commits")
        if planned <= done:
            return
        self.batches += 1
        self.operators += is_at_work(query, planned)
        self.hand_overs += any(planned in out for _, out in logs_of(query))


def logs_of(query: Query) -> list[tuple[list[int], list[int]]]:
    """The newest batches of the input and of the output of each operator, by bucket."""
    return [
        (newest_segments(query, path, "in"), newest_segments(query, path, "out"))
        for path in operator_paths(query)
    ]


def is_at_work(query: Query, planned: int) -> bool:
    """Whether an operator has the input of a batch, and not all of its output."""
    return any(planned in given and min(out) < planned for given, out in logs_of(query))


class Moment(Enum):
    """When a driver is killed."""

    EARLY = "while it starts, or soon after"
    BETWEEN = "some time after a batch"
    INSIDE = "while a task of a query stands in the middle of a batch that is new"


@dataclass(frozen=True)
class Kill:
    moment: Moment
    #: Workers that survive the driver go on for a moment, beside those of the next one.
    with_workers: bool
    #: The query whose batch or task is waited for.
    struck: Query
    #: Those that go on without their caches, as on another host.
    moved: list[Query]


def plan_kills(rng: random.Random, queries: list[Query]) -> list[Kill]:
    """Every kind of kill so and so often, whatever the seed; the seed says in which order.

    The last one moves all queries: the application after it is not killed, so its recoveries are in
    the log for certain.
    """
    moments = [Moment.EARLY] * 4 + [Moment.INSIDE] * _INSIDE
    moments += [Moment.BETWEEN] * (_KILLS - len(moments))
    rng.shuffle(moments)
    moves = {query.name: {*rng.sample(range(_KILLS), 4), _KILLS - 1} for query in queries}
    return [
        Kill(
            moment,
            with_workers=rng.random() < 0.5,
            struck=rng.choice(queries),
            moved=[query for query in queries if number in moves[query.name]],
        )
        for number, moment in enumerate(moments)
    ]


def strike(application: Application, kill: Kill, rng: random.Random) -> None:
    if kill.moment is Moment.EARLY:
        time.sleep(rng.uniform(0.5, 6))
    elif kill.moment is Moment.BETWEEN:
        application.wait_for_batch(kill.struck)
        time.sleep(rng.uniform(0, 2))
    else:
        # One that is held before may stand in a batch that is replayed.
        application.wait_for_batch(kill.struck)
        hold_a_worker(application, kill.struck)
        # Input is logged beside the work, and by then it may not be.
        application.wait_until(
            "its input is in the log",
            lambda: is_at_work(kill.struck, newest_of(kill.struck, "offsets")),
        )
    application.kill_driver(with_workers=kill.with_workers)


@pytest.mark.parametrize("seed", seeds(1))
def test_twenty_kills_of_the_driver_lose_no_result_and_repeat_none(
    tmp_path: Path, seed: int
) -> None:
    print(f"TRAILMARK_SEED={seed} TRAILMARK_CASES=1 repeats it, but for the moments of the kills.")
    rng = random.Random(seed)
    # Each has files of its own: one that is slower would fall behind further with every kill.
    given = {kind: Orders(tmp_path / f"in-{kind}", seed) for kind in ("time", "chain")}
    queries = [make_query(tmp_path, orders, kind, slow_s=0.05) for kind, orders in given.items()]
    hits = Hits()
    with ExitStack() as until_the_end:
        killed: list[Application] = []
        for kill in plan_kills(rng, queries):
            for query in queries:
                given[query.name].feed_until(_AHEAD, ahead_of=files_taken(query))
            application = until_the_end.enter_context(Application(tmp_path / "app", queries))
            strike(application, kill, rng)
            killed.append(application)
            for query in queries:
                hits.look_at(query)
                release(query)
            for query in kill.moved:
                shutil.rmtree(query.cache, ignore_errors=True)
        until_the_end.enter_context(Application(tmp_path / "app", queries)).finish()
        wait_until("nothing stays behind", lambda: not any(app.processes() for app in killed), 30)
    for query in queries:
        assert_sink_is_right(query, given[query.name])
    found = [recovery for query in queries for recovery in recoveries(query)]
    files = {kind: len(orders.files) for kind, orders in given.items()}
    print(f"{files} files; {hits}; {len(found)} recoveries")
    for recovery in found:
        print(" ", recovery)
    # Most kills hit a batch, and those inside of one have hit an operator in it.
    assert hits.batches >= _KILLS // 2, hits
    assert hits.operators >= _INSIDE, hits
    assert hits.hand_overs > 0, hits
    assert len(found) >= sum(query.buckets for query in queries)
    assert any(recovery.footprints for recovery in found)
    assert any(recovery.replay_tuples for recovery in found)
