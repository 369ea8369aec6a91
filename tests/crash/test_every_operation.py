"""A query stopped at each single operation on the disk, by a kill and by a power failure."""

from __future__ import annotations

import random

import pytest

from tests.support.engine import Judge, Query
from tests.support.small import SMALL_KINDS, small_buckets, small_case_of
from trailmark.checkpoint.policy import Continuous, Incremental, NoCheckpoint, Policy
from trailmark.testing.disk import Crashed, SimulatedDisk

_POLICIES: dict[str, Policy] = {"continuous": Continuous(q=8, u=12), "none": NoCheckpoint()}


def _run_through(query: Query, stop_at: int | None, power_fails: bool) -> tuple[int, Judge]:
    """Runs the case; returns how many operations it took, and its judge."""
    rng = random.Random(stop_at)
    judge = Judge(query.case, query.buckets)
    if stop_at is not None:
        query.disk.stop_after(stop_at)
    for batch, rows in enumerate(query.case.batches):
        parts = query.case.split(rows, query.buckets)
        try:
            reports = query.run(batch, parts)
        except Crashed:
            query.stop()
            if power_fails:
                query.disk.crash(rng)
            else:
                query.disk.kill()
            reports = query.run(batch, parts)
        judge.check(query, batch, reports)
        judge.check_state(query, f"after batch {batch}")
    query.stop()
    return query.disk.operations, judge


@pytest.mark.parametrize("power_fails", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("policy", _POLICIES.values(), ids=_POLICIES.keys())
@pytest.mark.parametrize("kind", SMALL_KINDS)
def test_stopping_at_any_operation_changes_nothing(
    kind: str, policy: Policy, power_fails: bool
) -> None:
    if kind == "groups" and isinstance(policy, Continuous):
        policy = Incremental(2, group_size=2)
    case, buckets = small_case_of(kind), small_buckets(kind)
    operations, _ = _run_through(Query(case, SimulatedDisk(), policy, buckets), None, power_fails)
    assert operations > 40
    for stop_at in range(operations):
        query = Query(case, SimulatedDisk(), policy, buckets)
        taken, _ = _run_through(query, stop_at, power_fails)
        assert taken >= stop_at
