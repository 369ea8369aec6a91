"""Finds the pairs that a batch makes with the tuples that wait, and with itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from trailmark.errors import OperatorError
from trailmark.kernel.library import Arrivals as KernelArrivals
from trailmark.kernel.library import Join as KernelJoin
from trailmark.kernel.library import address, kernel, reference
from trailmark.operators.join.arrivals import Arrivals
from trailmark.operators.join.rules import Reach
from trailmark.operators.join.state import JoinState
from trailmark.operators.row_blocks import Numbers
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")

#: Pairs that are written at a time where nobody needs all of them at once.
_AT_ONCE = 1 << 20
_UNBOUNDED = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs in order: those of each tuple that asks, oldest partner first. ``arrival`` is its place
    among those that ask, ``partner`` the number of the other one on its side."""

    arrival: Numbers
    partner: Numbers

    def __len__(self) -> int:
        return len(self.arrival)

    def chosen(self, is_chosen: npt.NDArray[np.bool_]) -> Pairs:
        """Those of the pairs that are chosen."""
        return Pairs(self.arrival[is_chosen], self.partner[is_chosen])


@dataclass(frozen=True, slots=True)
class Asking:
    """Tuples that look for partners, in order: their sides, times, the times by which they ask, and
    keys, and their numbers on their side if they wait."""

    side: npt.NDArray[np.uint8]
    time: Numbers
    asks: Numbers
    key: Numbers
    number: Numbers

    @classmethod
    def arriving(cls, state: JoinState, arrivals: Arrivals, asks: Numbers | None = None) -> Asking:
        """Those of a batch that wait from now on, asking by their own times if nothing else is
        given; the kernel writes them."""
        keys = [state.keys.slots_of(each.rows, each.has_null, adds=True) for each in arrivals.sides]
        numbers = [
            waiting.add(arrived.rows, linked=True)
            for waiting, arrived in zip(state.sides, arrivals.sides, strict=True)
        ]
        return cls._in_order(arrivals, keys, numbers, asks)

    @classmethod
    def again(cls, state: JoinState, arrivals: Arrivals, asks: Numbers | None = None) -> Asking:
        """Those of a batch that is replayed, which are in the state already or have left."""
        keys = [
            state.keys.slots_of(each.rows, each.has_null, adds=False) for each in arrivals.sides
        ]
        return cls._in_order(arrivals, keys, [np.zeros_like(each) for each in keys], asks)

    @classmethod
    def waiting(cls, state: JoinState, side: int, numbers: Numbers) -> Asking:
        """Some that wait."""
        tuples = state.sides[side].tuples[numbers]
        keys, sides = tuples["key"].astype(np.int64), np.full(len(numbers), side, dtype=np.uint8)
        times = np.ascontiguousarray(tuples["time"])
        return cls(sides, times, times, keys, numbers)

    @classmethod
    def _in_order(
        cls,
        arrivals: Arrivals,
        keys: Sequence[Numbers],
        numbers: Sequence[Numbers],
        asks: Numbers | None = None,
    ) -> Asking:
        times = arrivals.in_order([arrived.times for arrived in arrivals.sides])
        asks = times if asks is None else asks
        return cls(arrivals.side, times, asks, arrivals.in_order(keys), arrivals.in_order(numbers))


class Matching:
    """Tuples at work on a state.

    With ``adds`` they wait from then on, and find one another; with ``only_unmatched`` they only
    meet those that have not matched. They may make at most ``most`` pairs.

    Attributes
    ----------
    total
        How many pairs there are; where they are too many, how many were counted before that showed.
    steps
        How many tuples were looked at to find them.
    """

    def __init__(
        self,
        state: JoinState,
        asking: Asking,
        reach: Reach,
        *,
        most: int = _UNBOUNDED,
        adds: bool = False,
        only_unmatched: bool = False,
    ) -> None:
        self._asking = asking
        self._most = most
        self._join = kernel_join(state, reach, most, adds, only_unmatched)
        count = len(asking.side)
        arrays = (asking.side, asking.time, asking.asks, asking.key, asking.number)
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
        """All pairs; refused if there are too many, with a warning from half of that on."""
        if self.total > self._most:
            raise self._too_many(batch)
        if 2 * self.total > self._most:
            _log.warning(
                "batch %d of a join makes %s pairs, one tuple alone %s; with more than %s a batch "
                "is refused (most_pairs)",
                batch,
                f"{self.total:,}",
                f"{int(self._counts.max()):,}",
                f"{self._most:,}",
            )
        return self._pairs(0, len(self._counts))

    def parts(self) -> Iterator[Pairs]:
        """The pairs a part at a time, each with all those of some tuples."""
        ends = np.cumsum(self._counts)
        done = 0
        while done < len(self._counts):
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
        is_new = self._asking.side[pairs.arrival] == side
        return np.where(is_new, self._asking.number[pairs.arrival], pairs.partner)

    def _too_many(self, batch: int) -> OperatorError:
        return OperatorError(
            f"The batch makes more than {self._most:,} pairs, which are allowed; one tuple alone "
            f"makes {int(self._counts.max()):,}.",
            where=f"batch {batch}",
            fix="Nothing of the batch was written. Shorten the interval or the windows, add a key, "
            "leave out the keys that everybody has, give the query smaller batches, or allow more "
            "pairs.",
        )


def kernel_join(
    state: JoinState, reach: Reach, most: int, adds: bool, only_unmatched: bool
) -> KernelJoin:
    """Both sides as the kernel sees them; to be used before more tuples are added."""
    left, right = state.sides
    return KernelJoin(
        left.address,
        right.address,
        reach.before,
        reach.after,
        most,
        adds,
        only_unmatched,
        reach.most_left,
        reach.most_right,
    )
