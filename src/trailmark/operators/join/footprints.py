"""Footprints of pieces as Arrow rows: which piece it is of, from which time on its tuples wait,
which of them have matched, and the tuples themselves where the input log is not kept for them.

::

    $opened, side, first    which piece: batch, side and place of its first tuple
    tuples, since           so many of its tuples wait: those from a time on; without a time, the
                            last ones that have a key
    position                tuples that came to the bucket before the batch
    matched                 a bit for each that waits, where it matters on a side
    waits                   a bit for each tuple from the first on, where they do not leave by time
    left, right             the tuples that wait, in the column of their side; null where they are
                            to be read from the input log
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, bitmap, single, validity, whole_numbers
from trailmark.log.rows import same_columns
from trailmark.operators.ages import CHECK, OPEN, age_trouble
from trailmark.operators.identities import Identities
from trailmark.operators.join.arguments import SIDES
from trailmark.operators.join.pieces import PiecedState
from trailmark.operators.join.rules import JoinRules
from trailmark.operators.join.state import FIRST, IDENTITY, SIDE
from trailmark.operators.row_blocks import Numbers
from trailmark.records import KIND
from trailmark.state.table import Slots

TUPLES, SINCE, POSITION = "tuples", "since", "position"
MATCHED, WAITS = "matched", "waits"
_MOMENT = pa.timestamp("us", "UTC")
_MOST_ROWS = 1 << 40
_FURTHEST = 1 << 62
#: Which sides there are, and which places in a batch.
SIDE_BOUNDS, FIRST_BOUNDS = (0, len(SIDES) - 1), (0, _MOST_ROWS)
#: How many tuples may ever come.
COUNT_BOUNDS = (0, _FURTHEST)
_BOUNDS = {SINCE: (-_FURTHEST, _FURTHEST), POSITION: COUNT_BOUNDS}


class JoinFootprints:
    """Turns pieces into rows, and tells whether rows can be pieces.

    Attributes
    ----------
    schema, numbers
        The columns of footprints, and which of them are what is known of a piece.
    sides
        The columns of the tuples of each side.
    """

    def __init__(self, rules: JoinRules, schemas: Sequence[pa.Schema]) -> None:
        self._piece_rows = rules.piece_rows
        self._flags_of, self._by_time = rules.flags, rules.by_time
        self.sides, self._kinds = held_columns(schemas)
        self._has_flags, self._has_waits = any(rules.flags), not all(rules.by_time)
        has_times = rules.windows is None
        self.numbers = (TUPLES, SINCE, POSITION) if has_times else (TUPLES, POSITION)
        numbers = [pa.field(name, pa.int64()) for name in self.numbers]
        bits = [pa.field(MATCHED, pa.binary())] if self._has_flags else []
        bits += [pa.field(WAITS, pa.binary())] if self._has_waits else []
        kept = [pa.field(name, kind) for name, kind in zip(SIDES, self._kinds, strict=True)]
        kind = pa.field(KIND, pa.int8())
        self.schema = pa.schema([*IDENTITY, kind, *numbers, *bits, *kept])

    # Out of the state

    def content(self, state: PiecedState) -> pa.RecordBatch:
        """All tuples that wait, wherever their home is, and which of them have matched."""
        found = self.encode(state, state.list_oldest(), 0, holds_all=True)
        flags = [MATCHED] if self._has_flags else []
        return found.select([*IDENTITY.names, *flags, *SIDES])

    def encode(
        self, state: PiecedState, slots: Slots, opened: int, *, holds_all: bool = False
    ) -> pa.RecordBatch:
        """The footprints of pieces; with ``holds_all`` every one holds its tuples."""
        pieces = state.read_pieces(slots)
        if holds_all:
            pieces["is_kept"] = 1
        numbers = list(state.waiting_in(pieces))
        kinds = np.full(len(slots), OPEN, dtype=np.int8)
        kinds[opened:] = CHECK
        identities = state.identities_of(slots)
        columns = dict(zip(IDENTITY.names, identities.columns, strict=True))
        columns[KIND] = arrow_fixed(kinds, pa.int8())
        for name in self.numbers:
            columns[name] = arrow_fixed(np.ascontiguousarray(pieces[name]), pa.int64())
        if self._has_flags:
            columns[MATCHED] = self._flags(state, pieces, numbers)
        if self._has_waits:
            columns[WAITS] = self._waits(state, pieces, numbers)
        for side, name in enumerate(SIDES):
            is_kept = (pieces["side"] == side) & (pieces["is_kept"] != 0)
            columns[name] = self._kept(state, side, is_kept, numbers)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=self.schema)

    def _flags(
        self, state: PiecedState, pieces: npt.NDArray[Any], numbers: Sequence[Numbers]
    ) -> pa.Array:
        """Whether the tuples have matched, a bit each; null where nobody asks."""
        return _bits(
            np.array(self._flags_of)[pieces["side"]],
            [
                state.sides[side].tuples["is_matched"][each]
                for side, each in zip(pieces["side"], numbers, strict=True)
            ],
        )

    def _waits(
        self, state: PiecedState, pieces: npt.NDArray[Any], numbers: Sequence[Numbers]
    ) -> pa.Array:
        """Which tuples from the first on wait, a bit each; null where times tell, or the tuples
        are there."""
        places = [
            state.sides[side].tuples["place"][each]
            for side, each in zip(pieces["side"], numbers, strict=True)
        ]
        is_asked = ~np.array(self._by_time)[pieces["side"]] & (pieces["is_kept"] == 0)
        return _bits(is_asked, [np.bincount(each).astype(np.uint8) for each in places])

    def _kept(
        self,
        state: PiecedState,
        side: int,
        is_kept: npt.NDArray[np.bool_],
        numbers: Sequence[Numbers],
    ) -> pa.Array:
        """The tuples of the pieces of a side that are kept; null for all others."""
        counts = np.array([len(each) for each in numbers], dtype=np.int64)
        chosen = [each for each, kept in zip(numbers, is_kept, strict=True) if kept]
        rows = state.sides[side].rows.take(np.concatenate([*chosen, np.empty(0, dtype=np.int64)]))
        values = pa.StructArray.from_arrays(rows.columns, fields=list(self.sides[side]))
        return arrow_lists(self._kinds[side], counts, values, is_kept)

    def widen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Footprints with times as such."""
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        if SINCE in columns:
            columns[SINCE] = columns[SINCE].view(_MOMENT)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    # Out of a log

    def trouble(self, rows: pa.RecordBatch, identities: Identities, batch: int) -> str:
        """What is wrong with the footprints of a batch; empty if nothing is."""
        if not same_columns(rows.schema, self.schema):
            return "has other columns than the footprints of this join"
        bounds = {TUPLES: (1, self._piece_rows), SIDE: SIDE_BOUNDS, FIRST: FIRST_BOUNDS}
        bounds |= {name: _BOUNDS[name] for name in self.numbers if name in _BOUNDS}
        wrong = age_trouble(rows, batch, bounds) or identities.trouble(rows)
        if wrong:
            return wrong
        side, tuples = whole_numbers(rows, SIDE), whole_numbers(rows, TUPLES)
        if (whole_numbers(rows, FIRST) % self._piece_rows).any():
            return f"has pieces that begin elsewhere than every {self._piece_rows} tuples"
        return (
            self._flag_trouble(rows, side, tuples)
            or self._kept_trouble(rows, side, tuples)
            or self._waits_trouble(rows, side)
        )

    def _flag_trouble(self, rows: pa.RecordBatch, side: Numbers, tuples: Numbers) -> str:
        if not self._has_flags:
            return ""
        flags = single(rows.column(MATCHED))
        asked = np.array(self._flags_of)[side]
        expected = np.where(asked, (tuples + 7) // 8, 0)
        is_right = (validity(flags) == asked) & (lengths(flags) == expected)
        return "" if is_right.all() else f"has other bits in {MATCHED!r} than one for each tuple"

    def _waits_trouble(self, rows: pa.RecordBatch, side: Numbers) -> str:
        if not self._has_waits:
            return ""
        waits, is_kept = single(rows.column(WAITS)), are_kept(rows)
        is_asked = ~np.array(self._by_time)[side] & ~is_kept
        is_right = (validity(waits) == is_asked) & (lengths(waits) <= (self._piece_rows + 7) // 8)
        return "" if is_right.all() else f"has other bits in {WAITS!r} than for its tuples"

    def _kept_trouble(self, rows: pa.RecordBatch, side: Numbers, tuples: Numbers) -> str:
        for place, name in enumerate(SIDES):
            kept = single(rows.column(name))
            is_kept = validity(kept)
            is_right = ~is_kept | ((side == place) & (lengths(kept) == tuples))
            if not is_right.all() or kept.flatten().null_count:
                return f"has other tuples in {name!r} than those that wait"
        return ""


def held_columns(schemas: Sequence[pa.Schema]) -> tuple[list[pa.Schema], list[pa.DataType]]:
    """The columns of the tuples of each side that footprints hold, and the type of the lists of
    these. Whether a column may be null is in no description of a log."""
    sides = [pa.schema([pa.field(f.name, f.type) for f in each]) for each in schemas]
    return sides, [pa.list_(pa.struct(list(schema))) for schema in sides]


def arrow_lists(
    kind: pa.DataType,
    count: Numbers,
    values: pa.Array,
    is_valid: npt.NDArray[np.bool_] | None = None,
) -> pa.Array:
    """So many of the values for each row; none, and null, where a row is not valid."""
    counts = count if is_valid is None else np.where(is_valid, count, 0)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    buffers = [bitmap(is_valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(count), buffers, children=[values])


def are_kept(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which footprints hold their tuples."""
    left, right = (validity(single(rows.column(name))) for name in SIDES)
    return left | right


def _bits(is_asked: npt.NDArray[np.bool_], of_rows: Sequence[npt.NDArray[np.uint8]]) -> pa.Array:
    """Bits of each row, packed; null where nobody asks."""
    packed = [
        np.packbits(bits, bitorder="little") if asked else np.empty(0, dtype=np.uint8)
        for bits, asked in zip(of_rows, is_asked, strict=True)
    ]
    offsets = np.cumsum([0, *map(len, packed)]).astype(np.int32)
    data = np.concatenate([*packed, np.empty(0, dtype=np.uint8)])
    buffers = [bitmap(is_asked), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(packed), buffers)


def lengths(column: pa.Array) -> Numbers:
    """How many bytes or values each has; none where it is null."""
    offsets = column.buffers()[1]
    if offsets is None:
        return np.zeros(len(column), dtype=np.int64)
    found = np.frombuffer(offsets, "<i4", len(column) + 1, 4 * column.offset)
    return np.where(validity(column), np.diff(found), 0).astype(np.int64)
