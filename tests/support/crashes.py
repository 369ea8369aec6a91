"""One random case with random crashes, from one seed: for the tests and for the soak."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from tests.support.barriers import random_barrier
from tests.support.engine import CrashCase, CrashPlan, Judge, Query
from tests.support.followed import Followed
from tests.support.grouping import random_grouped
from tests.support.joining import random_join
from tests.support.keyed import random_keyed
from tests.support.leaps import JumpingWall, LeapingClock
from tests.support.pairing import random_pairing
from tests.support.policies import footprints_for, policy_for
from tests.support.rooms import small_rooms
from tests.support.seeds import reported
from tests.support.sessions import random_sessions
from tests.support.strategies import random_case
from tests.support.whole import random_whole
from trailmark.engine import upkeep
from trailmark.log.storage import spares
from trailmark.recovery import catching_up
from trailmark.testing.disk import Crashed, SimulatedDisk


@contextmanager
def kept_short() -> Iterator[None]:
    """Logs are trimmed and merged after few batches, and their files soon written over."""
    with (
        mock.patch.multiple(upkeep, _TRIM_EVERY=2, _MERGE_EVERY=8),
        mock.patch.object(spares, "SPARES", 2),
    ):
        yield


def _room(rng: random.Random) -> int:
    """From nothing to enough for the tables of a few buckets."""
    return rng.choice((0, 4096, rng.randrange(1 << 17), rng.randrange(1 << 19), 1 << 30))


def run_crash_case(seed: int) -> int:
    """Runs it to the end and compares with the oracle; returns how often it crashed."""
    rng = random.Random(seed)
    return _run(seed, random_case(rng), rng)


#: Operators that are no aggregates: three with several inputs, and the two forms that users write.
OTHER_KINDS: dict[str, Callable[[random.Random], CrashCase]] = {
    "pairing": random_pairing,
    "barrier": random_barrier,
    "join": random_join,
    "groups": random_grouped,
    "keyed": random_keyed,
    "sessions": random_sessions,
    "whole": random_whole,
}


def run_case_of(kind: str, seed: int) -> int:
    """The same for one of the `OTHER_KINDS`."""
    rng = random.Random(seed)
    return _run(seed, OTHER_KINDS[kind](rng), rng)


def run_counted_case(kind: str, seed: int) -> int:
    """Crashes and recoveries under policies whose accounts can be counted: they are, weights and
    all, after every batch."""
    rng = random.Random(seed)
    case = OTHER_KINDS[kind](rng)
    with reported(seed, case):
        run = Followed(case, footprints_for(rng, case), buckets=rng.choice((1, 2)))
        crashes = 0
        while run.next_batch < len(case.batches):
            if rng.random() < 0.5:
                run.disk.stop_after(rng.randrange(40))
            try:
                run.step()
            except Crashed:
                crashes += 1
                run.query.stop()
                run.disk.kill() if rng.random() < 0.5 else run.disk.crash(rng)
                continue
            run.disk.relax()
            run.check_accounts()
            if rng.random() < 0.2:
                run.query.policy = footprints_for(rng, case)
                run.query.stop()
        run.query.stop()
        return crashes


def run_moving_case(kind: str, seed: int) -> int:
    """Crashes of a query that moves between hosts, each with a cache of its own; returns how often
    it went on from an older table."""
    rng = random.Random(seed)
    case = random_case(rng) if kind == "aggregate" else OTHER_KINDS[kind](rng)
    with ExitStack() as stack:
        stack.enter_context(reported(seed, case))
        if rng.random() < 0.5:
            stack.enter_context(kept_short())
        if rng.random() < 0.7:
            stack.enter_context(at_any_price())
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        policy, buckets = policy_for(rng, case), rng.choice((1, 1, 2))
        query = Query(case, SimulatedDisk(), policy, buckets)
        query.hosts = (place / "a", place / "b")
        query.move(rng)
        query.retain_batches = rng.choice((None, None, 2, 4))
        stack.callback(query.stop)
        plan = CrashPlan(rng, crash_chance=rng.choice((0.1, 0.3, 0.6)))
        plan.run(query, Judge(case, query.buckets), change_policy=rng.random() < 0.3)
        return plan.caught_up


@contextmanager
def at_any_price() -> Iterator[None]:
    """Older tables are brought up to date even where a recovery would be quicker."""
    with mock.patch.object(catching_up, "_cost_us", return_value=0.0):
        yield


def _run(seed: int, case: CrashCase, rng: random.Random) -> int:
    with ExitStack() as stack:
        stack.enter_context(reported(seed, case))
        if rng.random() < 0.5:
            stack.enter_context(kept_short())
        root = None
        if rng.random() < 0.25:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory()), "cache")
        policy, buckets = policy_for(rng, case), rng.choice((1, 1, 2, 3))
        query = Query(case, SimulatedDisk(), policy, buckets, cache_root=root)
        if root is not None and rng.random() < 0.5:
            query.spill_roots = (root.with_name("spill"),)
            rooms = stack.enter_context(small_rooms())
            rooms.limits = {place: _room(rng) for place in (root, *query.spill_roots)}
        if rng.random() < 0.25:
            clocks = random.Random(rng.random())
            query.clock, query.wall = LeapingClock(clocks), JumpingWall(clocks)
        query.retain_batches = rng.choice((None, 1, 2, 4))
        stack.callback(query.stop)
        judge = Judge(case, query.buckets)
        plan = CrashPlan(rng, crash_chance=rng.choice((0.1, 0.5, 0.8)))
        return plan.run(query, judge, change_policy=rng.random() < 0.2)
