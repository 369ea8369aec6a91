"""`CostBenefit`: old footprints are renewed when the recovery time saved is worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trailmark.checkpoint.budget import Budget, Budgeted
from trailmark.checkpoint.moment import NO_SLOTS, Choice, Moment
from trailmark.checkpoint.rates import load_rows, replay_rows
from trailmark.values import dataclass

if TYPE_CHECKING:
    from trailmark.checkpoint.policy import CostBenefit

#: Expected failures, weighted: so many that everything pays, and still a number to reckon with.
_CERTAIN = 1e12


@dataclass(slots=True)
class Benefits(Budgeted):
    """Has nothing to remember but its budget."""

    policy: CostBenefit
    budget: Budget

    def choose(self, moment: Moment) -> Choice:
        """Footprints of the windows that have none yet, then of as many old ones as pay."""
        return _choose(self.policy, moment, self.budget.affordable(moment.now_us()))


def _choose(policy: CostBenefit, moment: Moment, affordable: int | None) -> Choice:
    bare = np.concatenate([moment.opened, moment.take_bare()])
    oldest = moment.pieces.oldest_footprint()
    if oldest is None or oldest >= moment.batch:
        return Choice(bare)
    rates = moment.rates
    lasts_s = (moment.batch - oldest) * rates.period_us / 1e6
    chance = min(_CERTAIN, policy.failures_per_second * lasts_s * policy.weight)
    now_us = rates.predict_us(moment.work_from(oldest, len(bare)))
    pays = chance * (now_us - rates.open_us) / rates.footprint_us
    most = int(min(pays, moment.pieces.open_windows))  # more could not pay
    if affordable is not None:
        most = min(most, affordable)
    counts, next_oldest = _groups(moment, most)
    saved = now_us - _predictions(moment, next_oldest, len(bare) + counts)
    gains = chance * saved - counts * rates.footprint_us
    best = int(np.argmax(gains)) if len(gains) else 0
    why: dict[str, Any] = {"chance": chance, "lasts_s": round(lasts_s, 3), "looked_at": most}
    if not len(gains) or gains[best] <= 0:
        return Choice(bare, why=why)
    count = int(counts[best])
    why |= {
        "checked": count,
        "recovery_us_saved": int(saved[best]),
        "worth_us": round(chance * float(saved[best]), 3),
        "cost_us": round(count * rates.footprint_us, 3),
    }
    checked = moment.pieces.take_oldest(int(next_oldest[best]), moment.batch, count)
    return Choice(bare, checked, why=why)


def _groups(moment: Moment, most: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How many windows have to be checked to reach each next oldest footprint, up to ``most``."""
    pieces = moment.pieces
    if most < 1:
        return NO_SLOTS, NO_SLOTS
    slots = pieces.list_oldest(most + 1)
    ages = pieces.footprints(slots)
    counts = np.flatnonzero(np.diff(ages, prepend=ages[0]))
    next_oldest = ages[counts]
    if len(slots) <= most:  # all of them would pay
        counts = np.append(counts, np.searchsorted(ages, moment.batch))
        next_oldest = np.append(next_oldest, moment.batch)
    is_older = next_oldest <= moment.batch
    return counts[is_older], next_oldest[is_older]


def _predictions(
    moment: Moment, oldest: npt.NDArray[np.int64], footprints: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """How long recoveries would take with each of these batches as the oldest footprint."""
    rates = moment.rates
    weights, inputs = moment.ledger.columns_at(oldest, moment.now)
    batches = moment.batch - oldest
    loaded = load_rows(batches + 1, weights + footprints) + rates.excess_of(footprints)
    predicted: npt.NDArray[np.float64] = rates.cost_us(loaded, replay_rows(batches, inputs))
    return predicted
