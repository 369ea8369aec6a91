"""A batch of a join: its tuples meet those that wait, wait in turn, and some leave.

A replay does what is left of that for tuples that are in the state already: it notes which have
matched, and lets those go whose time is over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import DamagedSegment
from trailmark.kernel.columns import arrow_fixed, chosen_rows
from trailmark.operators.join.arguments import LEFT, RIGHT
from trailmark.operators.join.arrivals import Arrivals
from trailmark.operators.join.blocks import Numbers
from trailmark.operators.join.condition import holds
from trailmark.operators.join.departures import Departures
from trailmark.operators.join.matching import Asking, Matching, Pairs
from trailmark.operators.join.nearest import nearest
from trailmark.operators.join.rules import JoinRules
from trailmark.operators.join.state import IDENTITY, PIECE, JoinState, Opening
from trailmark.operators.protocol import BatchInput, Outcome
from trailmark.operators.user_code import joined
from trailmark.state.table import Slots


class JoinBatch:
    """A batch at work on a state."""

    def __init__(self, rules: JoinRules, state: JoinState, given: BatchInput) -> None:
        self._rules = rules
        self._state = state
        self._given = given
        self._arrivals = Arrivals.of(given, rules.sides)
        self._results: list[pa.RecordBatch] = []
        self._closed: list[pa.RecordBatch] = []
        self._changed: list[Slots] = []
        state.settle()

    def process(self) -> Outcome:
        """Takes the batch in."""
        state, given = self._state, self._given
        numbers = self._wait() if self._rules.within.is_nearest else self._pair()
        leaving = [self._let_go(side, numbers[side]) for side in (LEFT, RIGHT)]
        opened = [
            self._open(side, numbers[side], ~leaving[side].arrived_leave) for side in (LEFT, RIGHT)
        ]
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
            late_rows=self._arrivals.late,
            null_times=self._arrivals.null_times,
        )

    def replay(self, where: str) -> None:
        """Brings the pieces that are in the state up to this batch."""
        if any(self._rules.flags):
            asking = Asking.again(self._state, self._arrivals)
            matching = Matching(self._state, asking, self._rules.within, only_unmatched=True)
            found = [self._met_again(pairs) for pairs in matching.parts()]
            for side, waiting in enumerate(self._state.sides):
                for numbers in found:
                    waiting.tuples["is_matched"][numbers[side]] = 1
        for side in (LEFT, RIGHT):
            self._let_go(side, np.empty(0, dtype=np.int64))
        if self._closed:
            raise DamagedSegment(
                "The logged state contradicts the logged input: all tuples of a piece would leave "
                "in a replay.",
                where=where,
                fix="Run a verification of both logs; restore the damaged files from a backup.",
            )
        self._state.tidy()

    # Pairs

    def _pair(self) -> list[Numbers]:
        """Pairs tuples, and notes which have found a partner; returns the numbers of those that
        have arrived, for each side."""
        state, rules, batch = self._state, self._rules, self._given.batch
        asking = Asking.arriving(state, self._arrivals)
        matching = Matching(state, asking, rules.within, most=rules.most_pairs, adds=True)
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
        return [asking.number[asking.side == side] for side in (LEFT, RIGHT)]

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
        slots, pieces = self._state.in_order(side)
        places = np.searchsorted(pieces["at"] + pieces["held"], newly, side="right")
        is_held = places < len(slots)  # those of this batch are in no piece yet
        self._changed.append(slots[np.unique(places[is_held])])

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

    def _let_go(self, side: int, arrived: Numbers) -> Departures:
        """Lets tuples leave whose time is over."""
        found = Departures(self._state, self._rules, side, arrived, self._given.watermark)
        self._changed.append(found.changed)
        if found.closed is not None:
            self._closed.append(found.closed)
        return found

    def _open(self, side: int, numbers: Numbers, stays: npt.NDArray[np.bool_]) -> Slots:
        """Opens pieces for the tuples of the batch that stay."""
        arrived = self._arrivals.sides[side]
        pieces = _cut(
            arrived.times[stays], arrived.places[stays], numbers[stays], self._rules.piece_rows
        )
        pieces["side"] = side
        pieces["position"] = self._state.arrived
        return self._state.open_pieces(Opening(pieces, self._given.batch, self._given.footprint))

    def _emit(self, side: int, leaving: Numbers) -> None:
        """What comes out of tuples that leave: a pair with the nearest, or those that have not
        matched, if they are wanted."""
        state, rules = self._state, self._rules
        is_alone = state.sides[side].tuples["is_matched"][leaving] == 0
        if rules.within.is_nearest and side == LEFT:
            partners = nearest(state, rules, leaving, self._given.batch)
            is_alone = partners < 0
            left = state.sides[LEFT].rows.take(leaving[~is_alone])
            right = state.sides[RIGHT].rows.take(partners[~is_alone])
            self._results.append(rules.columns.pairs(left, right))
        if rules.sides[side].keeps and is_alone.any():
            alone = state.sides[side].rows.take(leaving[is_alone])
            self._results.append(rules.columns.alone(side, alone))


def _cut(times: Numbers, places: Numbers, numbers: Numbers, size: int) -> npt.NDArray[Any]:
    """Pieces of tuples: up to ``size`` consecutive places of the batch each."""
    of_piece = places // size
    starts = np.flatnonzero(np.diff(of_piece, prepend=-1))
    pieces = np.zeros(len(starts), dtype=PIECE)
    if not len(starts):
        return pieces
    ends = np.append(starts[1:], len(places))
    pieces["first"] = of_piece[starts] * size
    pieces["since"] = np.minimum.reduceat(times, starts)
    pieces["until"] = np.maximum.reduceat(times, starts)
    pieces["tuples"] = ends - starts
    pieces["at"] = numbers[starts]
    pieces["held"] = numbers[ends - 1] + 1 - numbers[starts]
    return pieces
