"""Which tuples leave at the end of a batch, and what is left of their pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.operators.join.blocks import Numbers
from trailmark.operators.join.rules import JoinRules
from trailmark.operators.join.state import JoinState
from trailmark.state.table import Slots

Mask = npt.NDArray[np.bool_]

#: Before all times.
_NEVER = -(1 << 63)


class Departures:
    """The tuples of one side that leave, of those that wait and of those that have just arrived.

    Attributes
    ----------
    numbers
        All that leave, in the order in which they came.
    arrived_leave
        Which of those that have arrived are among them.
    closed
        What names the pieces that none of them is left of; None if there are none.
    changed
        The pieces that some of them were of, and that stay open.
    """

    def __init__(
        self,
        state: JoinState,
        rules: JoinRules,
        side: int,
        arrived: Numbers,
        watermark: int | None,
    ) -> None:
        limit = rules.may_leave(side, watermark)
        slots, pieces = state.in_order(side, _NEVER if limit is None else limit)
        held = list(state.waiting_in(pieces))
        waiting = np.concatenate([*held, np.empty(0, dtype=np.int64)])
        numbers = np.concatenate([waiting, arrived])
        tuples = state.sides[side].tuples
        times = tuples["time"][numbers]
        leave = np.zeros(len(numbers), dtype=np.bool_)
        if limit is not None:
            by_time = rules.by_time[side]
            leave = times <= limit if by_time else _followed(times, tuples["key"][numbers], limit)
        self.numbers = np.sort(numbers[leave])
        self.arrived_leave = leave[len(waiting) :]
        self.closed: pa.RecordBatch | None = None
        of_piece = np.repeat(np.arange(len(slots)), [len(each) for each in held])
        stays = ~leave[: len(waiting)]
        left = _left_of(pieces, of_piece[stays], times[: len(waiting)][stays])
        self.changed = self._shrink(state, slots, pieces, left)
        state.sides[side].let_go(self.numbers)

    def _shrink(
        self, state: JoinState, slots: Slots, before: npt.NDArray[Any], after: npt.NDArray[Any]
    ) -> Slots:
        """Writes what is left of the pieces; returns those that have changed and stay open."""
        has_changed = before["tuples"] != after["tuples"]
        slots, after = slots[has_changed], after[has_changed]
        is_closed = after["tuples"] == 0
        if is_closed.any():
            self.closed = state.identities_of(slots[is_closed])
        if len(slots):
            state.update_pieces(slots, after, is_closed)
        stays_open: Slots = slots[~is_closed]
        return stays_open


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
