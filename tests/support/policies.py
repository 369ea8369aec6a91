"""Policies for tests: one of each kind, and random ones whose targets, budgets and periods bite.

The clock of the tests goes on by a few microseconds whenever somebody looks at it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from trailmark.checkpoint.policy import (
    Continuous,
    CostBenefit,
    Delta,
    FullSnapshot,
    Incremental,
    NoCheckpoint,
    Policy,
    SlowWindows,
    UpstreamBackup,
)
from trailmark.operators.protocol import AnyOperator

Rng = random.Random

#: For a clock that shows the time: all of them have something to do within a few batches.
ONE_OF_EACH: dict[str, Policy] = {
    "none": NoCheckpoint(),
    "upstream backup": UpstreamBackup(),
    "targets": Continuous(q=120, u=200),
    "objective": Continuous.within("30 ms"),
    "cost-benefit": CostBenefit(failure_rate="1000 per second"),
    "slow windows": SlowWindows("5 ms", "20 ms", shots=4),
    "snapshots": FullSnapshot(3),
    "snapshots behind": FullSnapshot(3, asynchronous=True),
    "deltas": Delta(2, full_every=4),
}

#: All different: every argument of every policy has several values here.
VARIANTS: list[Policy] = [
    NoCheckpoint(),
    UpstreamBackup(),
    Continuous(),
    Continuous(q=0),
    Continuous(q=5),
    Continuous(u=0),
    Continuous(u=5),
    Continuous(q=5, u=5),
    Continuous(q=5, interval="1 ms", period="1 s"),
    Continuous(q=5, interval="2 ms", period="1 s"),
    Continuous(q=5, interval="1 ms", period="2 s"),
    Continuous.within("1 s"),
    Continuous.within("2 s"),
    Continuous.within("1 s", interval="1 ms", period="1 s"),
    CostBenefit(failure_rate=1),
    CostBenefit(failure_rate="1 per day"),
    CostBenefit(failure_rate=1, weight=2.0),
    CostBenefit(failure_rate=1, interval="1 ms", period="1 s"),
    SlowWindows("1 s", "1 s"),
    SlowWindows("0 s", "1 s"),
    SlowWindows("1 s", "2 s"),
    SlowWindows("1 s", "1 s", shots=2),
    FullSnapshot(1),
    FullSnapshot(2),
    FullSnapshot("1 us"),
    FullSnapshot("1 s"),
    FullSnapshot(1, asynchronous=True),
    Delta(1),
    Delta(2),
    Delta("1 us"),
    Delta(1, full_every=2),
    Incremental(1),
    Incremental(2),
    Incremental("1 us"),
    Incremental(1, group_size=2),
]


def random_policy(rng: Rng) -> Policy:
    """Any policy."""
    return rng.choice(_FOOTPRINTS + _OTHERS)(rng)


def random_footprints(rng: Rng) -> Policy:
    """A policy under which a recovery builds on footprints and replays all input since the oldest:
    what it needs can be counted from the logs alone."""
    return rng.choice(_FOOTPRINTS)(rng)


class _Case(Protocol):
    def operator(self) -> AnyOperator: ...


def policy_for(rng: Rng, case: _Case) -> Policy:
    """Any policy that is for the operator of a case."""
    size = case.operator().group_size
    return random_policy(rng) if size is None else rng.choice(_FOR_GROUPS)(rng, size)


def footprints_for(rng: Rng, case: _Case) -> Policy:
    """As `random_footprints`, for the operator of a case."""
    if case.operator().group_size is None:
        return random_footprints(rng)
    return rng.choice((NoCheckpoint(), FullSnapshot(_every(rng)), FullSnapshot(_every(rng))))


def random_targets(rng: Rng) -> Continuous:
    q = rng.randrange(60) if rng.random() < 0.7 else None
    u = rng.randrange(60) if rng.random() < 0.7 else None
    if rng.random() < 0.3:
        return Continuous(q=q, u=u, interval="50 us", period="200 us")
    return Continuous(q=q, u=u)


def random_objective(rng: Rng) -> Continuous:
    return Continuous.within(f"{rng.choice((100, 20_000, 26_000, 28_000, 60_000))} us")


def _cost_benefit(rng: Rng) -> CostBenefit:
    return CostBenefit(failure_rate=10.0 ** rng.randrange(-2, 4), weight=rng.choice((1, 10)))


def _slow_windows(rng: Rng) -> SlowWindows:
    threshold, period = rng.choice((0, 100, 400)), rng.choice((50, 200, 800))
    return SlowWindows(f"{threshold} us", f"{period} us", shots=rng.randint(1, 4))


def _every(rng: Rng) -> int | str:
    return rng.randint(1, 5) if rng.random() < 0.7 else f"{rng.randint(1, 500)} us"


_FOOTPRINTS: list[Callable[[Rng], Policy]] = [
    lambda rng: NoCheckpoint(),
    random_targets,
    random_targets,
    random_objective,
    random_objective,
    _cost_benefit,
    _slow_windows,
    lambda rng: FullSnapshot(_every(rng)),
]

_FOR_GROUPS: list[Callable[[Rng, int], Policy]] = [
    *[lambda rng, size: Incremental(_every(rng), size)] * 5,
    lambda rng, size: Delta(_every(rng), full_every=rng.randint(1, 6)),
    lambda rng, size: FullSnapshot(_every(rng), asynchronous=rng.random() < 0.5),
    lambda rng, size: rng.choice((NoCheckpoint(), UpstreamBackup())),
]

_OTHERS: list[Callable[[Rng], Policy]] = [
    lambda rng: UpstreamBackup(),
    lambda rng: FullSnapshot(_every(rng), asynchronous=True),
    lambda rng: Delta(_every(rng), full_every=rng.randint(1, 6)),
]
