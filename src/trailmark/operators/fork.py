"""A fork: what would become of a state if it took other batches in.

It begins empty and copies a piece when a batch first touches it. The state that it is made of stays
as it is, and may go on by itself; what the fork has taken over, or had of its own, it never takes
again. A fork is thrown away in the end. It is in no account, no log and no cache.
"""

from __future__ import annotations

from typing import Generic

import numpy as np
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, chosen_rows
from trailmark.operators.protocol import BatchInput, History, Operator, Outcome, StateT
from trailmark.records import FOOTPRINT, NO_BATCH
from trailmark.state.memory import Memory
from trailmark.state.table import Slots

_WHERE = "a fork of the state"


class Fork(Generic[StateT]):
    """A copy of a state, of the pieces that it needs, in memory of its own.

    Attributes
    ----------
    state
        The pieces that it has.
    """

    def __init__(self, operator: Operator[StateT], origin: StateT, history: History) -> None:
        self._operator = operator
        self._origin = origin
        self.state = operator.open(Memory(), history)
        self._together = operator.copied_together
        self._taken = self._together.new_set()

    def process(self, given: BatchInput) -> Outcome:
        """Takes a batch in, as the operator would with a copy of the whole state."""
        self._take_over(self._operator.touched(self._origin, given))
        outcome = self._operator.process(self.state, given)
        self._remember(outcome)
        return outcome

    def close(self) -> None:
        """Gives its memory back."""
        self.state.memory.close()

    def _take_over(self, slots: Slots) -> None:
        if not len(slots):
            return
        rows = self._operator.footprints(self._origin, slots, 0)
        is_new = ~self._together.are_in(rows, self._taken)
        if not is_new.any():
            return
        rows = chosen_rows(rows, is_new)
        self._together.add(rows, self._taken)
        none = arrow_fixed(np.full(rows.num_rows, NO_BATCH, dtype=np.int64), pa.int64())
        self._operator.load(self.state, rows.append_column(FOOTPRINT, none), _WHERE)

    def _remember(self, outcome: Outcome) -> None:
        """What the fork has opened by itself is its own, whatever its origin opens later."""
        if len(outcome.opened):
            opened = self._operator.footprints(self.state, outcome.opened, 0)
            self._together.add(opened, self._taken)
        closed = outcome.results if outcome.closed is None else outcome.closed
        if closed.num_rows:
            self._together.add(closed, self._taken)
