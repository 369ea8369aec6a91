"""What a join does, whatever is given to it."""

from __future__ import annotations

from trailmark.operators.join.arguments import LEFT
from trailmark.operators.join.arrivals import SideRules
from trailmark.operators.join.blocks import Numbers
from trailmark.operators.join.columns import PairColumns
from trailmark.operators.join.condition import Condition
from trailmark.values import dataclass
from trailmark.windows.interval import Interval

_EARLIEST = -(1 << 63)


@dataclass(frozen=True, slots=True)
class JoinRules:
    """What follows from how a join was defined.

    Attributes
    ----------
    within, columns, condition
        Which tuples match, and what comes out of a pair.
    sides
        Which tuples of each side count.
    piece_rows, most_pairs
        How many tuples are one piece of state, and how many pairs a batch may make.
    """

    within: Interval
    sides: tuple[SideRules, SideRules]
    columns: PairColumns
    condition: Condition | None
    piece_rows: int
    most_pairs: int

    def may_leave(self, side: int, watermark: int | None) -> int | None:
        """Up to which time tuples of a side may have nobody to wait for any more."""
        if watermark is None:
            return None
        return watermark - self.within.reaches[side] if self.by_time[side] else watermark

    @property
    def by_time(self) -> tuple[bool, bool]:
        """Whether tuples of each side leave by their own time alone; otherwise the last one of each
        key stays until there is a later one."""
        return True, self.within.is_bounded

    @property
    def flags(self) -> tuple[bool, bool]:
        """Whether the state has to know of the tuples of each side that they have matched. The
        nearest is only looked for when a tuple leaves."""
        left, right = self.sides
        return (False, False) if self.within.is_nearest else (left.keeps, right.keeps)

    def matched_times(
        self, side: int, others: Numbers, watermark: int | None
    ) -> tuple[int, int] | None:
        """From when to when tuples of a side may be paired in a batch whose other side has these
        times; None if none is."""
        if self.within.is_nearest:
            return None if side == LEFT or watermark is None else (_EARLIEST, watermark)
        if not len(others):
            return None
        earlier, later = self.within.reaches if side == LEFT else self.within.reaches[::-1]
        return int(others.min()) - earlier, int(others.max()) + later
