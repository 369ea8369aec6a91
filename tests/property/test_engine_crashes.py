"""Interrupted and recovered equals uninterrupted: random queries, crashed at random operations."""

from __future__ import annotations

import pytest

from tests.support.crashes import run_crash_case, run_pairing_case
from tests.support.seeds import seeds

_CASES = 5_000
_GROUP = 100

_ALL = seeds(_CASES)
_GROUPS = [_ALL[start : start + _GROUP] for start in range(0, len(_ALL), _GROUP)]


@pytest.mark.parametrize("group", _GROUPS, ids=lambda group: f"{group[0]}-{group[-1]}")
def test_a_query_that_crashes_anywhere_gives_the_results_of_one_that_does_not(
    group: range,
) -> None:
    crashes = sum(run_crash_case(seed) for seed in group)
    assert crashes > 0 or len(group) < 10, "the crashes that were planned must happen"


def test_an_operator_with_two_inputs_survives_the_same_crashes() -> None:
    assert sum(run_pairing_case(seed) for seed in seeds(100)) > 0
