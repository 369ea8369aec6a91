"""Footprints of groups as Arrow rows, and back: which group it is of, and the tuples in it.

::

    $opened, side, first    which group: batch, side and place of its first tuple
    tuples                  so many of its tuples waited then
    filled, size            so many it had got, and so many it will get
    others                  so many tuples had come to the other side
    numbers                 of each tuple that waits, how many came to its side before it
    matched                 whether it has matched, where it matters on a side
    left, right             the tuples, in the column of their side
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import (
    arrow_booleans,
    arrow_fixed,
    numbers,
    single,
    truths,
    validity,
    whole_numbers,
)
from trailmark.log.rows import same_columns
from trailmark.operators.ages import CHECK, OPEN, age_trouble
from trailmark.operators.identities import Identities
from trailmark.operators.join.arguments import SIDES
from trailmark.operators.join.footprints import (
    COUNT_BOUNDS,
    FIRST_BOUNDS,
    MATCHED,
    SIDE_BOUNDS,
    TUPLES,
    arrow_lists,
    held_columns,
    lengths,
)
from trailmark.operators.join.groups import GROUP, GroupedState
from trailmark.operators.join.rules import JoinRules
from trailmark.operators.join.state import FIRST, IDENTITY, SIDE
from trailmark.operators.row_blocks import Numbers
from trailmark.records import FOOTPRINT, KIND, OPENED
from trailmark.state.table import Slots

FILLED, SIZE, OTHERS, NUMBERS = "filled", "size", "others", "numbers"
_COUNTS = (TUPLES, FILLED, SIZE)
_NUMBERS = pa.list_(pa.int64())
_FLAGS = pa.list_(pa.bool_())


class GroupFootprints:
    """Turns groups into rows, and rows into groups.

    Attributes
    ----------
    schema
        The columns of footprints.
    """

    def __init__(self, rules: JoinRules, schemas: Sequence[pa.Schema]) -> None:
        assert rules.group_size is not None
        self._most = rules.group_size
        self._flags_of = np.array(rules.flags)
        self._sides, self._kinds = held_columns(schemas)
        counts = [pa.field(name, pa.int64()) for name in _COUNTS]
        flags = [pa.field(MATCHED, _FLAGS)] if any(rules.flags) else []
        held = [pa.field(name, kind) for name, kind in zip(SIDES, self._kinds, strict=True)]
        self.schema = pa.schema(
            [
                *IDENTITY,
                pa.field(KIND, pa.int8()),
                *counts,
                pa.field(OTHERS, pa.int64()),
                pa.field(NUMBERS, _NUMBERS),
                *flags,
                *held,
            ]
        )

    # Out of the state

    def content(self, state: GroupedState) -> pa.RecordBatch:
        """All tuples that wait, in their groups, and which of them have matched."""
        return self.encode(state, state.list_oldest(), 0).drop_columns([KIND, OTHERS])

    def encode(self, state: GroupedState, slots: Slots, opened: int) -> pa.RecordBatch:
        """The footprints of groups."""
        groups = state.read_pieces(slots)
        kinds = np.full(len(slots), OPEN, dtype=np.int8)
        kinds[opened:] = CHECK
        columns = dict(zip(IDENTITY.names, state.identities_of(slots).columns, strict=True))
        columns[KIND] = arrow_fixed(kinds, pa.int8())
        for name in _COUNTS:
            columns[name] = arrow_fixed(np.ascontiguousarray(groups[name]), pa.int64())
        came = np.array([state.came(side) for side in range(len(SIDES))])
        columns[OTHERS] = arrow_fixed(came[1 - groups["side"]], pa.int64())
        held = [_Held.of(state, side, slots, groups) for side in range(len(SIDES))]
        order = np.argsort(np.concatenate([each.row for each in held]), kind="stable")
        count = np.ascontiguousarray(groups["tuples"])
        numbered = np.concatenate([each.came for each in held])[order]
        columns[NUMBERS] = arrow_lists(_NUMBERS, count, arrow_fixed(numbered, pa.int64()))
        if self._flags_of.any():
            is_asked = self._flags_of[groups["side"]]
            flags = np.concatenate([each.flags for each in held])[order]
            flags = flags[np.repeat(is_asked, count)].astype(np.bool_)
            columns[MATCHED] = arrow_lists(_FLAGS, count, arrow_booleans(flags), is_asked)
        for side, name in enumerate(SIDES):
            rows = state.sides[side].rows.take(held[side].numbers)
            values = pa.StructArray.from_arrays(rows.columns, fields=list(self._sides[side]))
            columns[name] = arrow_lists(self._kinds[side], count, values, groups["side"] == side)
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self.schema.names], schema=self.schema
        )

    def widen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """They are as wide as the state is."""
        return rows

    # Out of a log

    def trouble(self, rows: pa.RecordBatch, identities: Identities, batch: int) -> str:
        """What is wrong with the footprints of a batch; empty if nothing is."""
        if not same_columns(rows.schema, self.schema):
            return "has other columns than the footprints of this join"
        bounds = {SIDE: SIDE_BOUNDS, FIRST: FIRST_BOUNDS, OTHERS: COUNT_BOUNDS}
        bounds |= dict.fromkeys(_COUNTS, (1, self._most))
        wrong = age_trouble(rows, batch, bounds) or identities.trouble(rows)
        if wrong:
            return wrong
        side = whole_numbers(rows, SIDE)
        tuples, filled, size = (whole_numbers(rows, name) for name in _COUNTS)
        if (tuples > filled).any() or (filled > size).any():
            return "has groups of more tuples than they have got, or than they hold"
        asked = {NUMBERS: np.ones(len(side), dtype=np.bool_)}
        asked |= {name: side == place for place, name in enumerate(SIDES)}
        if self._flags_of.any():
            asked[MATCHED] = self._flags_of[side]
        for name, is_asked in asked.items():
            held = single(rows.column(name))
            is_right = (validity(held) == is_asked) & (
                lengths(held) == np.where(is_asked, tuples, 0)
            )
            if not is_right.all() or held.flatten().null_count:
                return f"has other values in {name!r} than one for each tuple"
        return _number_trouble(numbers(single(rows.column(NUMBERS)).flatten()), tuples)

    def load(self, state: GroupedState, rows: pa.RecordBatch, where: str) -> None:
        """Puts groups back; what is too much for a window is dropped when all are there."""
        groups = np.zeros(rows.num_rows, dtype=GROUP)
        for name in (SIDE, FIRST, *_COUNTS):
            groups[name] = whole_numbers(rows, name)
        added = [self._add(state, side, rows, groups) for side in range(len(SIDES))]
        slots = state.insert(
            state.encode_keys(rows),
            starts=None,
            opened=whole_numbers(rows, OPENED),
            footprints=whole_numbers(rows, FOOTPRINT),
            fills=None,
            states=groups,
            where=where,
        )
        for side, numbers_added in enumerate(added):
            mine = groups["side"] == side
            of_groups = np.repeat(slots[mine], groups["tuples"][mine])
            state.sides[side].labels["group"][numbers_added] = of_groups
        state.note_disorder()
        state.is_loaded = True

    def _add(
        self, state: GroupedState, side: int, rows: pa.RecordBatch, groups: npt.NDArray[Any]
    ) -> Numbers:
        """Adds the tuples of the groups of a side; returns their numbers in the state."""
        mine = groups["side"] == side
        held = single(rows.column(SIDES[side])).flatten()
        tuples = pa.RecordBatch.from_arrays(held.flatten(), schema=self._sides[side])
        nowhere = np.zeros(tuples.num_rows, dtype=np.int64)
        added = state.add_tuples(side, tuples, nowhere, nowhere, None)
        is_mine = np.repeat(mine, groups["tuples"])
        came = numbers(single(rows.column(NUMBERS)).flatten())[is_mine]
        waiting = state.sides[side]
        waiting.labels["number"][added] = came
        if self._flags_of[side]:
            flags = single(rows.column(MATCHED)).filter(arrow_booleans(mine)).flatten()
            waiting.tuples["is_matched"][added] = truths(flags)
        first = np.cumsum(groups["tuples"][mine]) - groups["tuples"][mine]
        groups["ring"][mine] = state.ring_of(side, added[first])
        others = whole_numbers(rows, OTHERS)[groups["side"] != side]
        state.note_came(side, int(others.max(initial=0)))
        return added


class _Held:
    """The tuples that wait in groups of one side, group by group.

    Attributes
    ----------
    row
        Which footprint each tuple is of.
    numbers, came, flags
        Their numbers in the state and as they came, and whether they have matched.
    """

    def __init__(self, row: Numbers, numbers: Numbers, came: Numbers, flags: Any) -> None:
        self.row, self.numbers, self.came, self.flags = row, numbers, came, flags

    @classmethod
    def of(cls, state: GroupedState, side: int, slots: Slots, groups: npt.NDArray[Any]) -> _Held:
        mine = np.flatnonzero(groups["side"] == side)
        found, counts = state.held_by(side, slots[mine])
        waiting = state.sides[side]
        return cls(
            np.repeat(mine, counts),
            found,
            waiting.labels["number"][found],
            waiting.tuples["is_matched"][found],
        )


def _number_trouble(came: npt.NDArray[Any], tuples: Numbers) -> str:
    """Numbers go up within a group, which is how its tuples came."""
    is_first = np.zeros(len(came), dtype=np.bool_)
    is_first[np.cumsum(tuples) - tuples] = True
    if (came < 0).any() or (np.diff(came, prepend=-1) <= 0)[~is_first].any():
        return f"has numbers in {NUMBERS!r} that do not go up"
    return ""
