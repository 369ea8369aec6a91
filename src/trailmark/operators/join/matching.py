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
from trailmark.operators.join.arrivals import Arrivals, Arrived
from trailmark.operators.join.blocks import Numbers
from trailmark.operators.join.state import JoinState
from trailmark.values import dataclass
from trailmark.windows.interval import Interval

#: Pairs that are written at a time where nobody needs all of them at once.
_AT_ONCE = 1 << 20


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

    With ``adds`` its tuples wait from then on, and find one another; without, they only meet those
    that wait and have not matched.

    Attributes
    ----------
    total
        How many pairs there are.
    steps
        How many tuples were looked at to find them.
    numbers
        The numbers of the tuples of each side, if they wait.
    """

    def __init__(
        self, state: JoinState, arrivals: Arrivals, within: Interval, *, adds: bool
    ) -> None:
        self.arrivals = arrivals
        sides = list(zip(state.sides, arrivals.sides, strict=True))
        keys = [
            _key_slots(state, side, arrived, adds) for side, arrived in enumerate(arrivals.sides)
        ]
        if adds:
            for waiting, arrived in sides:
                waiting.make_room(arrived.rows.num_rows)
            self.numbers = [waiting.add(arrived.rows, linked=True) for waiting, arrived in sides]
        else:
            self.numbers = [np.zeros(len(arrived.times), np.int64) for _, arrived in sides]
        self._count, count = len(arrivals.side), len(arrivals.side)
        self._times = arrivals.in_order([arrived.times for arrived in arrivals.sides])
        self._keys = arrivals.in_order(keys)
        self._number = arrivals.in_order(self.numbers)
        self._newest = np.empty(count, dtype=np.uint32)
        self._counts = np.empty(count, dtype=np.int64)
        self._join = KernelJoin(
            state.sides[LEFT].address,
            state.sides[RIGHT].address,
            within.before,
            within.after,
            adds,
            not adds,
        )
        self._arrivals = KernelArrivals(
            address(arrivals.side),
            address(self._times),
            address(self._keys),
            address(self._number),
            count,
        )
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

    def pairs(self, most: int, batch: int) -> Pairs:
        """All pairs; refused if there are more than ``most``."""
        if self.total > most:
            raise self._too_many(most, batch)
        return self._pairs(0, self._count)

    def parts(self) -> Iterator[Pairs]:
        """The pairs a part at a time, each with all those of some tuples."""
        ends = np.cumsum(self._counts)
        done = 0
        while done < self._count:
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
        is_new = self.arrivals.side[pairs.arrival] == side
        return np.where(is_new, self._number[pairs.arrival], pairs.partner)

    def _too_many(self, most: int, batch: int) -> OperatorError:
        worst = int(self._counts.argmax())
        return OperatorError(
            f"The batch makes {self.total:,} pairs, more than the {most:,} that are allowed; one "
            f"tuple alone makes {int(self._counts[worst]):,}.",
            where=f"batch {batch}",
            fix="Nothing of the batch was written. Shorten the interval, add a key, leave out the "
            "keys that everybody has, give the query smaller batches, or allow more pairs.",
        )


def _key_slots(state: JoinState, side: int, arrived: Arrived, adds: bool) -> Numbers:
    return state.key_slots(arrived.rows, arrived.has_null, adds=adds)
