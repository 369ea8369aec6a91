"""Finds the pairs that a batch makes with the tuples that wait, and with itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from trailmark.errors import OperatorError
from trailmark.kernel.library import Arrivals as KernelArrivals
from trailmark.kernel.library import Join as KernelJoin
from trailmark.kernel.library import address, kernel, reference
from trailmark.operators.join.arguments import LEFT, RIGHT
from trailmark.operators.join.arrivals import Arrivals
from trailmark.operators.join.blocks import Numbers
from trailmark.operators.join.state import JoinState
from trailmark.values import dataclass
from trailmark.windows.interval import Interval

#: Pairs that are written at a time where nobody needs all of them at once.
_AT_ONCE = 1 << 20
_UNBOUNDED = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs in order: those of each tuple that has arrived, oldest partner first. ``arrival`` is
    its place among those that have arrived, ``partner`` the number of the other one on its side."""

    arrival: Numbers
    partner: Numbers

    def __len__(self) -> int:
        return len(self.arrival)

    def chosen(self, is_chosen: npt.NDArray[np.bool_]) -> Pairs:
        """Those of the pairs that are chosen."""
        return Pairs(self.arrival[is_chosen], self.partner[is_chosen])


class Matching:
    """A batch at work on a state.

    Its tuples wait from then on, and find one another; they may make at most ``most`` pairs. In a
    replay, which has no such bound, they only meet those that wait and have not matched.

    Attributes
    ----------
    total
        How many pairs there are; where they are too many, how many were counted before that showed.
    steps
        How many tuples were looked at to find them.
    numbers
        The numbers of the tuples of each side, if they wait.
    """

    def __init__(
        self, state: JoinState, arrivals: Arrivals, within: Interval, *, most: int | None = None
    ) -> None:
        self._most = _UNBOUNDED if most is None else most
        self._side = arrivals.side
        adds = most is not None
        keys = [state.key_slots(each.rows, each.has_null, adds=adds) for each in arrivals.sides]
        self.numbers = [
            waiting.add(arrived.rows, linked=True) if adds else np.zeros_like(arrived.times)
            for waiting, arrived in zip(state.sides, arrivals.sides, strict=True)
        ]
        self._times = arrivals.in_order([arrived.times for arrived in arrivals.sides])
        self._keys = arrivals.in_order(keys)
        self._number = arrivals.in_order(self.numbers)
        self._join = KernelJoin(
            state.sides[LEFT].address,
            state.sides[RIGHT].address,
            within.before,
            within.after,
            self._most,
            adds,
            not adds,
        )
        self._count(state)

    def _count(self, state: JoinState) -> None:
        """How many partners each has."""
        count = len(self._side)
        arrays = (self._side, self._times, self._keys, self._number)
        self._arrivals = KernelArrivals(*(address(each) for each in arrays), count)
        self._newest = np.empty(count, dtype=np.uint32)
        self._counts = np.zeros(count, dtype=np.int64)
        steps = np.zeros(1, dtype=np.int64)
        self.total = kernel.tm_join_count(
            state.keys.structure,
            reference(self._join),
            reference(self._arrivals),
            address(self._newest),
            address(self._counts),
            address(steps),
        )
        self.steps = int(steps[0])

    def pairs(self, batch: int) -> Pairs:
        """All pairs; refused if there are too many."""
        if self.total > self._most:
            raise self._too_many(batch)
        return self._pairs(0, len(self._side))

    def parts(self) -> Iterator[Pairs]:
        """The pairs a part at a time, each with all those of some tuples."""
        ends = np.cumsum(self._counts)
        done = 0
        while done < len(self._side):
            before = int(ends[done - 1]) if done else 0
            upto = max(done + 1, int(np.searchsorted(ends, before + _AT_ONCE, side="right")))
            yield self._pairs(done, upto)
            done = upto

    def _pairs(self, first: int, upto: int) -> Pairs:
        total = int(self._counts[first:upto].sum())
        found = Pairs(np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64))
        kernel.tm_join_pairs(
            reference(self._join),
            reference(self._arrivals),
            address(self._newest),
            address(self._counts),
            first,
            upto,
            address(found.arrival),
            address(found.partner),
        )
        return found

    def of_side(self, pairs: Pairs, side: int) -> Numbers:
        """The numbers of the tuples of one side in these pairs."""
        is_new = self._side[pairs.arrival] == side
        return np.where(is_new, self._number[pairs.arrival], pairs.partner)

    def _too_many(self, batch: int) -> OperatorError:
        return OperatorError(
            f"The batch makes more than {self._most:,} pairs, which are allowed; one tuple alone "
            f"makes {int(self._counts.max()):,}.",
            where=f"batch {batch}",
            fix="Nothing of the batch was written. Shorten the interval, add a key, leave out the "
            "keys that everybody has, give the query smaller batches, or allow more pairs.",
        )
