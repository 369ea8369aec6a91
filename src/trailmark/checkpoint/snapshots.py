"""`FullSnapshot` and `Delta`: nothing between two points in time, everything at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from trailmark.checkpoint.changes import Changes
from trailmark.checkpoint.chooser import Chooser
from trailmark.checkpoint.moment import Choice, Moment
from trailmark.checkpoint.noted import Fields, Noted, or_none, read_batch, read_time
from trailmark.state.table import Slots
from trailmark.values import dataclass

if TYPE_CHECKING:
    from trailmark.checkpoint.policy import Delta, FullSnapshot, Repeated


@dataclass(slots=True)
class LastTime(Noted):
    """When it was time last."""

    batch: int | None = None
    us: float | None = None

    FIELDS: ClassVar[Fields] = {"batch": or_none(read_batch), "us": or_none(read_time)}

    def check(self) -> None:
        if (self.batch is None) != (self.us is None):
            raise ValueError("half of a time")

    def is_due(self, policy: Repeated, moment: Moment) -> bool:
        """Whether it is time; at once if it is not known when the last time was."""
        period_us, now = policy.every_us, moment.now_us()
        if self.batch is not None and self.us is not None:
            if period_us is None:
                assert isinstance(policy.every, int)
                is_due = moment.batch - self.batch >= policy.every
            else:
                is_due = now - min(self.us, now) >= period_us
            if not is_due:
                return False
        self.batch = moment.batch
        self.us = now
        return True


@dataclass(slots=True)
class Snapshots(Chooser):
    """Remembers when the last snapshot was."""

    policy: FullSnapshot
    last: LastTime

    PARTS = ("last",)

    def choose(self, moment: Moment) -> Choice:
        """All windows when it is time, as footprints or as a copy to be written behind."""
        if not self.last.is_due(self.policy, moment):
            return Choice()
        why = {"snapshot_of": moment.pieces.open_windows}
        if self.policy.asynchronous:
            return Choice(copies_all=moment.pieces.open_windows > 0, why=why)
        return everything(moment, why)


@dataclass(slots=True)
class Deltas(Chooser):
    """Remembers when the last delta was, and its number."""

    policy: Delta
    last: LastTime
    number: int | None = None

    FIELDS: ClassVar[Fields] = {"number": or_none(read_batch)}
    PARTS = ("last",)

    def choose(self, moment: Moment) -> Choice:
        """The windows that have changed, when it is time; all of them every so often, and when it
        is not known which have."""
        changes = moment.changes
        assert changes is not None
        is_known = self.number is not None and changes.follow(moment.batch, moment.changed)
        if not self.last.is_due(self.policy, moment):
            return Choice()
        self.number = self.number + 1 if is_known and self.number is not None else 0
        if self.number % self.policy.full_every == 0:
            changes.begin(moment.batch)
            return everything(moment, {"delta": self.number, "is_full": True})
        bare, changed = take_changed(moment, changes)
        why = {"delta": self.number, "is_full": False}
        return Choice(bare, changed, covered=moment.batch, why=why)


def take_changed(moment: Moment, changes: Changes) -> tuple[Slots, Slots]:
    """The windows without a footprint, and the others that have changed; from now on they have this
    batch's."""
    bare, pieces = moment.take_bare(), moment.pieces
    changed = changes.take(pieces)
    changed = changed[pieces.footprints(changed) < moment.batch]
    pieces.renew(changed, moment.batch)
    return bare, changed


def everything(moment: Moment, why: Mapping[str, object]) -> Choice:
    """All windows."""
    pieces = moment.pieces
    bare = moment.take_bare()
    checked = pieces.take_oldest(moment.batch, moment.batch, pieces.open_windows)
    return Choice(bare, checked, covered=moment.batch, why=why)
