"""`SlowWindows`: windows that stay open are checked once in a period, a few at a time."""

from __future__ import annotations

import math

import numpy as np

from trailmark.checkpoint.moment import Choice, Moment
from trailmark.checkpoint.policy import SlowWindows
from trailmark.state.table import Slots


def choose_slow(policy: SlowWindows, moment: Moment) -> Choice:
    """Footprints of the windows that have none yet, then those of the shots that are due."""
    bare = np.concatenate([moment.opened, moment.take_bare()])
    now, notes = moment.now_us(), moment.notes
    elapsed = now - min(notes.get("began_us", -math.inf), now)
    if elapsed >= policy.period_us:
        _begin_period(policy, moment, now)
        elapsed = 0.0
    due = min(policy.shots, 1 + int(elapsed * policy.shots // policy.period_us))
    shots = due - notes["done"]
    notes["done"] = due
    checked = _slow(policy, moment, shots * notes["quota"])
    moment.table.check(checked, moment.batch)
    return Choice(bare, checked, why={"slow": notes["slow"], "shots": shots})


def _begin_period(policy: SlowWindows, moment: Moment, now: float) -> None:
    """All windows that are slow now are shared out over the shots of the period."""
    notes = moment.notes
    notes["began_us"] = now
    notes["began_batch"] = moment.batch
    notes["slow"] = len(_slow(policy, moment, None))
    notes["quota"] = -(-notes["slow"] // policy.shots)
    notes["done"] = 0


def _slow(policy: SlowWindows, moment: Moment, most: int | None) -> Slots:
    """Windows that were slow when the period began and that it has not checked yet."""
    batches = math.ceil(policy.threshold_us / moment.rates.period_us)
    began = moment.notes["began_batch"]
    return moment.table.list_oldest(most, before=began, opened_before=began - batches + 1)
