"""Which footprints go into the output log at the end of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from trailmark.checkpoint.chooser import Chooser
from trailmark.checkpoint.moment import Choice, Moment
from trailmark.state.table import Slots
from trailmark.values import dataclass

#: Makes footprints of windows: of kind OPEN for the first so many, CHECK for the others.
Gather: TypeAlias = Callable[[Slots, int], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice, and the footprints that it asks for. ``excess`` is what they weigh beyond one plain
    record each, ``copy_excess`` what those of the copy do."""

    choice: Choice
    footprints: pa.RecordBatch | None
    copy: pa.RecordBatch | None
    took_us: float
    excess: int = 0
    copy_excess: int = 0

    @property
    def opened(self) -> int:
        return len(self.choice.bare)

    @property
    def checked(self) -> int:
        return len(self.choice.checked)


def choose_footprints(
    chooser: Chooser,
    moment: Moment,
    gather: Gather,
    *,
    copies: bool = True,
    leaves_none_bare: bool = False,
) -> Chosen:
    """Footprints of this batch, as the policy wants them; a copy of all windows only if ``copies``
    says that one can be written. With ``leaves_none_bare`` every window without a footprint gets
    one, whatever the policy wants."""
    started = moment.now_us()
    choice = chooser.choose(moment)
    if leaves_none_bare:
        choice = replace(choice, bare=np.concatenate([choice.bare, moment.take_bare()]))
    slots = np.concatenate([choice.bare, choice.checked])
    footprints = gather(slots, len(choice.bare)) if len(slots) else None
    is_copied = choice.copies_all and copies
    copy = gather(moment.pieces.list_oldest(), 0) if is_copied else None
    took_us = moment.now_us() - started
    if len(choice.checked):
        chooser.spend(len(choice.checked), took_us * len(choice.checked) / len(slots))
    return Chosen(choice, footprints, copy, took_us)
