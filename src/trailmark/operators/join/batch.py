"""A batch of a join: its tuples meet those that wait, wait in turn, and some leave.

A replay does what is left of that for tuples that are in the state already: it notes which have
matched, and lets those go whose time is over.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import DamagedSegment
from trailmark.kernel.columns import arrow_fixed, chosen_rows
from trailmark.operators.join.arguments import LEFT, RIGHT
from trailmark.operators.join.arrivals import Arrivals
from trailmark.operators.join.condition import holds
from trailmark.operators.join.matching import Asking, Matching, Pairs
from trailmark.operators.join.nearest import nearest
from trailmark.operators.join.pieces import PiecedState
from trailmark.operators.join.rules import BACK, EARLIER, NOBODY, JoinRules
from trailmark.operators.join.state import IDENTITY, Departures, Entering, JoinState, Parting
from trailmark.operators.protocol import BatchInput, Outcome
from trailmark.operators.row_blocks import Numbers
from trailmark.operators.user_code import joined
from trailmark.state.table import Slots


class JoinBatch:
    """A batch at work on a state."""

    def __init__(
        self, rules: JoinRules, state: JoinState, given: BatchInput, *, is_last: bool = False
    ) -> None:
        self._rules = rules
        self._state = state
        self._given = given
        self._is_last = is_last
        self._arrivals = Arrivals.of(given, rules.sides)
        self._results: list[pa.RecordBatch] = []
        self._closed: list[pa.RecordBatch] = []
        self._changed: list[Slots] = []
        state.settle()

    def process(self) -> Outcome:
        """Takes the batch in."""
        state, given = self._state, self._given
        numbers = self._wait() if self._rules.is_nearest else self._pair()
        leaving = [self._let_go(side, numbers[side]) for side in (LEFT, RIGHT)]
        opened = [self._enter(side, numbers[side], leaving[side]) for side in (LEFT, RIGHT)]
        for side in (LEFT, RIGHT):
            self._emit(side, leaving[side].numbers)
        state.arrived += given.rows.num_rows + sum(each.num_rows for each in given.others)
        slots = np.concatenate(opened)
        if given.footprint == given.batch:
            state.keep_or_refer(slots)
        state.tidy()
        changed = np.unique(np.concatenate([slots, *self._changed]))
        return Outcome(
            joined(self._results, self._rules.columns.schema),
            slots,
            changed[state.are_open(changed)] if given.lists_changed else slots[:0],
            closed=joined(self._closed, IDENTITY),
            late=self._late(),
            late_rows=self._arrivals.late,
            null_times=self._arrivals.null_times,
        )

    def replay(self, where: str) -> None:
        """Brings the pieces that are in the state up to this batch."""
        if any(self._rules.flags):
            found = [self._met_again(pairs) for pairs in self._matching_again().parts()]
            for side, waiting in enumerate(self._state.sides):
                for numbers in found:
                    waiting.tuples["is_matched"][numbers[side]] = 1
        if self._rules.windows is None or self._state.is_loaded:
            for side in (LEFT, RIGHT):
                self._let_go(side, None)
            self._state.is_loaded = False  # of a window, all that ever leaves has left by now
        if self._closed:
            raise DamagedSegment(
                "The logged state contradicts the logged input: all tuples of a piece would leave "
                "in a replay.",
                where=where,
                fix="Run a verification of both logs; restore the damaged files from a backup.",
            )
        self._state.tidy()

    def _late(self) -> pa.RecordBatch | None:
        """The late tuples, if they are kept and there are any."""
        if not self._rules.keeps_late or not self._arrivals.late:
            return None
        tables = (self._given.rows, *self._given.others)
        return self._rules.columns.late_rows(
            [
                rows.slice(0, 0) if arrived.late is None else arrived.late
                for rows, arrived in zip(tables, self._arrivals.sides, strict=True)
            ]
        )

    # Pairs

    def _pair(self) -> list[Numbers]:
        """Pairs tuples, and notes which have found a partner; returns the numbers of those that
        have arrived, for each side."""
        state, rules, batch = self._state, self._rules, self._given.batch
        asks = None
        if rules.windows is not None:
            counts = [waiting.count for waiting in state.sides]
            asks = self._arrivals.next_numbers(counts)
            self._arrivals = self._arrivals.numbered(counts)
        asking = Asking.arriving(state, self._arrivals, asks)
        matching = Matching(state, asking, rules.reach, most=rules.most_pairs, adds=True)
        pairs = matching.pairs(batch)
        numbers = [matching.of_side(pairs, side) for side in (LEFT, RIGHT)]
        left, right = (
            waiting.rows.take(each) for waiting, each in zip(state.sides, numbers, strict=True)
        )
        if rules.condition is not None and len(pairs):
            is_true = holds(rules.condition, left, right, batch)
            left, right = chosen_rows(left, is_true), chosen_rows(right, is_true)
            numbers = [each[is_true] for each in numbers]
        if left.num_rows:
            self._results.append(rules.columns.pairs(left, right))
        for side, is_asked in enumerate(rules.flags):
            if is_asked:
                self._note_matched(side, numbers[side])
        arrived = [asking.number[asking.side == side] for side in (LEFT, RIGHT)]
        for side, by_time in enumerate(rules.by_time):
            if not by_time:
                places = self._arrivals.sides[side].places % rules.piece_rows
                state.sides[side].tuples["place"][arrived[side]] = places
        return arrived

    def _wait(self) -> list[Numbers]:
        """Lets tuples wait without looking for partners; returns their numbers, for each side."""
        numbers = [
            self._state.add_tuples(
                side,
                arrived.rows,
                arrived.times,
                arrived.places % self._rules.piece_rows,
                arrived.has_null,
            )
            for side, arrived in enumerate(self._arrivals.sides)
        ]
        for waiting in self._state.sides:
            waiting.link()
        return numbers

    def _note_matched(self, side: int, numbers: Numbers) -> None:
        flags = self._state.sides[side].tuples["is_matched"]
        newly = numbers[flags[numbers] == 0]
        flags[newly] = 1
        if not self._given.lists_changed or not len(newly):
            return
        self._changed.append(self._state.holders(side, newly))

    def _matching_again(self) -> Matching:
        """Whom the tuples of a batch meet that is replayed. In windows these are tuples of earlier
        batches: whom those met that came in this batch or later is in their footprints, which are
        not older than they are, and by now it could not be told who was in a window then."""
        state, rules = self._state, self._rules
        asks, reach = None, rules.reach
        if rules.windows is not None:
            assert isinstance(state, PiecedState), "groups are never brought up to date one by one"
            reach = EARLIER
            last = [state.first_since(side, self._given.batch) - 1 for side in (LEFT, RIGHT)]
            asked = [
                last[1 - side] - BACK if rules.flags[1 - side] else NOBODY for side in (LEFT, RIGHT)
            ]
            asks = np.array(asked, dtype=np.int64)[self._arrivals.side]
        asking = Asking.again(state, self._arrivals, asks)
        return Matching(state, asking, reach, only_unmatched=True)

    def _met_again(self, pairs: Pairs) -> list[Numbers]:
        """Of each side, the tuples that wait and have found a partner."""
        found = [np.empty(0, dtype=np.int64)] * 2
        sides = self._arrivals.side[pairs.arrival]
        for side, is_asked in enumerate(self._rules.flags):
            if is_asked:
                some = pairs.chosen(sides != side)
                found[side] = some.partner[self._hold_again(side, some)]
        return found

    def _hold_again(self, side: int, pairs: Pairs) -> npt.NDArray[np.bool_]:
        """Of which pairs with waiting tuples of this side the condition holds."""
        condition = self._rules.condition
        if condition is None or not len(pairs):
            return np.ones(len(pairs), dtype=np.bool_)
        # Which of the other side's tuples a place is of: those that came before it, of that side.
        place = np.cumsum(self._arrivals.side != side)[pairs.arrival] - 1
        arrived = self._arrivals.sides[1 - side].rows.take(arrow_fixed(place, pa.int64()))
        waiting = self._state.sides[side].rows.take(pairs.partner)
        left, right = (waiting, arrived) if side == LEFT else (arrived, waiting)
        return holds(condition, left, right, self._given.batch)

    # Leaving and waiting

    def _let_go(self, side: int, arrived: Numbers | None) -> Departures:
        """Lets tuples leave that have nobody to wait for any more; those that have arrived are None
        in a replay."""
        parting = Parting(side, arrived, self._given.watermark, self._is_last)
        found = self._state.depart(self._rules, parting)
        self._changed.append(found.changed)
        if found.closed is not None:
            self._closed.append(found.closed)
        return found

    def _enter(self, side: int, numbers: Numbers, leaving: Departures) -> Slots:
        """Puts the tuples of the batch that stay into pieces; returns those that this opens."""
        entering = Entering(side, self._arrivals.sides[side], numbers, ~leaving.arrived_leave)
        opened, changed = self._state.enter(self._rules, entering, self._given)
        self._changed.append(changed)
        return opened

    def _emit(self, side: int, leaving: Numbers) -> None:
        """What comes out of tuples that leave: a pair with the nearest, or those that have not
        matched, if they are wanted."""
        state, rules = self._state, self._rules
        keyless = self._arrivals.sides[side].keyless
        if keyless is not None:
            self._results.append(rules.columns.alone(side, keyless))
        is_alone = state.sides[side].tuples["is_matched"][leaving] == 0
        if rules.is_nearest and side == LEFT:
            partners = nearest(state, rules, leaving, self._given.batch)
            is_alone = partners < 0
            left = state.sides[LEFT].rows.take(leaving[~is_alone])
            right = state.sides[RIGHT].rows.take(partners[~is_alone])
            self._results.append(rules.columns.pairs(left, right))
        if rules.sides[side].keeps and is_alone.any():
            alone = state.sides[side].rows.take(leaving[is_alone])
            self._results.append(rules.columns.alone(side, alone))
