"""`FullSnapshot` and `Delta`: nothing between two points in time, everything at them."""

from __future__ import annotations

from collections.abc import Mapping

from trailmark.checkpoint.changes import Changes
from trailmark.checkpoint.moment import Choice, Moment
from trailmark.checkpoint.policy import Delta, FullSnapshot, every_us


def choose_snapshot(policy: FullSnapshot, moment: Moment) -> Choice:
    """All windows when it is time, as footprints or as a copy to be written behind."""
    if not _is_due(policy, moment):
        return Choice()
    why = {"snapshot_of": moment.table.open_windows}
    if policy.asynchronous:
        return Choice(copies_all=moment.table.open_windows > 0, why=why)
    return _everything(moment, why)


def choose_delta(policy: Delta, moment: Moment, changes: Changes) -> Choice:
    """The windows that have changed, when it is time; all of them every so often, and when it is
    not known which have."""
    notes = moment.notes
    is_known = "deltas" in notes
    if is_known:
        changes.add(moment.changed)
    if not _is_due(policy, moment):
        return Choice()
    number = notes["deltas"] + 1 if is_known else 0
    notes["deltas"] = number
    if number % policy.full_every == 0:
        changes.clear()
        return _everything(moment, {"delta": number, "is_full": True})
    bare = moment.take_bare()
    changed = changes.take(moment.table)
    changed = changed[moment.table.footprints(changed) < moment.batch]
    moment.table.check(changed, moment.batch)
    why = {"delta": number, "is_full": False}
    return Choice(bare, changed, covered=moment.batch, why=why)


def _everything(moment: Moment, why: Mapping[str, object]) -> Choice:
    bare = moment.take_bare()
    checked = moment.table.take_oldest(moment.batch, moment.batch, moment.table.open_windows)
    return Choice(bare, checked, covered=moment.batch, why=why)


def _is_due(policy: FullSnapshot | Delta, moment: Moment) -> bool:
    """Whether it is time; at once if it is not known when the last time was."""
    period_us, notes = every_us(policy), moment.notes
    now = moment.now_us()
    if "last_batch" in notes:
        if period_us is None:
            assert isinstance(policy.every, int)
            is_due = moment.batch - notes["last_batch"] >= policy.every
        else:
            is_due = now - min(notes["last_us"], now) >= period_us
        if not is_due:
            return False
    notes["last_batch"] = moment.batch
    notes["last_us"] = now
    return True
