"""`Continuous` with an objective: footprints in rounds, as far apart as the objective allows.

A window that opens and closes between two rounds needs no footprint. Until the next round a
recovery builds on the last one and processes the batches since anew. A round is made

- before that would take too long,
- before the windows that wait for a footprint become so many that writing them would take longer
  than a batch, or
- when the last round had to leave old footprints for later.

It gives every window without a footprint one, and checks the oldest of the others, so that half of
the time that the objective leaves is there for the batches until the next round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from trailmark.checkpoint.budget import Budget, Budgeted
from trailmark.checkpoint.moment import Choice, Moment
from trailmark.checkpoint.noted import Fields, or_none, read_count, read_flag
from trailmark.checkpoint.rates import Work
from trailmark.records import NO_BATCH
from trailmark.settings import format_duration
from trailmark.state.table import Slots
from trailmark.values import dataclass

if TYPE_CHECKING:
    from trailmark.checkpoint.policy import Continuous

#: The part of the objective that predictions are held to: recoveries differ.
_SHARE = 0.8
#: A pause that nobody notices, however short the batches are: on Spark none takes less than 250 ms.
_PAUSE_US = 50_000.0


@dataclass(slots=True)
class Rounds(Budgeted):
    """Remembers how many windows wait for a footprint, None if that is not known, and whether the
    last round had to leave old footprints."""

    policy: Continuous
    budget: Budget
    waiting: int | None = None
    is_behind: bool = False

    FIELDS: ClassVar[Fields] = {"waiting": or_none(read_count), "is_behind": read_flag}

    def choose(self, moment: Moment) -> Choice:
        """A round of footprints if it is time for one, else nothing."""
        affordable = self.budget.affordable(moment.now_us())
        rates = moment.rates
        waiting = self._count_waiting(moment)
        least = rates.predict_us(_all_of(moment))
        limit = self.policy.objective_us * _SHARE
        complaint = ""
        if least > limit:
            complaint = _too_long(self.policy, moment, least)
            limit = 2.0 * least  # what cannot be reached is not worth chasing
        tuples = moment.now.inputs - moment.account.inputs_total
        growth = rates.replay_us * Work(batches=1, tuples=tuples).replay_rows
        carried = rates.predict_us(moment.work_if_nothing_is_written())
        pause = max(_PAUSE_US, rates.batch_us)
        could_wait = carried + growth <= limit and waiting * rates.footprint_us <= pause
        if could_wait and not self.is_behind:
            return Choice(complaint=complaint)
        bare = moment.take_bare()
        self.waiting = 0
        soft = _oldest_within(moment, least + (limit - least) / 2, len(bare))
        hard = _oldest_within(moment, limit - growth, len(bare))
        room = max(0, int(pause / rates.footprint_us) - len(bare))
        checked = _check(moment, soft, hard, room, affordable)
        oldest = moment.pieces.oldest_footprint()
        self.is_behind = oldest is not None and oldest < soft
        if not complaint and oldest is not None and oldest < hard:
            complaint = _too_little(self.policy)
        why = {"carried_us": carried, "limit_us": int(limit), "growth_us": round(growth, 1)}
        return Choice(bare, checked, complaint, why=why)

    def _count_waiting(self, moment: Moment) -> int:
        """Windows without a footprint, at most: some may have closed since. Counted after a
        recovery, which does not know how many there were."""
        pieces = moment.pieces
        if self.waiting is None:
            waiting = len(pieces.list_oldest(before=NO_BATCH + 1))
        else:
            waiting = min(pieces.open_windows, self.waiting + len(moment.opened))
        self.waiting = waiting
        return waiting


def _all_of(moment: Moment) -> Work:
    """What a recovery would have to do if all open windows had been written now."""
    windows = moment.pieces.open_windows
    return Work(segments=1, records=windows, excess=int(moment.rates.excess_of(windows)))


def _check(moment: Moment, soft: int, hard: int, room: int, affordable: int | None) -> Slots:
    """Checks what the next rounds would have to, as far as there is room, and then what this one
    has to."""
    pieces = moment.pieces
    early = pieces.take_oldest(soft, moment.batch, _less(room, affordable))
    left = None if affordable is None else affordable - len(early)
    due = pieces.take_oldest(hard, moment.batch, _less(pieces.open_windows, left))
    return np.concatenate([early, due])


def _oldest_within(moment: Moment, limit_us: float, footprints: int) -> int:
    """The oldest footprint that keeps a recovery within a time; this batch if none does."""
    low, high = moment.ledger.first + 1, moment.batch
    while low < high:
        middle = (low + high) // 2
        if moment.rates.predict_us(moment.work_from(middle, footprints)) <= limit_us:
            high = middle
        else:
            low = middle + 1
    return low


def _less(most: int, limit: int | None) -> int:
    return most if limit is None else max(0, min(most, limit))


def _too_long(policy: Continuous, moment: Moment, least_us: int) -> str:
    """Why the objective is out of reach, and what would help."""
    objective = format_duration(policy.objective_us)
    if moment.rates.open_us > policy.objective_us * _SHARE:
        return (
            f"opening a bucket alone takes about {moment.rates.open_us / 1e3:.0f} ms, too long to "
            f"recover within {objective}: give the recovery more time"
        )
    return (
        f"loading its {moment.pieces.open_windows:,} open windows alone takes about "
        f"{least_us / 1e3:,.0f} ms, too long to recover within {objective}: use more buckets, or "
        "give the recovery more time"
    )


def _too_little(policy: Continuous) -> str:
    return (
        "the budget does not let enough windows be checked to recover within "
        f"{format_duration(policy.objective_us)}: raise interval, or leave the budget out"
    )
