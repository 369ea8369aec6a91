"""Interrupted and recovered equals uninterrupted: random queries, crashed at random operations."""

from __future__ import annotations

import pytest

from tests.support.crashes import (
    OTHER_KINDS,
    run_case_of,
    run_counted_case,
    run_crash_case,
    run_moving_case,
)
from tests.support.seeds import seeds

_CASES = 1_000
_GROUP = 100
_OTHERS = {"pairing": 40, "barrier": 40, "join": 110, "groups": 60, "keyed": 130}
_OTHERS |= {"sessions": 60, "whole": 60}
_PARTS = 2

_ALL = seeds(_CASES)
_GROUPS = [_ALL[start : start + _GROUP] for start in range(0, len(_ALL), _GROUP)]


@pytest.mark.parametrize("group", _GROUPS, ids=lambda group: f"{group[0]}-{group[-1]}")
def test_a_query_that_crashes_anywhere_gives_the_results_of_one_that_does_not(
    group: range,
) -> None:
    crashes = sum(run_crash_case(seed) for seed in group)
    assert crashes > 0 or len(group) < 10, "the crashes that were planned must happen"


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_operators_of_other_kinds_survive_the_same_crashes(kind: str, part: int) -> None:
    assert sum(run_case_of(kind, seed) for seed in seeds(_OTHERS[kind])[part::_PARTS]) > 0


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_what_a_recovery_would_load_and_its_weight_is_counted_right_through_crashes(
    kind: str,
) -> None:
    assert sum(run_counted_case(kind, seed) for seed in seeds(60)) > 0


@pytest.mark.parametrize("kind", ["aggregate", *OTHER_KINDS])
def test_queries_that_move_between_hosts_go_on_from_older_tables(kind: str) -> None:
    cases = seeds(60 if kind == "aggregate" else 20)
    caught_up = sum(run_moving_case(kind, seed) for seed in cases)
    assert caught_up > 0 or len(cases) < 10, "older tables must be met"
