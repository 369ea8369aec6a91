"""Random joins against the oracle: results of every batch, and every tuple that waits."""

from __future__ import annotations

import random
from contextlib import nullcontext

import pytest

from tests.support.joining import random_join
from tests.support.joining_checks import (
    check_against_oracle,
    check_changed,
    check_fork,
    check_rebuilt,
)
from tests.support.seeds import reported, seeds
from tests.support.tables import ExactMemory, cramped
from trailmark.state.memory import Memory


def test_every_batch_gives_the_results_of_the_oracle_in_order_and_leaves_its_tuples() -> None:
    results = 0
    for seed in seeds(60):
        case = random_join(random.Random(seed))
        is_cramped = seed % 3 == 0
        with reported(seed, case), cramped() if is_cramped else nullcontext():
            results += check_against_oracle(case, ExactMemory if is_cramped else Memory)
    assert results > 0


def test_footprints_of_different_batches_and_a_replay_restore_every_tuple() -> None:
    for seed in seeds(60):
        rng = random.Random(seed)
        case = random_join(rng)
        with reported(seed, case):
            check_rebuilt(case, rng)


def test_a_batch_names_every_piece_that_it_changes() -> None:
    for seed in seeds(20):
        case = random_join(random.Random(seed))
        with reported(seed, case):
            check_changed(case)


@pytest.mark.parametrize("origin_follows", [False, True])
def test_a_fork_goes_on_as_the_state_would_which_stays_as_it_is(origin_follows: bool) -> None:
    for seed in seeds(20):
        rng = random.Random(seed)
        case = random_join(rng)
        with reported(seed, case):
            check_fork(case, rng, origin_follows=origin_follows)
