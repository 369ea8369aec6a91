"""Windows cut into groups, against the oracle: results, groups, and what a recovery makes of the
dirty ones."""

from __future__ import annotations

import random
from contextlib import nullcontext

import pytest

from tests.support.grouping import check_groups, random_grouped
from tests.support.joining_checks import check_against_oracle, check_fork
from tests.support.seeds import reported, seeds
from tests.support.tables import ExactMemory, cramped
from trailmark.state.memory import Memory


def test_every_batch_gives_the_results_of_the_oracle_and_leaves_its_groups() -> None:
    results = 0
    for seed in seeds(40):
        case = random_grouped(random.Random(seed))
        is_cramped = seed % 3 == 0
        with reported(seed, case), cramped() if is_cramped else nullcontext():
            results += check_against_oracle(case, ExactMemory if is_cramped else Memory)
    assert results > 0


def test_dirty_groups_and_the_batches_since_restore_every_tuple() -> None:
    written = there = 0
    for seed in seeds(60):
        rng = random.Random(seed)
        case = random_grouped(rng)
        with reported(seed, case):
            found = check_groups(case, rng)
            written, there = written + found[0], there + found[1]
    assert 0 < written < there, "some groups were clean"


@pytest.mark.parametrize("origin_follows", [False, True])
def test_a_fork_goes_on_as_the_state_would_which_stays_as_it_is(origin_follows: bool) -> None:
    for seed in seeds(20):
        rng = random.Random(seed)
        case = random_grouped(rng)
        with reported(seed, case):
            check_fork(case, rng, origin_follows=origin_follows)
