"""What every fork is held to, whatever the operator."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.compare import assert_same_states
from tests.support.oracle import Identity, OracleOutcome, Row
from tests.support.tables import memory_bytes
from trailmark.operators.fork import Fork
from trailmark.operators.protocol import AnyOperator, BatchInput, History, Outcome
from trailmark.recovery import NoHistory


@dataclass(frozen=True)
class Forked:
    """A query that is forked: its operator with an empty state, and its oracle.

    ``expect`` lets the oracle take a batch in, ``compare`` holds what came out against that, and
    ``states`` are the pieces of a state as the oracle has them.
    """

    operator: AnyOperator
    origin: Any
    oracle: Any
    batches: Sequence[BatchInput]
    expect: Callable[[BatchInput], OracleOutcome]
    compare: Callable[[Outcome, OracleOutcome, str], None]
    states: Callable[[Any], dict[Identity, Row]]
    history: History = field(default_factory=NoHistory)

    def check(self, rng: random.Random, *, origin_follows: bool) -> None:
        """A fork made at any batch goes on as the state would, which does not notice; nor does the
        fork notice when the state comes after it."""
        operator, origin = self.operator, self.origin
        begin = rng.randrange(len(self.batches) + 1)
        for given in self.batches[:begin]:
            self.expect(given)
            operator.process(origin, given)
        operator.footprints(origin, origin.list_oldest(), 0)  # some states are written down by it
        before = memory_bytes(origin.memory)
        fork: Fork[Any] = Fork(operator, origin, self.history)
        caught_up = begin
        for batch, given in enumerate(self.batches[begin:], start=begin):
            expected = self.expect(given)
            self.compare(fork.process(given), expected, f"fork, batch {batch}")
            while origin_follows and caught_up <= batch and rng.random() < 0.6:
                operator.process(origin, self.batches[caught_up])
                caught_up += 1
            own, states = self.states(fork.state), self.oracle.open_windows()
            wanted = {identity: states[identity] for identity in own}
            assert_same_states(own, wanted, f"fork after batch {batch}")
        fork.close()
        if caught_up == begin:
            assert memory_bytes(origin.memory) == before, "the state has changed"
