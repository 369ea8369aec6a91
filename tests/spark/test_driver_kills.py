"""kill -9 of the driver, again and again, in the middle of whatever it does."""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import dataclass
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
from tests.support.spark_runs import Application, wait_until

_KILLS = 20
#: More than an application gets through before it is killed.
_AHEAD = 12


@dataclass
class Hits:
    """What the kills interrupted, added up over both queries."""

    batches: int = 0
    operators: int = 0
    hand_overs: int = 0

    def look_at(self, query: Query) -> None:
        planned, done = newest_of(query, "offsets"), newest_of(query, "commits")
        if planned <= done:
            return
        self.batches += 1
        given, answered = newest_segments(query, "in"), newest_segments(query, "out")
        if planned in given and min(answered) < planned:
            self.operators += 1
        if planned in answered:
            self.hand_overs += 1


@pytest.mark.parametrize("seed", seeds(1))
def test_twenty_kills_of_the_driver_lose_no_result_and_repeat_none(
    tmp_path: Path, seed: int
) -> None:
    print(f"TRAILMARK_SEED={seed} TRAILMARK_CASES=1 repeats it, but for the moments of the kills.")
    rng = random.Random(seed)
    orders = Orders(tmp_path / "in", seed)
    queries = [make_query(tmp_path, orders, window, slow_s=0.1) for window in ("count", "time")]
    hits = Hits()
    killed: list[Application] = []
    while len(killed) < _KILLS:
        orders.feed_until(_AHEAD, ahead_of=max(files_taken(query) for query in queries))
        with Application(tmp_path / "app", queries) as application:
            if rng.random() < 0.2:
                time.sleep(rng.uniform(0.5, 6))
            else:
                application.wait_for_batch(queries[0])
                time.sleep(rng.uniform(0, 2))
            # Workers that survive the driver go on for a moment, beside those of the next one.
            application.kill_driver(with_workers=rng.random() < 0.5)
            killed.append(application)
        for query in queries:
            hits.look_at(query)
            if rng.random() < 0.2:
                shutil.rmtree(query.cache, ignore_errors=True)  # as on another host
    with Application(tmp_path / "app", queries) as application:
        application.finish()
    wait_until("nothing stays behind", lambda: not any(app.processes() for app in killed), 30)
    for query in queries:
        assert_sink_is_right(query, orders)
    found = [recovery for query in queries for recovery in recoveries(query)]
    print(f"{len(orders.files)} files; {hits}; {len(found)} recoveries")
    for recovery in found:
        print(" ", recovery)
    # Most kills hit one: of the others there are fewer, but a run without any proves little.
    assert hits.batches >= _KILLS // 2, hits
    assert hits.operators > 0, hits
    assert hits.hand_overs > 0, hits
    assert any(recovery.footprints for recovery in found)
    assert any(recovery.replay_tuples for recovery in found)
