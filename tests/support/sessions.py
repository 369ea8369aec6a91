"""Sessions, and the oracle that judges them: plain Python, which holds everything that a key has
against everything else.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.support.cases import Case
from tests.support.folds import Fold, make_fold, merged, result_type, unscaled
from tests.support.keyed import comparable
from tests.support.oracle import Identity, OracleOutcome, Row
from tests.support.plain import plain_rows
from tests.support.strategies import random_case
from trailmark.operators.protocol import State
from trailmark.operators.sessions import Sessions
from trailmark.records import KIND, OPENED
from trailmark.windows.functions import AnyFunction
from trailmark.windows.session import SessionWindow
from trailmark.windows.spec import TimeWindow

_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass
class _Session:
    start: int
    end: int
    folds: dict[str, Fold]


@dataclass
class _Span:
    """What becomes one session: sessions that were open before, and tuples of the batch."""

    start: int
    end: int
    before: list[_Session]
    rows: list[tuple[int, Row]]

    def touches(self, other: _Span) -> bool:
        return self.start <= other.end and other.start <= self.end

    def take(self, other: _Span) -> None:
        self.start, self.end = min(self.start, other.start), max(self.end, other.end)
        self.before += other.before
        self.rows += other.rows


class SessionOracle:
    """An aggregate over sessions, with the arguments of the operator it judges."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        by: Sequence[str],
        window: SessionWindow,
        values: Mapping[str, AnyFunction],
        late: str = "drop",
    ) -> None:
        self._schema = schema
        self._by = list(by)
        self._window = window
        self._values = dict(values)
        self.keeps_late_rows = late == "keep"
        self._of_key: dict[tuple[Any, ...], list[_Session]] = {}
        self._opened: dict[tuple[Any, ...], int] = {}

    def process(
        self,
        batch: int,
        rows: Sequence[Row],
        late_before: int | None = None,
        watermark: int | None = None,
    ) -> OracleOutcome:
        outcome = OracleOutcome()
        of_key: dict[tuple[Any, ...], list[tuple[int, Row]]] = {}
        for row in rows:
            if row[self._window.column] is None:
                outcome.null_times += 1
                continue
            time = self._microseconds(row[self._window.column])
            if late_before is not None and time + self._window.gap <= late_before:
                outcome.late.append(row)
                continue
            of_key.setdefault(tuple(row[name] for name in self._by), []).append((time, row))
        for key, mine in of_key.items():
            self._opened.setdefault(key, batch)
            self._of_key[key] = self._with_rows(self._of_key.get(key, []), mine)
        if watermark is not None:
            self._close_ended(watermark, outcome)
        return outcome

    def _with_rows(self, sessions: list[_Session], rows: list[tuple[int, Row]]) -> list[_Session]:
        """The sessions of a key after it got rows."""
        spans = [_Span(each.start, each.end, [each], []) for each in sessions]
        for place, (time, row) in enumerate(rows):
            new = _Span(time, time + self._window.gap, [], [(place, row)])
            for span in [each for each in spans if each.touches(new)]:
                spans.remove(span)
                new.take(span)
            spans.append(new)
        return [self._session(span) for span in sorted(spans, key=lambda each: each.start)]

    def _session(self, span: _Span) -> _Session:
        folds = {name: make_fold(call, self._schema) for name, call in self._values.items()}
        before = sorted(span.before, key=lambda each: each.start)
        for place, session in enumerate(before):
            for name, fold in session.folds.items():
                folds[name] = deepcopy(fold) if place == 0 else merged(folds[name], fold)
        for _, row in sorted(span.rows, key=lambda each: each[0]):
            for fold in folds.values():
                fold.add(row)
        return _Session(span.start, span.end, folds)

    def _microseconds(self, time: int) -> int:
        unit = self._schema.field(self._window.column).type.unit
        return time // 1_000 if unit == "ns" else time * _UNITS[unit]

    def _close_ended(self, watermark: int, outcome: OracleOutcome) -> None:
        for key, sessions in list(self._of_key.items()):
            for session in [each for each in sessions if each.end <= watermark]:
                outcome.results.append(self._result(key, session))
                sessions.remove(session)
            if not sessions:
                del self._of_key[key], self._opened[key]

    def _result(self, key: tuple[Any, ...], session: _Session) -> Row:
        row = dict(zip(self._by, key, strict=True))
        row |= {"window_start": session.start, "window_end": session.end}
        return row | {name: fold.result() for name, fold in session.folds.items()}

    def published(self, results: Sequence[Row]) -> Sequence[Row]:
        return results

    def open_windows(self) -> dict[Identity, Row]:
        """All that each key has open, with the names of the footprint's columns."""
        return {(key, None): self._state(key, each) for key, each in self._of_key.items()}

    def _state(self, key: tuple[Any, ...], sessions: list[_Session]) -> Row:
        state: Row = {
            OPENED: self._opened[key],
            "$event_timer": min(each.end for each in sessions),
            "session.start": [each.start for each in sessions],
            "session.end": [each.end for each in sessions],
        }
        for name in self._values:
            parts = [each.folds[name].state() for each in sessions]
            state |= {f"{name}.{part}": [each[part] for each in parts] for part in parts[0]}
            for part in (part for part, value in parts[0].items() if isinstance(value, list)):
                lists = state[f"{name}.{part}"]
                state[f"{name}.{part}.count"] = [len(each) for each in lists]
                state[f"{name}.{part}"] = [value for each in lists for value in each]
        return {name: comparable(value) for name, value in state.items()}

    def result_types(self) -> dict[str, str]:
        types = {name: str(self._schema.field(name).type) for name in self._by}
        zone = self._schema.field(self._window.column).type.tz
        types |= dict.fromkeys(("window_start", "window_end"), str(pa.timestamp("us", zone)))
        return types | {n: result_type(call, self._schema) for n, call in self._values.items()}


