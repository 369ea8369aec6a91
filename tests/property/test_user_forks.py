"""Forks of users' operators: a fork goes on as the state would, which stays as it is."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from tests.support.compare import assert_same_rows
from tests.support.crashes import OTHER_KINDS
from tests.support.forks import Forked
from tests.support.keyed import KeyedCase
from tests.support.oracle import OracleOutcome
from tests.support.plain import plain_rows
from tests.support.seeds import reported, seeds
from trailmark.operators.protocol import BatchInput
from trailmark.recovery import NoHistory
from trailmark.state.memory import Memory

_SECOND = 1_000_000


class _Given:
    """The batches of a case with the times that the engine would have given them."""

    def __init__(self, case: Any) -> None:
        self._case = case
        self._operator = case.operator()

    def watermark(self, batch: int) -> int | None:
        """The greatest time of all batches before, less the delay."""
        (port,) = self._operator.ports
        if port.event_time is None:
            return None
        rows = [row for each in self._case.batches[:batch] for row in plain_rows(each)]
        times = [row[port.event_time] for row in rows if row[port.event_time] is not None]
        return max(times) - port.delay_us if times else None

    def batch(self, batch: int) -> BatchInput:
        before = self.watermark(batch - 1) if batch else None
        now = batch * _SECOND if self._operator.uses_clock else None
        rows = self._case.batches[batch]
        return BatchInput(batch, rows, before, self.watermark(batch), now_us=now)

    def expected(self, oracle: Any, given: BatchInput) -> OracleOutcome:
        rows = plain_rows(given.rows)
        if isinstance(self._case, KeyedCase):
            times = (given.late_before, given.watermark, given.now_us)
            return cast(OracleOutcome, oracle.process(given.batch, rows, *times))
        return cast(OracleOutcome, oracle.process(given.batch, rows))


def _check_fork(case: Any, rng: random.Random, *, origin_follows: bool) -> None:
    given, operator, oracle = _Given(case), case.operator(), case.oracle()
    Forked(
        operator,
        operator.open(Memory(), NoHistory()),
        oracle,
        [given.batch(batch) for batch in range(len(case.batches))],
        lambda each: given.expected(oracle, each),
        lambda outcome, expected, what: assert_same_rows(outcome.results, expected.results, what),
        lambda state: case.states(operator, state),
    ).check(rng, origin_follows=origin_follows)


@pytest.mark.parametrize("origin_follows", [False, True])
@pytest.mark.parametrize("kind", ["keyed", "whole"])
def test_a_fork_goes_on_as_the_state_would_which_stays_as_it_is(
    kind: str, origin_follows: bool
) -> None:
    for seed in seeds(100):
        rng = random.Random(seed)
        case = OTHER_KINDS[kind](rng)
        with reported(seed, case):
            _check_fork(case, rng, origin_follows=origin_follows)
