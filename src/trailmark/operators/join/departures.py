"""Which tuples leave at the end of a batch, and what is left of their pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.operators.join.rules import JoinRules
from trailmark.operators.join.state import Departures, Mask, Parting
from trailmark.operators.row_blocks import Numbers
from trailmark.state.table import Slots

if TYPE_CHECKING:
    from trailmark.operators.join.pieces import PiecedState

#: Pieces some of whose tuples may leave, and who tells of tuples which do.
Candidates = tuple[Slots, npt.NDArray[Any], Callable[[Numbers], Mask]]

#: Before all times.
_NEVER = -(1 << 63)


def depart(state: PiecedState, rules: JoinRules, parting: Parting) -> Departures:
    """Lets tuples of one side leave."""
    side, arrived = parting.side, parting.arrived
    if rules.windows is None:
        limit = rules.may_leave(side, parting.watermark)
        slots, pieces, leaves = _timed(state, rules, side, limit)
    elif parting.is_last or not rules.windows[side].per_key:
        stay = 0 if parting.is_last else rules.windows[side].count
        slots, pieces, leaves = _timed(state, rules, side, state.sides[side].count - stay - 1)
    else:
        slots, pieces, leaves = _pushed_out(state, side, arrived, rules.windows[side].count)
    held = list(state.waiting_in(pieces))
    none = np.empty(0, dtype=np.int64)
    waiting = np.concatenate([*held, none])
    numbers = np.concatenate([waiting, none if arrived is None else arrived])
    leave = leaves(numbers)
    leaving = np.sort(numbers[leave])
    of_piece = np.repeat(np.arange(len(slots)), [len(each) for each in held])
    stays = ~leave[: len(waiting)]
    times = state.sides[side].tuples["time"][waiting]
    left = _left_of(pieces, of_piece[stays], times[stays])
    closed, changed = _shrink(state, slots, pieces, left)
    state.sides[side].let_go(leaving)
    return Departures(leaving, leave[len(waiting) :], closed, changed)


def _shrink(
    state: PiecedState, slots: Slots, before: npt.NDArray[Any], after: npt.NDArray[Any]
) -> tuple[pa.RecordBatch | None, Slots]:
    """Writes what is left of the pieces; returns what names those that close, and those that have
    changed and stay open."""
    has_changed = before["tuples"] != after["tuples"]
    slots, after = slots[has_changed], after[has_changed]
    is_closed = after["tuples"] == 0
    closed = state.identities_of(slots[is_closed]) if is_closed.any() else None
    if len(slots):
        state.update_pieces(slots, after, is_closed)
    return closed, slots[~is_closed]


def _timed(state: PiecedState, rules: JoinRules, side: int, limit: int | None) -> Candidates:
    """Tuples of times up to a limit; where times do not decide, those of them that are followed by
    others of their key."""
    tuples = state.sides[side].tuples

    def leaves(numbers: Numbers) -> Mask:
        if limit is None:
            return np.zeros(len(numbers), dtype=np.bool_)
        times = tuples["time"][numbers]
        if rules.by_time[side] or rules.windows is not None:
            return np.asarray(times <= limit)
        return _followed(times, tuples["key"][numbers], limit)

    return (*state.in_order(side, _NEVER if limit is None else limit), leaves)


def _pushed_out(state: PiecedState, side: int, arrived: Numbers | None, most: int) -> Candidates:
    """Tuples that have so many newer ones of their key."""
    going = state.surplus(side, arrived, most)
    is_going = np.zeros(state.sides[side].count, dtype=np.bool_)
    is_going[going] = True
    slots, pieces = state.in_order(side)
    places = np.unique(np.searchsorted(pieces["at"] + pieces["held"], going, side="right"))
    places = places[places < len(slots)]  # those of this batch are in no piece yet
    return slots[places], pieces[places], lambda numbers: is_going[numbers]


def _followed(times: Numbers, keys: npt.NDArray[np.uint32], watermark: int) -> Mask:
    """Of tuples in the order in which they came, those that are no later than the watermark and
    not the last of their key: of equal times, the one that came last is."""
    leave = np.zeros(len(times), dtype=np.bool_)
    settled = np.flatnonzero(times <= watermark)
    of_key = keys[settled].astype(np.int64)
    order = np.lexsort((settled, times[settled], of_key))
    is_last = np.diff(of_key[order], append=-1) != 0
    leave[settled[order[~is_last]]] = True
    return leave


def _left_of(pieces: npt.NDArray[Any], of_piece: Numbers, times: Numbers) -> npt.NDArray[Any]:
    """Pieces with so many tuples, from the least of these times on."""
    left = pieces.copy()
    left["tuples"] = np.bincount(of_piece, minlength=len(pieces))
    since = left["until"].copy()
    np.minimum.at(since, of_piece, times)
    left["since"] = since
    return left
