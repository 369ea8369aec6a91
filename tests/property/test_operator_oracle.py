"""Random aggregates against the oracle: results of every batch, and every open window's state."""

from __future__ import annotations

import random
from contextlib import nullcontext

import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.cases import Case, case_from_text
from tests.support.checks import (
    check_against_oracle,
    check_fork,
    check_reload,
    check_restricted_replay,
)
from tests.support.seeds import reported, seeds
from tests.support.strategies import cases, random_case
from tests.support.tables import ExactMemory, cramped
from trailmark.state.memory import Memory

_PARTS = 5


@pytest.mark.parametrize("part", range(_PARTS))
def test_every_batch_gives_the_results_and_states_of_the_oracle(part: int) -> None:
    for seed in seeds(800)[part::_PARTS]:
        case = random_case(random.Random(seed), may_overflow=seed % 4 == 0)
        with reported(seed, case):
            check_against_oracle(case)


def test_tables_that_grow_all_the_time_give_the_same_answers() -> None:
    for seed in seeds(150):
        case = random_case(random.Random(seed))
        with reported(seed, case), cramped():
            check_against_oracle(case, ExactMemory)


def test_loading_a_snapshot_and_taking_it_again_changes_nothing() -> None:
    for seed in seeds(150):
        case = random_case(random.Random(seed))
        with reported(seed, case):
            check_reload(case)


@pytest.mark.parametrize("part", range(_PARTS))
def test_footprints_of_different_batches_and_a_replay_restore_every_window(part: int) -> None:
    for seed in seeds(400)[part::_PARTS]:
        rng = random.Random(seed)
        case = random_case(rng)
        is_cramped = seed % 3 == 0
        with reported(seed, case), cramped() if is_cramped else nullcontext():
            check_restricted_replay(case, rng, ExactMemory if is_cramped else Memory)


@pytest.mark.parametrize("origin_follows", [False, True])
def test_a_fork_goes_on_as_the_state_would_which_stays_as_it_is(origin_follows: bool) -> None:
    for seed in seeds(200):
        rng = random.Random(seed)
        case = random_case(rng)
        with reported(seed, case), cramped() if seed % 4 == 0 else nullcontext():
            check_fork(case, rng, origin_follows=origin_follows)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases())
def test_a_printed_case_makes_the_same_case_again(case: Case) -> None:
    again = case_from_text(repr(case))
    assert repr(again) == repr(case)
    assert again.schema == case.schema
    check_against_oracle(again)