@dataclass(frozen=True, repr=False)
class SessionCase(Case):
    """Batches for sessions. See `tests.support.engine.CrashCase`."""

    def operator(self) -> Sessions:  # type: ignore[override]
        return Sessions(**self.arguments())

    def oracle(self) -> SessionOracle:  # type: ignore[override]
        return SessionOracle(
            self.schema,
            by=self.by,
            window=self.window,  # type: ignore[arg-type]
            values=self.values,
            late=self.late,
        )

    def footprint_states(  # type: ignore[override]
        self, operator: Sessions, footprints: pa.RecordBatch
    ) -> dict[Identity, Row]:
        states: dict[Identity, Row] = {}
        for row in _moments_as_numbers(operator.widen(footprints, "footprints")):
            identity = (tuple(row[name] for name in self.by), None)
            assert identity not in states, f"key {identity} is there twice"
            states[identity] = {
                name: comparable(value)
                for name, value in row.items()
                if name not in (*self.by, KIND)
            }
        return states

    def states(self, operator: Sessions, state: State) -> dict[Identity, Row]:  # type: ignore[override]
        footprints = operator.footprints(state, state.list_oldest(), 0)  # type: ignore[arg-type]
        footprints.validate(full=True)
        return self.footprint_states(operator, footprints)


def _moments_as_numbers(rows: pa.RecordBatch) -> list[Row]:
    """Lists of moments as lists of microseconds, those of decimals in units of the last digit."""
    plain = plain_rows(rows)
    for field in rows.schema:
        if not pa.types.is_list(field.type):
            continue
        kind, column = field.type.value_type, rows.column(field.name)
        if pa.types.is_timestamp(kind):
            numbers = column.flatten().view(pa.int64())
            lists = pa.ListArray.from_arrays(column.offsets, numbers).to_pylist()
            for row, values in zip(plain, lists, strict=True):
                row[field.name] = values
        elif pa.types.is_decimal(kind) and not field.name.endswith(".values"):
            for row in plain:
                row[field.name] = [unscaled(each, kind.scale) for each in row[field.name]]
    return plain


def sessions_of(case: Case, gap: int) -> SessionCase:
    """A case of time windows with sessions instead."""
    assert isinstance(case.window, TimeWindow)
    window = SessionWindow(case.window.column, gap, case.window.delay)
    given = {name: getattr(case, name) for name in case.__dataclass_fields__}
    return SessionCase(**(given | {"window": window}))


def random_sessions(rng: random.Random) -> SessionCase:
    """A whole case. Gaps are of the size of windows, or shorter, so that sessions merge late."""
    while True:
        case = random_case(rng)
        if isinstance(case.window, TimeWindow):
            break
    gap = max(1, case.window.size // rng.choice((1, 1, 2, 4)))
    return sessions_of(case, gap)
