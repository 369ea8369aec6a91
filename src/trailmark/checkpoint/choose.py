"""Which footprints go into the output log at the end of a batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trailmark.checkpoint.budget import Budget
from trailmark.checkpoint.changes import Changes
from trailmark.checkpoint.continuous import choose_by_targets
from trailmark.checkpoint.cost_benefit import choose_by_benefit
from trailmark.checkpoint.moment import Choice, Moment
from trailmark.checkpoint.policy import (
    Continuous,
    CostBenefit,
    Delta,
    FullSnapshot,
    Policy,
    SlowWindows,
)
from trailmark.checkpoint.rounds import choose_within
from trailmark.checkpoint.slow_windows import choose_slow
from trailmark.checkpoint.snapshots import choose_delta, choose_snapshot
from trailmark.operators.protocol import Operator
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice, and the footprints that it asks for."""

    choice: Choice
    footprints: pa.RecordBatch | None
    copy: pa.RecordBatch | None
    took_us: float

    @property
    def opened(self) -> int:
        return len(self.choice.bare)

    @property
    def checked(self) -> int:
        return len(self.choice.checked)


def writes_openings(policy: Policy) -> bool:
    """Whether a window gets a footprint in the batch that opens it."""
    if isinstance(policy, Continuous):
        return policy.objective is None
    return isinstance(policy, CostBenefit | SlowWindows)


def choose_footprints(
    operator: Operator,
    policy: Policy,
    moment: Moment,
    changes: Changes | None = None,
    *,
    copies: bool = True,
) -> Chosen:
    """Footprints of this batch, as the policy wants them; a copy of all windows only if ``copies``
    says that one can be written."""
    started = moment.now_us()
    budget = None
    if isinstance(policy, Continuous | CostBenefit):
        budget = Budget.from_notes(policy, moment.notes, moment.now_us)
    choice = _choose(policy, moment, budget, changes)
    slots = np.concatenate([choice.bare, choice.checked])
    footprints, copy = None, None
    if len(slots):
        footprints = operator.snapshot(moment.table, slots, len(choice.bare))
    if choice.copies_all and copies:
        copy = operator.snapshot(moment.table, moment.table.slots(), 0)
    took_us = moment.now_us() - started
    if budget is not None:
        if len(choice.checked):
            budget.spend(len(choice.checked), took_us * len(choice.checked) / len(slots))
        budget.write_notes(moment.notes)
    return Chosen(choice, footprints, copy, took_us)


def _choose(
    policy: Policy, moment: Moment, budget: Budget | None, changes: Changes | None
) -> Choice:
    if isinstance(policy, Continuous | CostBenefit):
        assert budget is not None
        affordable = budget.affordable()
        if isinstance(policy, CostBenefit):
            return choose_by_benefit(policy, moment, affordable)
        if policy.objective is not None:
            return choose_within(policy, moment, affordable)
        return choose_by_targets(policy, moment, affordable)
    if isinstance(policy, SlowWindows):
        return choose_slow(policy, moment)
    if isinstance(policy, FullSnapshot):
        return choose_snapshot(policy, moment)
    if isinstance(policy, Delta):
        assert changes is not None
        return choose_delta(policy, moment, changes)
    return Choice()
