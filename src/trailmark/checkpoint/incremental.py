"""`Incremental`: the groups that have got tuples, every so often."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from trailmark.checkpoint.chooser import Chooser
from trailmark.checkpoint.moment import Choice, Moment
from trailmark.checkpoint.noted import Fields, or_none, read_batch
from trailmark.checkpoint.snapshots import LastTime, everything, take_changed
from trailmark.checkpoint.wording import ROUND
from trailmark.values import dataclass

if TYPE_CHECKING:
    from trailmark.checkpoint.policy import Incremental


@dataclass(slots=True)
class DirtyGroups(Chooser):
    """Remembers when the last time was. ``credit`` are the groups that were open since one was
    written that had not changed; None when it is not known what has."""

    policy: Incremental
    last: LastTime
    credit: int | None = None

    FIELDS: ClassVar[Fields] = {"credit": or_none(read_batch)}
    PARTS = ("last",)

    def choose(self, moment: Moment) -> Choice:
        """The groups that have changed, when it is time, and a few of those that have not for
        longest: nobody could forget the beginning of the log otherwise. All of them when it is not
        known which have changed."""
        changes, pieces = moment.changes, moment.pieces
        assert changes is not None
        is_known = self.credit is not None and changes.follow(moment.batch, moment.changed)
        if not self.last.is_due(self.policy, moment):
            return Choice()
        if not is_known or self.credit is None:
            self.credit = 0
            changes.begin(moment.batch)
            return everything(moment, {"groups": pieces.open_windows, "is_full": True})
        due, self.credit = divmod(self.credit + pieces.open_windows, ROUND)
        bare, dirty = take_changed(moment, changes)
        old = pieces.take_oldest(moment.batch, moment.batch, due)
        why = {"groups": len(bare) + len(dirty), "is_full": False}
        return Choice(bare, np.concatenate([dirty, old]), covered=moment.batch, why=why)
