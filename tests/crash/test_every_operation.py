"""A query stopped at each single operation on the disk, by a kill and by a power failure."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.crashes import at_any_price
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


#: States of every form: windows of a count and of time, footprints that refer to input, groups,
#: what users write, and one piece.
_FORMS = ("gapped", "time", "pairing", "join", "groups", "keyed", "whole")
#: Where each of five batches runs: the last two on the host with a table two batches old.
_MOVES = "baabb"


def _run_on_hosts(query: Query, root: Path, stop_at: int | None) -> int:
    """Runs the case on two hosts, where the batch after the move back may stop, by turns by a kill
    and by a power failure; returns how many operations that batch took."""
    judge, operations = Judge(query.case, query.buckets), 0
    for batch, (host, rows) in enumerate(zip(_MOVES, query.case.batches, strict=True)):
        query.stop()
        query.cache_root = root / host
        parts, moves_back = query.case.split(rows, query.buckets), batch == 3
        before = query.disk.operations
        if moves_back and stop_at is not None:
            query.disk.stop_after(stop_at)
        try:
            reports = query.run(batch, parts)
        except Crashed:
            assert stop_at is not None
            query.stop()
            query.disk.crash(random.Random(stop_at)) if stop_at % 2 else query.disk.kill()
            reports = query.run(batch, parts)
        query.disk.relax()
        if moves_back:
            operations = query.disk.operations - before
            assert stop_at is not None or all(each.caught_up is not None for each in reports)
        judge.check(query, batch, reports)
        judge.check_state(query, f"after batch {batch}")
    query.stop()
    return operations


@pytest.mark.parametrize("kind", _FORMS)
def test_stopping_while_an_older_table_catches_up_changes_nothing(
    kind: str, tmp_path: Path
) -> None:
    policy = Incremental(2, group_size=2) if kind == "groups" else Continuous(q=8, u=12)
    case, buckets = small_case_of(kind, batches=5), small_buckets(kind)
    with at_any_price():
        query = Query(case, SimulatedDisk(), policy, buckets)
        operations = _run_on_hosts(query, tmp_path / "through", None)
        assert operations > 10
        for stop_at in range(operations):
            query = Query(case, SimulatedDisk(), policy, buckets)
            _run_on_hosts(query, tmp_path / str(stop_at), stop_at)
