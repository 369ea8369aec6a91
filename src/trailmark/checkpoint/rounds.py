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

import numpy as np

from trailmark.checkpoint.moment import Choice, Moment
from trailmark.checkpoint.policy import Continuous
from trailmark.checkpoint.rates import Work
from trailmark.records import NO_BATCH
from trailmark.settings import format_duration

#: The part of the objective that predictions are held to: recoveries differ.
_SHARE = 0.8
#: A pause that nobody notices, however short the batches are: on Spark none takes less than 250 ms.
_PAUSE_US = 50_000.0


def choose_within(policy: Continuous, moment: Moment, affordable: int | None) -> Choice:
    """A round of footprints if it is time for one, else nothing."""
    rates, table, notes = moment.rates, moment.table, moment.notes
    waiting = _count_waiting(moment)
    least = rates.predict_us(Work(segments=1, records=table.open_windows))
    limit = policy.objective_us * _SHARE
    complaint = ""
    if least > limit:
        complaint = _too_long(policy, moment, least)
        limit = 2.0 * least  # what cannot be reached is not worth chasing
    tuples = moment.now.inputs - moment.account.inputs_total
    growth = rates.replay_us * Work(batches=1, tuples=tuples).replay_rows
    carried = rates.predict_us(moment.work_if_nothing_is_written())
    pause = max(_PAUSE_US, rates.batch_us)
    could_wait = carried + growth <= limit and waiting * rates.write_us <= pause
    if could_wait and not notes.get("is_behind"):
        return Choice(complaint=complaint)
    bare = moment.take_bare()
    notes["waiting"] = 0
    soft = _oldest_within(moment, least + (limit - least) / 2, len(bare))
    hard = _oldest_within(moment, limit - growth, len(bare))
    room = max(0, int(pause / rates.write_us) - len(bare))
    checked = [table.take_oldest(soft, moment.batch, _less(room, affordable))]
    left = None if affordable is None else affordable - len(checked[0])
    checked.append(table.take_oldest(hard, moment.batch, _less(table.open_windows, left)))
    oldest = table.oldest_footprint()
    notes["is_behind"] = oldest is not None and oldest < soft
    if not complaint and oldest is not None and oldest < hard:
        complaint = (
            "the budget does not let enough windows be checked to recover within "
            f"{format_duration(policy.objective_us)}: raise interval, or leave the budget out"
        )
    why = {"carried_us": carried, "limit_us": int(limit), "growth_us": round(growth, 1)}
    return Choice(bare, np.concatenate(checked), complaint, why=why)


def _count_waiting(moment: Moment) -> int:
    """Windows without a footprint, at most: some may have closed since. Counted after a recovery,
    which does not know how many there were."""
    table, notes = moment.table, moment.notes
    if "waiting" in notes:
        notes["waiting"] = min(table.open_windows, notes["waiting"] + len(moment.opened))
    else:
        notes["waiting"] = len(table.list_oldest(before=NO_BATCH + 1))
    waiting: int = notes["waiting"]
    return waiting


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
        f"loading its {moment.table.open_windows:,} open windows alone takes about "
        f"{least_us / 1e3:,.0f} ms, too long to recover within {objective}: use more buckets, or "
        "give the recovery more time"
    )
