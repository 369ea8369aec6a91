"""Footprints back into a state: their pieces, with tuples that they hold or that the input log has.

They are put at the end of what is there, and into the chains of their keys when they are first
needed: by then all footprints of a recovery are there, and their tuples can be brought into the
order in which they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import DamagedSegment
from trailmark.kernel.columns import arrow_fixed, single, whole_numbers
from trailmark.operators.join.arguments import SIDES
from trailmark.operators.join.arrivals import Arrived
from trailmark.operators.join.footprints import (
    MATCHED,
    SINCE,
    WAITS,
    JoinFootprints,
    are_kept,
)
from trailmark.operators.join.pieces import PIECE, PiecedState
from trailmark.operators.join.rules import JoinRules
from trailmark.operators.join.state import FIRST, SIDE
from trailmark.operators.row_blocks import Numbers
from trailmark.operators.user_code import joined
from trailmark.records import FOOTPRINT, OPENED


class PieceFormat(JoinFootprints):
    """Turns pieces into rows, and rows into pieces."""

    def __init__(self, rules: JoinRules, schemas: Sequence[pa.Schema]) -> None:
        super().__init__(rules, schemas)
        self._rules = rules

    def load(self, state: PiecedState, rows: pa.RecordBatch, where: str) -> None:
        """Puts pieces back; they come with the batch of each."""
        _Loading(self._rules, self, state, rows, where).run()


class _Loading:
    """Some footprints on their way into a state; they come with the batch of each."""

    def __init__(
        self,
        rules: JoinRules,
        columns: JoinFootprints,
        state: PiecedState,
        rows: pa.RecordBatch,
        where: str,
    ) -> None:
        self._rules = rules
        self._columns = columns
        self._state = state
        self._rows = rows
        self._where = where
        self._opened = whole_numbers(rows, OPENED)
        self._pieces = np.zeros(rows.num_rows, dtype=PIECE)
        for name in (SIDE, FIRST, *columns.numbers):
            self._pieces[name] = whole_numbers(rows, name)
        self._pieces["held"] = self._pieces["tuples"]
        self._pieces["is_kept"] = are_kept(rows)

    def run(self) -> None:
        """Adds the tuples, then the pieces."""
        pieces, state = self._pieces, self._state
        for side in range(len(SIDES)):
            mine = np.flatnonzero(pieces["side"] == side)
            if len(mine):
                self._add(side, mine[np.lexsort((pieces["first"][mine], self._opened[mine]))])
        state.insert(
            state.encode_keys(self._rows),
            starts=None,
            opened=self._opened,
            footprints=whole_numbers(self._rows, FOOTPRINT),
            fills=None,
            states=pieces,
            where=self._where,
        )
        state.is_loaded = True
        arrived = pieces["position"] + pieces["first"] + pieces["tuples"]
        state.arrived = max(state.arrived, int(arrived.max()))

    def _add(self, side: int, mine: Numbers) -> None:
        """Adds the tuples of the pieces of one side, in the order in which they came."""
        state, rules, waiting = self._state, self._rules.sides[side], self._state.sides[side]
        found = [self._tuples(side, place) for place in mine.tolist()]
        if waiting.count:
            state.note_disorder()
        taken = joined([arrived.rows for arrived, _ in found], self._columns.sides[side])
        times = np.concatenate([arrived.times for arrived, _ in found])
        if waiting.by_number:
            times = waiting.count + np.arange(len(times))
        numbers = state.add_tuples(
            side,
            taken,
            times,
            np.concatenate([places for _, places in found]),
            rules.has_null_key(taken),
        )
        counts = self._pieces["tuples"][mine]
        first = np.cumsum(counts) - counts
        self._pieces["at"][mine] = numbers[0] + first
        self._pieces["since"][mine] = np.minimum.reduceat(times, first)
        self._pieces["until"][mine] = np.maximum.reduceat(times, first)
        if self._rules.flags[side]:
            waiting.tuples["is_matched"][numbers[0] :] = self._flags(mine, counts)

    def _tuples(self, side: int, place: int) -> tuple[Arrived, Numbers]:
        """The tuples that wait by a footprint, and their places in the piece: these are not known,
        nor asked for, where the footprint holds them."""
        piece, at = self._pieces[place], None
        if piece["is_kept"]:
            kept = single(self._rows.column(SIDES[side])).slice(place, 1)
            columns = kept.flatten().flatten()
            rows = pa.RecordBatch.from_arrays(columns, schema=self._columns.sides[side])
        else:
            table = self._state.history.rows(int(self._opened[place])).tables[side]
            rows = table.slice(int(piece["first"]), self._rules.piece_rows)
            if not self._rules.by_time[side]:
                at = self._places(place, rows.num_rows)
                rows = rows.take(arrow_fixed(at, pa.int64()))
        has_times = SINCE in self._columns.numbers
        since = int(piece["since"]) if has_times else None
        arrived = Arrived.of(rows, self._rules.sides[side], since)
        if not has_times and at is None:
            arrived = arrived.last(int(piece["tuples"]))
        self._check(arrived, piece)
        return arrived, arrived.places if at is None else at[arrived.places]

    def _places(self, place: int, count: int) -> Numbers:
        """Which of so many tuples of a piece wait."""
        bits = np.frombuffer(single(self._rows.column(WAITS))[place].as_buffer(), dtype=np.uint8)
        places = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        return places[places < count]

    def _flags(self, mine: Numbers, counts: Numbers) -> npt.NDArray[np.uint8]:
        """Which tuples of pieces have matched."""
        packed = single(self._rows.column(MATCHED))
        parts = [
            np.unpackbits(
                np.frombuffer(packed[place].as_buffer(), dtype=np.uint8),
                count=count,
                bitorder="little",
            )
            for place, count in zip(mine.tolist(), counts.tolist(), strict=True)
        ]
        return np.concatenate(parts)

    def _check(self, arrived: Arrived, piece: Any) -> None:
        """What a footprint says of its tuples is so."""
        if len(arrived.times) == piece["tuples"] and arrived.times.min() == piece["since"]:
            return  # the times of tuples without any are zero, as those of their piece are so far
        raise DamagedSegment(
            f"The logged state contradicts the logged input: {int(piece['tuples']):,} tuples of "
            f"the {SIDES[piece['side']]} side should wait, and {len(arrived.times):,} do.",
            where=self._where,
            fix="Run a verification of both logs; restore the damaged files from a backup.",
        )
