"""What a policy sees at the end of a batch, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from trailmark.checkpoint.account import Account, work_of
from trailmark.checkpoint.changes import Changes
from trailmark.checkpoint.ledger import Ledger, Totals
from trailmark.checkpoint.rates import Rates, Work
from trailmark.log import MonotonicClock
from trailmark.operators.protocol import Pieces
from trailmark.records import NO_BATCH
from trailmark.state.table import Slots
from trailmark.values import dataclass

NO_SLOTS: Slots = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Moment:
    """The end of a batch.

    Attributes
    ----------
    account
        Of the batch before.
    now
        Totals up to the end of this batch, its footprints excluded.
    opened
        Windows that this batch opened and left open.
    changed, changes
        Windows that it changed and left open, and the set that a policy collects them in; for the
        policies that ask for them.
    """

    batch: int
    pieces: Pieces
    ledger: Ledger
    account: Account
    now: Totals
    opened: Slots
    changed: Slots
    rates: Rates
    now_us: MonotonicClock
    changes: Changes | None = None

    def take_bare(self) -> Slots:
        """The windows without a footprint; from now on they have this batch's."""
        if self.pieces.oldest_footprint() != NO_BATCH:
            return NO_SLOTS
        return self.pieces.take_oldest(NO_BATCH + 1, self.batch, self.pieces.open_windows)

    def work_from(self, oldest: int, footprints: int) -> Work:
        """What a recovery would have to do if the oldest footprint were of that batch, and so many
        were written now."""
        start = self.ledger.at(oldest - 1)
        records = self.now.records + footprints - (0 if start is None else start.records)
        batches = self.batch - oldest
        replayed = self.ledger.at(oldest) if batches else None
        tuples = 0 if replayed is None else self.now.inputs - replayed.inputs
        excess = self.now.excess - (0 if start is None else start.excess)
        excess += int(self.rates.excess_of(footprints))
        return Work(batches + 1, records, batches, tuples, excess)

    def work_if_nothing_is_written(self) -> Work:
        """What a recovery would have to do then: from the oldest footprint on if every window has
        one, else from where the last one would begin."""
        oldest = self.pieces.oldest_footprint()
        if oldest is not None and oldest != NO_BATCH:
            return self.work_from(oldest, 0)
        before = work_of(self.account, self.batch)
        tuples = self.now.inputs - self.account.inputs_total
        return replace(before, tuples=before.tuples + tuples)


@dataclass(frozen=True, slots=True)
class Choice:
    """The windows that get a footprint now: first those that had none, then those checked again.

    Attributes
    ----------
    complaint
        Why the policy's targets are out of reach, and what to do about it; empty if they are not.
    covered
        Up to the end of that batch, windows whose footprints are older have not changed since.
    copies_all
        Whether a copy of all windows is to be written beside the log.
    why
        The decision, for whoever reads the footer.
    """

    bare: Slots = field(default_factory=lambda: NO_SLOTS)
    checked: Slots = field(default_factory=lambda: NO_SLOTS)
    complaint: str = ""
    covered: int = NO_BATCH
    copies_all: bool = False
    why: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_reachable(self) -> bool:
        return not self.complaint
