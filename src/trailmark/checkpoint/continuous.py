"""`Continuous` with targets: the oldest windows are checked while the extent or the replay is too
large."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trailmark.checkpoint.budget import Budget, Budgeted
from trailmark.checkpoint.ledger import Totals
from trailmark.checkpoint.moment import NO_SLOTS, Choice, Moment
from trailmark.state.table import Slots
from trailmark.values import dataclass

if TYPE_CHECKING:
    from trailmark.checkpoint.policy import Continuous

#: Windows checked between two looks at the targets.
_STEP = 4096


@dataclass(slots=True)
class Targets(Budgeted):
    """Has nothing to remember but its budget."""

    policy: Continuous
    budget: Budget

    def choose(self, moment: Moment) -> Choice:
        """Footprints of the windows that have none yet, then of old ones while a target is
        missed."""
        policy, pieces = self.policy, moment.pieces
        affordable = self.budget.affordable(moment.now_us())
        bare = np.concatenate([moment.opened, moment.take_bare()])
        checked = NO_SLOTS
        if policy.q is not None or policy.u is not None:
            checked = _check_oldest(policy, moment, len(bare), affordable)
        complaint = ""
        if policy.q is not None and policy.q < pieces.open_windows:
            complaint = (
                f"the extent cannot get below the {pieces.open_windows} windows that are open, "
                f"and q is {policy.q}: raise q, or use more buckets"
            )
        return Choice(bare, checked, complaint)


def _check_oldest(
    policy: Continuous, moment: Moment, written: int, affordable: int | None
) -> Slots:
    """Takes windows from the oldest footprint on, until both targets are met or nothing is left."""
    now = Totals(moment.now.records + written, moment.now.inputs, moment.now.needs)
    left = affordable
    taken: list[Slots] = []
    while left is None or left > 0:
        before = moment.ledger.first_batch_within(now, policy.q, policy.u)
        most = _STEP if left is None else min(_STEP, left)
        slots = moment.pieces.take_oldest(before, moment.batch, most)
        if not len(slots):
            break
        taken.append(slots)
        now = Totals(now.records + len(slots), now.inputs, now.needs)
        left = None if left is None else left - len(slots)
    return np.concatenate(taken) if taken else NO_SLOTS
