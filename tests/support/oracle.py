"""The slow, obvious answer to every aggregate: plain Python, one tuple at a time.

It shares no code with the operators. Timestamps and dates are whole numbers in their column's unit
(see :mod:`tests.support.plain`); Arrow types are only read, to know what a column holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.support.folds import Fold, make_fold, result_type
from trailmark.windows.functions import AnyFunction
from trailmark.windows.spec import CountWindow, TimeWindow, Window

Row = dict[str, Any]
#: A window is named by its key and, where windows of a key may be open together, by its start.
Identity = tuple[tuple[Any, ...], int | None]


@dataclass
class OpenWindow:
    """A window that has taken ``fill`` tuples; a negative ``fill`` counts the tuples of a gap."""

    opened: int
    start: int | None
    folds: dict[str, Fold]
    fill: int = 0

    def take(self, row: Row) -> None:
        for fold in self.folds.values():
            fold.add(row)


@dataclass
class OracleOutcome:
    """What a batch must do."""

    results: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    late_updates: int = 0
    null_times: int = 0

    @property
    def late_rows(self) -> int:
        return len(self.late)


class Oracle:
    """An aggregate over ``schema``, with the arguments of the operator it judges."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        by: Sequence[str],
        window: Window,
        values: Mapping[str, AnyFunction],
        late: str = "drop",
    ) -> None:
        self._schema = schema
        self._by = [by] if isinstance(by, str) else list(by)
        self._window = window
        self._values = dict(values)
        self.keeps_late_rows = late == "keep"
        self._of_key: dict[tuple[Any, ...], list[OpenWindow]] = {}

    def process(
        self,
        batch: int,
        rows: Sequence[Row],
        late_before: int | None = None,
        watermark: int | None = None,
    ) -> OracleOutcome:
        outcome = OracleOutcome()
        for row in rows:
            key = tuple(row[name] for name in self._by)
            if isinstance(self._window, TimeWindow):
                self._add_by_time(self._window, batch, key, row, late_before, outcome)
            elif self._window.slide < self._window.size:
                self._add_overlapping(self._window, batch, key, row, outcome)
            else:
                self._add_disjoint(self._window, batch, key, row, outcome)
        if isinstance(self._window, TimeWindow) and watermark is not None:
            self._close_ended(self._window, watermark, outcome)
        return outcome

    # Count windows

    def _add_disjoint(
        self, spec: CountWindow, batch: int, key: tuple[Any, ...], row: Row, outcome: OracleOutcome
    ) -> None:
        if key not in self._of_key:
            self._of_key[key] = [self._open(batch, None)]
        window = self._of_key[key][0]
        window.fill += 1
        if window.fill > 0:
            window.take(row)
        if window.fill == spec.size:
            outcome.results.append(self._result(key, window))
            del self._of_key[key]
            if spec.slide > spec.size:
                following = self._open(batch, None)
                following.fill = spec.size - spec.slide
                self._of_key[key] = [following]

    def _add_overlapping(
        self, spec: CountWindow, batch: int, key: tuple[Any, ...], row: Row, outcome: OracleOutcome
    ) -> None:
        windows = self._of_key.setdefault(key, [])
        if not windows:
            windows.append(self._open(batch, 0))
        elif windows[-1].fill == spec.slide:
            start = windows[-1].start
            assert start is not None
            windows.append(self._open(batch, start + spec.slide))
        for window in list(windows):
            window.fill += 1
            window.take(row)
            if window.fill == spec.size:
                outcome.results.append(self._result(key, window))
                windows.remove(window)

    # Time windows

    def _add_by_time(
        self,
        spec: TimeWindow,
        batch: int,
        key: tuple[Any, ...],
        row: Row,
        late_before: int | None,
        outcome: OracleOutcome,
    ) -> None:
        if row[spec.column] is None:
            outcome.null_times += 1
            return
        time = self._microseconds(row[spec.column])
        starts = starts_of(time, spec.size, spec.slide)
        taken = 0
        for start in starts:
            if late_before is not None and start + spec.size <= late_before:
                outcome.late_updates += 1
                continue
            self._window_at(batch, key, start).take(row)
            taken += 1
        if starts and not taken:
            outcome.late.append(row)

    def _microseconds(self, time: int) -> int:
        assert isinstance(self._window, TimeWindow)
        unit = self._schema.field(self._window.column).type.unit
        return {"s": time * 1_000_000, "ms": time * 1_000, "us": time, "ns": time // 1_000}[unit]

    def _window_at(self, batch: int, key: tuple[Any, ...], start: int) -> OpenWindow:
        windows = self._of_key.setdefault(key, [])
        for window in windows:
            if window.start == start:
                return window
        windows.append(self._open(batch, start))
        return windows[-1]

    def _close_ended(self, spec: TimeWindow, watermark: int, outcome: OracleOutcome) -> None:
        for key, windows in list(self._of_key.items()):
            for window in list(windows):
                assert window.start is not None
                if window.start + spec.size <= watermark:
                    outcome.results.append(self._result(key, window))
                    windows.remove(window)
            if not windows:
                del self._of_key[key]

    # Windows and what is seen of them

    def _open(self, batch: int, start: int | None) -> OpenWindow:
        folds = {name: make_fold(call, self._schema) for name, call in self._values.items()}
        return OpenWindow(batch, start, folds)

    def _result(self, key: tuple[Any, ...], window: OpenWindow) -> Row:
        row = dict(zip(self._by, key, strict=True))
        if self._window.has_start:
            row["$start"] = window.start
        return row | {name: fold.result() for name, fold in window.folds.items()}

    def open_windows(self) -> dict[Identity, Row]:
        """The state of every open window, with the names of the footprint's columns."""
        found = {}
        for key, windows in self._of_key.items():
            for window in windows:
                state: Row = {"$opened": window.opened}
                if isinstance(self._window, CountWindow):
                    state["$fill"] = window.fill
                for name, fold in window.folds.items():
                    for part, value in fold.state().items():
                        state[f"{name}.{part}"] = value
                found[key, window.start] = state
        return found

    def published(self, results: Sequence[Row]) -> list[Row]:
        """Results as users see them."""
        rows = []
        for result in results:
            row = {name: result[name] for name in self._by}
            if isinstance(self._window, TimeWindow):
                row["window_start"] = result["$start"]
                row["window_end"] = result["$start"] + self._window.size
            rows.append(row | {name: result[name] for name in self._values})
        return rows

    def result_types(self) -> dict[str, str]:
        """The type of every column of a result as it is logged, by the name Arrow gives it."""
        types = {name: str(self._schema.field(name).type) for name in self._by}
        if self._window.has_start:
            types["$start"] = "int64"
        return types | {n: result_type(call, self._schema) for n, call in self._values.items()}


def place_in_order(row: Row, order_by: Sequence[str]) -> tuple[Any, ...]:
    """What rows are sorted by: nulls first, then values, then NaN; strings by their bytes."""
    return tuple(_place(row[name]) for name in order_by)


def _place(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    if isinstance(value, float) and value != value:
        return 2, 0
    return 1, value.encode() if isinstance(value, str) else value


def starts_of(time: int, size: int, slide: int) -> list[int]:
    """Starts of the windows [start, start + size) that hold ``time``, newest first."""
    start = time // slide * slide
    starts = []
    while start + size > time:
        starts.append(start)
        start -= slide
    return starts
