"""The windowed join bound to the columns of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.kernel.columns import contiguous, whole_numbers
from trailmark.log import PortRows
from trailmark.operators.identities import Identities
from trailmark.operators.join.arguments import (
    LEFT,
    RIGHT,
    SIDES,
    check_condition,
    check_group_size,
    check_join,
    check_late_windows,
    check_nearest,
    check_suffixes,
    how_of,
    merge_columns,
)
from trailmark.operators.join.arrivals import Arrivals, SideRules
from trailmark.operators.join.batch import JoinBatch
from trailmark.operators.join.columns import PairColumns
from trailmark.operators.join.condition import Condition, condition_name
from trailmark.operators.join.footprints import TUPLES
from trailmark.operators.join.group_footprints import GroupFootprints
from trailmark.operators.join.groups import GROUPS, GroupedState
from trailmark.operators.join.loading import PieceFormat
from trailmark.operators.join.pieces import PIECES, PiecedState
from trailmark.operators.join.rules import JoinRules
from trailmark.operators.join.state import IDENTITY, JoinState
from trailmark.operators.key_slots import CHAINS
from trailmark.operators.late import Late, check_late
from trailmark.operators.order import merged
from trailmark.operators.protocol import BatchInput, History, Outcome, Port
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import Memory
from trailmark.state.table import LAST_BATCH, Slots
from trailmark.windows.interval import Interval
from trailmark.windows.last_tuples import LastTuples

#: What a batch may make of pairs: beyond it, a key that everybody has is more likely than a wish.
MOST_PAIRS = 10_000_000
#: Tuples of a batch and side that are one piece of state.
PIECE_ROWS = 1 << 16
MOST_PIECE_ROWS = 1 << 30
#: A watermark that no time is beyond.
_AFTER_ALL_TIMES = 1 << 62


class _Format(Protocol):
    """Pieces as footprints, and back; each cut of the state has one."""

    def encode(self, state: Any, slots: Slots, opened: int) -> pa.RecordBatch: ...

    def content(self, state: Any) -> pa.RecordBatch: ...

    def widen(self, rows: pa.RecordBatch) -> pa.RecordBatch: ...

    def trouble(self, rows: pa.RecordBatch, identities: Identities, batch: int) -> str: ...

    def load(self, state: Any, rows: pa.RecordBatch, where: str) -> None: ...


class Join:
    """A join bound to the schemas of its inputs. Implements ``Operator``.

    Parameters
    ----------
    left, right
        The columns of both sides.
    on
        Key columns, which both sides have. A null equals nothing.
    within
        How far apart the times of a pair may lie.
    windows
        Instead: how many of the newest tuples of each side those that come are held against.
    how
        Which tuples come out that have no partner, when their time is over: those of neither side
        (``inner``), of the left or the right one, or of both (``full``).
    condition
        A function that is asked about pairs: it takes the rows of both sides, pair by pair, and
        tells of each whether it matches.
    late
        Whether tuples that come too late are only counted, or logged, too.
    order_by
        A column that both sides have, or one of each: by these, a batch is put in order.
    suffixes
        What names get that both sides have.
    most_pairs
        A batch that makes more pairs is refused.
    piece_rows
        How many tuples of a batch and side are one piece of state. It is in the description of the
        logs: a batch that is processed anew opens the same pieces.
    group_size
        Instead, windows are rings of groups of so many tuples, which fill over many batches: the
        pieces that `Incremental` writes. It is in the description, too.
    """

    uses_clock = False
    identities = copied_together = Identities(KeyLayout(list(IDENTITY)), has_start=False)

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        *,
        on: str | Sequence[str],
        within: Interval | None = None,
        windows: Sequence[LastTuples] | None = None,
        how: str = "inner",
        condition: Condition | None = None,
        late: Late = "drop",
        order_by: str | Sequence[str] | None = None,
        suffixes: tuple[str, str] = ("_left", "_right"),
        most_pairs: int = MOST_PAIRS,
        piece_rows: int = PIECE_ROWS,
        group_size: int | None = None,
    ) -> None:
        schemas = (left, right)
        self.how = how_of(how)
        names = check_join(schemas, on, within, windows)
        check_nearest(self.how, within)
        check_condition(condition, within)
        _check_number("most_pairs", most_pairs, 1 << 40)
        _check_number("piece_rows", piece_rows, MOST_PIECE_ROWS)
        check_group_size(group_size, windows)
        check_late(late)
        check_late_windows(late, windows)
        check_suffixes(suffixes)
        self._order = merge_columns(schemas, order_by)
        self._keys = KeyLayout([left.field(name) for name in names])
        self._suffixes = suffixes
        times = (None, None) if within is None else (within.left, within.right)
        delays = (0, 0) if within is None else (within.left_delay, within.right_delay)
        left_rules, right_rules = (
            SideRules(time, tuple(names), keeps)
            for time, keeps in zip(times, self.how.keeps, strict=True)
        )
        self._rules = JoinRules(
            within,
            None if windows is None else (windows[LEFT], windows[RIGHT]),
            (left_rules, right_rules),
            PairColumns(schemas, names, suffixes),
            condition,
            piece_rows,
            most_pairs,
            late == "keep",
            group_size,
        )
        self._format: _Format = (
            PieceFormat(self._rules, schemas)
            if group_size is None
            else GroupFootprints(self._rules, schemas)
        )
        self.ports = tuple(
            Port(name, schema, time, delay)
            for name, schema, time, delay in zip(SIDES, schemas, times, delays, strict=True)
        )
        self.late_schema = self._rules.columns.late
        self.logged_schema = self.result_schema = self.shown_schema = self._rules.columns.schema

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return self._keys.names

    @property
    def spans_keys(self) -> bool:
        """Whether tuples of different keys depend on one another, so that one bucket has to take
        all of them."""
        return any(window.spans_keys for window in self._rules.windows or ())

    @property
    def group_size(self) -> int | None:
        return self._rules.group_size

    @property
    def rebuilds_from_openings(self) -> bool:
        """How long tuples wait follows from their own times, or from those that come after them;
        but whether one has matched may have been decided by a tuple that has left."""
        return not any(self._rules.flags) and self.group_size is None

    def describe(self) -> dict[str, Any]:
        condition = self._rules.condition
        described: dict[str, Any] = {
            "operator": "join",
            "how": self.how.value,
            "by": [[f.name, str(f.kind)] for f in self._keys.fields],
            **self._describe_waiting(),
            "suffixes": list(self._suffixes),
            "has_condition": condition is not None,
            "piece_rows": self._rules.piece_rows,
        }
        if self.group_size is not None:
            described["group_size"] = self.group_size
        if self._rules.keeps_late:
            described["late"] = "keep"
        if self._order is not None:
            described["order_by"] = list(self._order)
        if condition is not None:
            described["about"] = {"condition": condition_name(condition)}
        return described

    def _describe_waiting(self) -> dict[str, Any]:
        within, windows = self._rules.within, self._rules.windows
        if within is not None:
            return {"within": within.describe()}
        return {"windows": [window.describe() for window in windows or ()]}

    def layout_key(self) -> list[object]:
        columns = [[f.name, str(f.type)] for port in self.ports for f in port.schema]
        has_windows = self._rules.windows is not None
        layout = PIECES if self.group_size is None else GROUPS
        return [str(layout.state), str(CHAINS), self._keys.describe(), columns, has_windows]

    def arrange(self, rows: PortRows) -> PortRows:
        return rows if self._order is None else merged(rows, self._order)

    def open(self, memory: Memory, history: History, *, is_new: bool = True) -> JoinState:
        schemas = [port.schema for port in self.ports]
        windows = self._rules.windows
        if self.group_size is not None:
            assert windows is not None
            return GroupedState(windows, self._keys, schemas, memory, history, is_new=is_new)
        by_number = windows is not None
        return PiecedState(self._keys, schemas, memory, history, is_new=is_new, by_number=by_number)

    def looks_back(self, state: JoinState) -> int | None:
        return state.refers_back_to()

    def next_alarm(self, state: JoinState) -> None:
        """Tuples leave by event time alone."""

    # A batch, live or replayed

    def process(self, state: JoinState, given: BatchInput) -> Outcome:
        return JoinBatch(self._rules, state, _in_milliseconds(given)).process()

    def replay(self, state: JoinState, given: BatchInput, where: str) -> None:
        JoinBatch(self._rules, state, _in_milliseconds(given)).replay(where)

    def touched(self, state: JoinState, given: BatchInput) -> Slots:
        """The pieces with tuples that leave, and those of times that tuples of the batch match."""
        slots = state.list_oldest()
        if self._rules.windows is not None:
            return slots  # any of them may be pushed out, or meet whoever comes
        given = _in_milliseconds(given)
        arrivals = Arrivals.of(given, self._rules.sides)
        pieces = state.read_pieces(slots)
        is_touched = np.zeros(len(slots), dtype=np.bool_)
        for side in (LEFT, RIGHT):
            found = self._rules.matched_times(side, arrivals.sides[1 - side].times, given.watermark)
            limit = self._rules.may_leave(side, given.watermark)
            is_met = pieces["since"] <= limit if limit is not None else np.zeros_like(is_touched)
            if found is not None:
                is_met |= (pieces["until"] >= found[0]) & (pieces["since"] <= found[1])
            is_touched |= is_met & (pieces["side"] == side)
        return slots[is_touched]

    def finish(self, state: JoinState) -> pa.RecordBatch:
        """What comes out when nothing more will come: a batch without rows after all times."""
        none = PortRows(
            tuple(contiguous(port.schema.empty_table()) for port in self.ports),
            np.empty(0, dtype=np.uint8),
        )
        given = BatchInput.of(LAST_BATCH, none, None, _AFTER_ALL_TIMES)
        return JoinBatch(self._rules, state, given, is_last=True).process().results

    # Results and footprints

    def publish(self, results: pa.RecordBatch) -> pa.RecordBatch:
        return results

    def show(self, published: pa.RecordBatch) -> pa.RecordBatch:
        return published

    def footprints(self, state: JoinState, slots: Slots, opened: int) -> pa.RecordBatch:
        return self._format.encode(state, slots, opened)

    def content(self, state: JoinState) -> pa.RecordBatch:
        return self._format.content(state)

    def widen(self, footprints: pa.RecordBatch, where: str) -> pa.RecordBatch:
        return self._format.widen(footprints)

    def weigh(self, footprints: pa.RecordBatch) -> int:
        """What takes time is to bring the tuples back, from wherever."""
        return int(whole_numbers(footprints, TUPLES).sum())

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        return self._format.trouble(footprints, self.identities, batch)

    def load(self, state: JoinState, footprints: pa.RecordBatch, where: str) -> None:
        if footprints.num_rows:
            self._format.load(state, footprints, where)

    def settle(self, state: JoinState, missed: int = 0) -> None:
        state.settle(missed)


def _in_milliseconds(given: BatchInput) -> BatchInput:
    """The batch with watermarks as Spark has them, so that the same tuples are late and leave."""
    late_before, watermark = (
        None if each is None else each // 1000 * 1000
        for each in (given.late_before, given.watermark)
    )
    return replace(given, late_before=late_before, watermark=watermark)


def _check_number(name: str, number: int, most: int) -> None:
    if type(number) is not int or not 1 <= number <= most:
        raise SettingError(f"{name} must be from 1 to {most:,}, got {number!r}.", where=name)
