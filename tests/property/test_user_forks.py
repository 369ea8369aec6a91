"""Forks of users' operators: a fork goes on as the state would, which stays as it is."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from tests.support.compare import assert_same_rows, assert_same_states
from tests.support.crashes import OTHER_KINDS
from tests.support.keyed import KeyedCase
from tests.support.oracle import OracleOutcome
from tests.support.plain import plain_rows
from tests.support.seeds import reported, seeds
from tests.support.tables import memory_bytes
from trailmark.operators.fork import Fork
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
    origin = operator.open(Memory(), NoHistory())
    begin = rng.randrange(len(case.batches) + 1)
    for batch in range(begin):
        given.expected(oracle, given.batch(batch))
        operator.process(origin, given.batch(batch))
    operator.footprints(origin, origin.list_oldest(), 0)  # a whole state is written down by now
    before = memory_bytes(origin.memory)
    fork = Fork(operator, origin, NoHistory())
    caught_up = begin
    for batch in range(begin, len(case.batches)):
        expected = given.expected(oracle, given.batch(batch))
        outcome = fork.process(given.batch(batch))
        assert_same_rows(outcome.results, expected.results, f"fork, batch {batch}")
        while origin_follows and caught_up <= batch and rng.random() < 0.6:
            operator.process(origin, given.batch(caught_up))
            caught_up += 1
        own, states = case.states(operator, fork.state), oracle.open_windows()
        wanted = {identity: states[identity] for identity in own}
        assert_same_states(own, wanted, f"fork after batch {batch}")
    fork.close()
    if caught_up == begin:
        assert memory_bytes(origin.memory) == before, "the state has changed"


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
