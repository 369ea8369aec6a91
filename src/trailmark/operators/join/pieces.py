"""A join's state cut by batches: a piece is what waits of up to so many consecutive tuples of one
side of one batch.

It is named by the batch, the side and the place of the first of them, opens with its batch, and
closes when the last of its tuples has left. It *refers* to the batch in the input log, and its
footprints hold none of its tuples, unless the log is kept for next to nothing else: then they hold
all that wait, and the log can go. That is decided when a footprint is about to be written, so that
what the state refers to is what its newest footprints do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.operators.join.departures import depart
from trailmark.operators.join.rules import JoinRules
from trailmark.operators.join.state import (
    IDENTITY,
    Departures,
    Entering,
    JoinState,
    Opening,
    Parting,
)
from trailmark.operators.protocol import BatchInput, History
from trailmark.operators.row_blocks import Numbers
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import Memory
from trailmark.state.table import Slots, TableLayout

#: What is known of a piece: the least and the greatest time of its tuples that wait, and how many
#: these are; where all of them lie, and how many they are; how many tuples came to the bucket
#: before its batch; and whether its footprints hold its tuples.
PIECE = np.dtype(
    [
        *[(name, "<i8") for name in ("side", "first", "since", "until", "tuples")],
        *[(name, "<i8") for name in ("at", "held", "position", "is_kept")],
    ]
)
PIECES = TableLayout(KeyLayout(list(IDENTITY)), PIECE)
#: A piece's tuples are kept where, since its batch, at most one tuple in so many still waits.
_WORTH = 8


class PiecedState(JoinState):
    """Both sides of a join, cut by batches."""

    def __init__(
        self,
        keys: KeyLayout,
        schemas: Sequence[pa.Schema],
        memory: Memory,
        history: History,
        *,
        is_new: bool,
        by_number: bool = False,
    ) -> None:
        super().__init__(PIECES, keys, schemas, memory, history, is_new=is_new, by_number=by_number)

    def depart(self, rules: JoinRules, parting: Parting) -> Departures:
        return depart(self, rules, parting)

    def enter(self, rules: JoinRules, entering: Entering, given: BatchInput) -> tuple[Slots, Slots]:
        arrived, stays = entering.arrived, entering.stays
        pieces = _cut(
            arrived.times[stays],
            arrived.places[stays],
            entering.numbers[stays],
            rules.piece_rows,
        )
        pieces["side"] = entering.side
        pieces["position"] = self.arrived
        opened = self.open_pieces(Opening(pieces, given.batch, given.footprint))
        return opened, opened[:0]

    def holders(self, side: int, numbers: Numbers) -> Slots:
        slots, pieces = self.in_order(side)
        places = np.unique(np.searchsorted(pieces["at"] + pieces["held"], numbers, side="right"))
        held: Slots = slots[places[places < len(slots)]]
        return held

    def in_order(self, side: int, limit: int | None = None) -> tuple[Slots, npt.NDArray[Any]]:
        """The pieces of a side as their tuples came; only those with times up to ``limit``, if
        there is one."""
        slots = self.list_oldest()
        pieces = self.read_pieces(slots)
        is_mine = pieces["side"] == side
        if limit is not None:
            is_mine &= pieces["since"] <= limit
        slots, pieces = slots[is_mine], pieces[is_mine]
        order = np.lexsort((pieces["first"], self.opened(slots)))
        return slots[order], pieces[order]

    def first_since(self, side: int, batch: int) -> int:
        """The number of the first tuple of a side that waits and came in this batch or a later
        one."""
        slots, pieces = self.in_order(side)
        place = int(np.searchsorted(self.opened(slots), batch))
        return int(pieces["at"][place]) if place < len(slots) else self.sides[side].count

    def waiting_in(self, pieces: npt.NDArray[Any]) -> Iterator[Numbers]:
        """The numbers of the tuples that wait, piece by piece."""
        for piece in pieces:
            first, held = int(piece["at"]), int(piece["held"])
            is_gone = self.sides[piece["side"]].tuples["is_gone"][first : first + held]
            yield first + np.flatnonzero(is_gone == 0)

    def _compact(self, side: int) -> None:
        """Keeps the tuples that wait, in the order in which they came."""
        slots, pieces = self.in_order(side)
        numbers = list(self.waiting_in(pieces))
        self.sides[side].keep(np.concatenate([*numbers, np.empty(0, dtype=np.int64)]))
        pieces["held"] = pieces["tuples"]
        pieces["at"] = np.cumsum(pieces["tuples"]) - pieces["tuples"]
        if self.sides[side].by_number:
            pieces["since"] = pieces["at"]
            pieces["until"] = pieces["at"] + pieces["tuples"] - 1
        self.update_pieces(slots, pieces)

    # Footprints that are about to be written

    def take_oldest(self, before: int, batch: int, most: int) -> Slots:
        slots = super().take_oldest(before, batch, most)
        self.keep_or_refer(slots)
        return slots

    def renew(self, slots: Slots, batch: int) -> None:
        super().renew(slots, batch)
        self.keep_or_refer(slots)

    def keep_or_refer(self, slots: Slots) -> None:
        """Decides which pieces refer to the input log no longer: those whose batch would be kept,
        with all that came since, for few tuples that wait."""
        if not len(slots):
            return
        everything = self.list_oldest()
        opened, waits = self.opened(everything), self.read_pieces(everything)["tuples"]
        order = np.argsort(opened)
        since_then = np.cumsum(waits[order][::-1])[::-1]
        pieces = self.read_pieces(slots)
        waiting = since_then[np.searchsorted(opened[order], self.opened(slots))]
        came = self.arrived - pieces["position"]
        pieces["is_kept"] |= waiting * _WORTH < came
        self.update_pieces(slots, pieces)

    def refers_back_to(self) -> int | None:
        """The oldest batch that a piece refers to; None if none does."""
        slots = self.list_oldest()
        referring = self.opened(slots)[self.read_pieces(slots)["is_kept"] == 0]
        return int(referring.min()) if len(referring) else None


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
