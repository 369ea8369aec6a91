"""What a join does, whatever is given to it."""

from __future__ import annotations

from trailmark.operators.join.arguments import LEFT
from trailmark.operators.join.arrivals import SideRules
from trailmark.operators.join.columns import PairColumns
from trailmark.operators.join.condition import Condition
from trailmark.operators.row_blocks import Numbers
from trailmark.values import dataclass
from trailmark.windows.interval import Interval
from trailmark.windows.last_tuples import LastTuples

_EARLIEST = -(1 << 63)
#: No time and no count is beyond it, and sums of two stay within 64 bits.
_NO_END = 1 << 61

_MILLISECOND = 1000

Windows = tuple[LastTuples, LastTuples]


@dataclass(frozen=True, slots=True)
class Reach:
    """Which tuples of the other side one is paired with: those of times around the one that it asks
    by, and of these at most so many of the newest."""

    before: int = _NO_END
    after: int = _NO_END
    most_left: int = _NO_END
    most_right: int = _NO_END


#: Whoever asks by the number of a tuple, less this, is paired with all up to that one, if times are
#: numbers; without a limit to their count.
EARLIER = Reach()
BACK = _NO_END
#: Asking by it, nobody is met.
NOBODY = -2 * _NO_END


@dataclass(frozen=True, slots=True)
class JoinRules:
    """What follows from how a join was defined.

    Attributes
    ----------
    within, windows
        Which tuples match: those whose times lie close together, or those that are still in a
        window when others come. A join has one of the two.
    columns, condition
        What comes out of a pair, and what else has to hold of it.
    sides
        Which tuples of each side count.
    piece_rows, most_pairs
        How many tuples are one piece of state, and how many pairs a batch may make.
    keeps_late
        Whether late tuples are logged.
    group_size
        How many tuples a group of a ring holds, if windows are cut into these; else None.
    """

    within: Interval | None
    windows: Windows | None
    sides: tuple[SideRules, SideRules]
    columns: PairColumns
    condition: Condition | None
    piece_rows: int
    most_pairs: int
    keeps_late: bool = False
    group_size: int | None = None

    @property
    def is_nearest(self) -> bool:
        """Whether partners are looked for when tuples leave, and not when they come."""
        return self.within is not None and self.within.is_nearest

    @property
    def reach(self) -> Reach:
        """Which partners a tuple finds when it comes. Tuples in windows have their numbers as
        times, and who comes asks by that which the next one of the other side would get."""
        if self.within is not None:
            return Reach(self.within.before, self.within.after)
        assert self.windows is not None
        left, right = self.windows
        after, most_left = (_NO_END, left.count) if left.per_key else (left.count, _NO_END)
        before, most_right = (_NO_END, right.count) if right.per_key else (right.count, _NO_END)
        return Reach(before, after, most_left, most_right)

    @property
    def by_time(self) -> tuple[bool, bool]:
        """Whether tuples of each side leave by their own time alone; otherwise it depends on those
        that come after them with the same key."""
        if self.within is not None:
            return True, self.within.is_bounded
        assert self.windows is not None
        left, right = self.windows
        return not left.per_key, not right.per_key

    @property
    def flags(self) -> tuple[bool, bool]:
        """Whether the state has to know of the tuples of each side that they have matched. The
        nearest is only looked for when a tuple leaves."""
        left, right = self.sides
        return (False, False) if self.is_nearest else (left.keeps, right.keeps)

    def may_leave(self, side: int, watermark: int | None) -> int | None:
        """Up to which time tuples of a side may have nobody to wait for any more.

        By Spark's rule, which is in whole milliseconds, and one later than it need be: rows come
        out in the batch in which they would come out of its own join. The nearest it does not have.
        """
        if watermark is None or self.within is None:
            return None
        last = watermark - self.within.reaches[side] if self.by_time[side] else watermark
        return last if self.is_nearest else last - last % _MILLISECOND - _MILLISECOND

    def matched_times(
        self, side: int, others: Numbers, watermark: int | None
    ) -> tuple[int, int] | None:
        """From when to when tuples of a side may be paired in a batch whose other side has these
        times; None if none is."""
        assert self.within is not None
        if self.within.is_nearest:
            return None if side == LEFT or watermark is None else (_EARLIEST, watermark)
        if not len(others):
            return None
        earlier, later = self.within.reaches if side == LEFT else self.within.reaches[::-1]
        return int(others.min()) - earlier, int(others.max()) + later
