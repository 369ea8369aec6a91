"""Joins and the oracle that judges them: every tuple is held against every other, one at a time.

The oracle knows nothing of pieces but how they are named, of chains or of blocks. Keys and columns
of many types, times that come in any order, are null or lie far ahead: all of it is drawn anew for
each case.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.support.compare import exact
from tests.support.delivered import shuffled_ports, split_ports
from tests.support.oracle import Identity, OracleOutcome, Row
from tests.support.pairing import in_order
from tests.support.plain import batch_of, plain_rows
from trailmark.log import PortRows, Segment, read_ports
from trailmark.operators.join import Join
from trailmark.operators.join.pieces import PiecedState
from trailmark.operators.join.state import JoinState
from trailmark.operators.late import Late
from trailmark.operators.protocol import BatchInput
from trailmark.records import OPENED
from trailmark.windows.interval import Interval, interval
from trailmark.windows.last_tuples import LastTuples

_SECOND = 1_000_000
_SIDES = (0, 1)
_HOW = ("inner", "left", "right", "full")
#: How far back the nearest is looked for if nothing is said.
_UNBOUNDED = interval("", "", nearest="before").before
#: How many of a unit are a microsecond, or how many microseconds a unit is.
_US = {"us": lambda t: t, "ms": lambda t: 1000 * t, "ns": lambda t: t // 1000}


def values_in_order(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
    """A condition with Arrow: null where one of the values is."""
    return pc.less_equal(left["value"], right["value"])


def values_are_even(left: pa.RecordBatch, right: pa.RecordBatch) -> Any:
    """A condition with NumPy."""
    sides = [rows["value"].fill_null(0).to_numpy(zero_copy_only=False) for rows in (left, right)]
    return (sides[0] + sides[1]) % 2 == 0


def _in_order(left: Row, right: Row) -> bool:
    return None not in (left["value"], right["value"]) and left["value"] <= right["value"]


def _are_even(left: Row, right: Row) -> bool:
    return ((left["value"] or 0) + (right["value"] or 0)) % 2 == 0


#: Conditions, and what they say of a single pair.
_CONDITIONS: dict[str, tuple[Callable[..., Any], Callable[[Row, Row], bool]]] = {
    "in order": (values_in_order, _in_order),
    "even": (values_are_even, _are_even),
}


@dataclass(eq=False)
class Waiting:
    """A tuple, where it came from, and whether it has matched."""

    row: Row
    time: int
    batch: int
    place: int
    has_matched: bool = False


def _whole_milliseconds(us: int | None) -> int | None:
    return None if us is None else us - us % 1000


class JoinOracle:
    """All tuples of both sides, as long as one may still come that matches them."""

    def __init__(self, case: JoinCase) -> None:
        self.keeps_late_rows = case.late == "keep"
        self._case = case
        self._waiting: tuple[list[Waiting], list[Waiting]] = ([], [])

    def process(
        self,
        batch: int,
        rows: Sequence[tuple[int, Row]],
        late_before: int | None,
        watermark: int | None,
    ) -> OracleOutcome:
        late_before, watermark = _whole_milliseconds(late_before), _whole_milliseconds(watermark)
        if self._case.windows is not None:
            return self._process_windows(batch, rows)
        outcome, places = OracleOutcome(), [0, 0]
        for side, row in rows:
            place, places[side] = places[side], places[side] + 1
            time = self._case.time_of(side, row)
            if time is None:
                outcome.null_times += 1
            elif late_before is not None and time <= late_before:
                pair = (row, None) if side == 0 else (None, row)
                outcome.late.append({"$side": ("left", "right")[side], **self._case.result(*pair)})
            else:
                self._take(Waiting(row, time, batch, place), side, outcome)
        if watermark is not None:
            for side in _SIDES:
                self._let_go(side, watermark, outcome)
        return outcome

    def _process_windows(self, batch: int, rows: Sequence[tuple[int, Row]]) -> OracleOutcome:
        """A tuple meets the window of the other side, then enters its own, whose oldest leaves."""
        case, outcome, places = self._case, OracleOutcome(), [0, 0]
        alone: tuple[list[Waiting], list[Waiting]] = ([], [])
        left: tuple[list[Waiting], list[Waiting]] = ([], [])
        for side, row in rows:
            new = Waiting(row, 0, batch, places[side])
            places[side] += 1
            if None in self._key(new):
                alone[side].append(new)
                continue
            self._take(new, side, outcome)
            left[side].extend(self._pushed_out(side, new))
        for side in _SIDES:
            leaving = sorted(left[side], key=lambda each: (each.batch, each.place))
            for each in (*alone[side], *leaving):
                if case.keeps[side] and not each.has_matched:
                    pair = (each.row, None) if side == 0 else (None, each.row)
                    outcome.results.append(case.result(*pair))
        return outcome

    def _pushed_out(self, side: int, new: Waiting) -> list[Waiting]:
        """Who leaves the window of a side after a tuple has entered it."""
        assert self._case.windows is not None
        window, waiting = self._case.windows[side], self._waiting[side]
        rivals = [
            each for each in waiting if not window.per_key or self._key(each) == self._key(new)
        ]
        leaving = rivals[: max(0, len(rivals) - window.count)]
        waiting[:] = [each for each in waiting if each not in leaving]
        return leaving

    def _take(self, new: Waiting, side: int, outcome: OracleOutcome) -> None:
        case = self._case
        for other in self._waiting[1 - side]:
            left, right = (new, other) if side == 0 else (other, new)
            if self._matches(left, right) and not case.is_nearest:
                left.has_matched = right.has_matched = True
                outcome.results.append(case.result(left.row, right.row))
        if case.keeps[side] or None not in self._key(new):
            self._waiting[side].append(new)

    def _key(self, waiting: Waiting) -> tuple[Any, ...]:
        return tuple(waiting.row[name] for name in self._case.on)

    def _matches(self, left: Waiting, right: Waiting) -> bool:
        case = self._case
        if None in self._key(left) or self._key(left) != self._key(right):
            return False
        within = case.within
        if within is not None and not (
            left.time - within.before <= right.time <= left.time + within.after
        ):
            return False
        return case.condition is None or _CONDITIONS[case.condition][1](left.row, right.row)

    def _let_go(self, side: int, watermark: int, outcome: OracleOutcome) -> None:
        """A tuple that comes later is later than the watermark."""
        case, staying = self._case, []
        assert case.within is not None
        if case.is_nearest and side == 0:
            self._answer(watermark, outcome)
        for each in self._waiting[side]:
            if self._waits(each, side, watermark):
                staying.append(each)
            elif case.keeps[side] and not each.has_matched:
                pair = (each.row, None) if side == 0 else (None, each.row)
                outcome.results.append(case.result(*pair))
        self._waiting[side][:] = staying

    def _waits(self, each: Waiting, side: int, watermark: int) -> bool:
        """Spark counts in whole milliseconds, and a tuple whose last partner could come at the
        very time of the watermark leaves with the next of these. It has no joins with the
        nearest."""
        within = self._case.within
        assert within is not None
        reach = within.after if side == 0 else within.before
        if self._case.is_nearest:
            return each.time + reach > watermark and not self._is_followed(each, side, watermark)
        return each.time > ((watermark - reach) // 1000 - 1) * 1000

    def _is_followed(self, each: Waiting, side: int, watermark: int) -> bool:
        """Whether a later one of the same key is nearer to all that may come, where there is no
        other end to waiting."""
        assert self._case.within is not None
        if side == 0 or self._case.within.is_bounded or each.time > watermark:
            return False
        settled = [
            (other.time, place)
            for place, other in enumerate(self._waiting[1])
            if self._key(other) == self._key(each) and other.time <= watermark
        ]
        return max(settled) > (each.time, self._waiting[1].index(each))

    def _answer(self, watermark: int, outcome: OracleOutcome) -> None:
        """Left tuples whose time is over are paired with the last one before them."""
        for left in (each for each in self._waiting[0] if each.time <= watermark):
            matches = [right for right in self._waiting[1] if self._matches(left, right)]
            if matches:
                # Of those with the same time, the one that came last.
                nearest = max(matches, key=lambda right: (right.time, matches.index(right)))
                left.has_matched = True
                outcome.results.append(self._case.result(left.row, nearest.row))

    def published(self, results: list[Row]) -> list[Row]:
        return results

    def open_windows(self) -> dict[Identity, Row]:
        found: dict[Identity, Row] = {}
        for side in _SIDES:
            for each in self._waiting[side]:
                first = each.place // self._case.piece_rows * self._case.piece_rows
                empty: Row = {OPENED: each.batch, "tuples": (), "matched": ()}
                piece = found.setdefault(((each.batch, side, first), None), empty)
                piece["tuples"] += (exact(each.row),)
                if self._case.has_flags[side]:
                    piece["matched"] += (each.has_matched,)
        return found


@dataclass(frozen=True)
class JoinCase:
    """Batches for a join. See `tests.support.engine.CrashCase`."""

    schemas: tuple[pa.Schema, pa.Schema]
    on: tuple[str, ...]
    within: Interval | None
    how: str
    batches: tuple[PortRows, ...] = field(repr=False)
    piece_rows: int = 1 << 16
    condition: str | None = None
    most_pairs: int = 1 << 20
    windows: tuple[LastTuples, LastTuples] | None = None
    order_by: tuple[str, str] | None = None
    late: Late = "drop"
    group_size: int | None = None

    def code(self) -> Any:
        return None if self.condition is None else _CONDITIONS[self.condition][0]

    def operator(self) -> Join:
        left, right = self.schemas
        return Join(
            left,
            right,
            on=self.on,
            within=self.within,
            windows=self.windows,
            late=self.late,
            order_by=self.order_by,
            how=self.how,
            condition=self.code(),
            piece_rows=self.piece_rows,
            most_pairs=self.most_pairs,
            group_size=self.group_size,
        )

    def oracle(self) -> JoinOracle:
        return JoinOracle(self)

    @property
    def keeps(self) -> tuple[bool, bool]:
        """Whether unmatched tuples of each side come out."""
        return self.how in ("left", "full"), self.how in ("right", "full")

    @property
    def has_flags(self) -> tuple[bool, bool]:
        """Whether it is known of the tuples of each side that wait if they have matched."""
        return (False, False) if self.is_nearest else self.keeps

    @property
    def is_nearest(self) -> bool:
        return self.within is not None and self.within.is_nearest

    def time_of(self, side: int, row: Row) -> int | None:
        """The time of a tuple in microseconds."""
        assert self.within is not None
        name = (self.within.left, self.within.right)[side]
        unit = self.schemas[side].field(name).type.unit
        return None if row[name] is None else _US[unit](row[name])

    def result(self, left: Row | None, right: Row | None) -> Row:
        """The row that a pair, or one tuple alone, comes out as."""
        sides, made = (left, right), {}
        for name in self.on:
            made[name] = (left or right or {})[name]
        for side, suffix in enumerate(("_left", "_right")):
            for name in self.schemas[side].names:
                if name not in self.on:
                    is_twice = name in self.schemas[1 - side].names
                    value = (sides[side] or {}).get(name)
                    made[name + (suffix if is_twice else "")] = value
        return made

    def shuffled(self, rows: PortRows, rng: random.Random) -> PortRows:
        return shuffled_ports(rows, rng)

    def split(self, rows: PortRows, buckets: int) -> list[PortRows]:
        return split_ports(rows, self.on, buckets)

    def given(self, batch: int) -> BatchInput:
        """A batch with the watermarks that the engine would have given it."""
        rows = self.operator().arrange(self.batches[batch])
        before = self._watermark(batch - 1) if batch else None
        return BatchInput.of(batch, rows, before, self._watermark(batch))

    def _watermark(self, batch: int) -> int | None:
        if self.within is None:
            return None
        marks = []
        for side, delay in enumerate((self.within.left_delay, self.within.right_delay)):
            rows = [r for each in self.batches[:batch] for r in plain_rows(each.tables[side])]
            times = [t for t in (self.time_of(side, row) for row in rows) if t is not None]
            if not times:
                return None
            marks.append(max(times) - delay)
        return min(marks)

    def outcome(
        self,
        oracle: JoinOracle,
        batch: int,
        rows: PortRows,
        late_before: int | None,
        watermark: int | None,
    ) -> OracleOutcome:
        return oracle.process(batch, list(in_order(rows)), late_before, watermark)

    def expected(self, oracle: JoinOracle, logged: Segment) -> OracleOutcome:
        rows = read_ports(logged, self.operator().ports)
        times = [logged.footer.attributes[name] for name in ("late_before", "watermark")]
        return oracle.process(logged.batch, list(in_order(rows)), *times)

    def footprint_states(self, operator: Join, footprints: pa.RecordBatch) -> dict[Identity, Row]:
        states: dict[Identity, Row] = {}
        for row in plain_rows(footprints):
            identity = ((row[OPENED], row["side"], row["first"]), None)
            assert identity not in states, f"piece {identity} is there twice"
            states[identity] = {name: row.get(name) for name in (OPENED, "tuples", "since")}
        return states

    def states(self, operator: Join, state: JoinState) -> dict[Identity, Row]:
        slots = state.list_oldest()
        footprints = operator.footprints(state, slots, 0)
        footprints.validate(full=True)
        found: dict[Identity, Row] = {}
        assert isinstance(state, PiecedState)
        for place, piece in enumerate(state.read_pieces(slots)):
            side, (numbers,) = int(piece["side"]), state.waiting_in(piece.reshape(1))
            waiting = state.sides[side]
            row: Row = plain_rows(footprints.slice(place, 1))[0]
            tuples = plain_rows(waiting.rows.take(numbers))
            assert row["tuples"] == len(tuples)
            flags = waiting.tuples["is_matched"][numbers].tolist() if self.has_flags[side] else []
            found[((row[OPENED], row["side"], row["first"]), None)] = {
                OPENED: row[OPENED],
                "tuples": tuple(exact(each) for each in tuples),
                "matched": tuple(map(bool, flags)),
            }
        return found


#: Types of keys and of other columns, with what makes values of them.
KEY_TYPES: tuple[tuple[pa.DataType, Callable[[int], Any]], ...] = (
    (pa.int32(), int),
    (pa.int64(), lambda n: n << 40),
    (pa.string(), lambda n: "key " * n),
    (pa.date32(), int),
    (pa.decimal128(12, 2), lambda n: Decimal(n).scaleb(-2)),
)
OTHER_TYPES: tuple[tuple[pa.DataType, Callable[[random.Random], Any]], ...] = (
    (pa.string(), lambda rng: rng.choice(("", "x", "longer " * 20, "ß\0"))),
    (pa.float64(), lambda rng: rng.choice((0.0, -0.0, 1.5, float("inf")))),
    (pa.list_(pa.int16()), lambda rng: [rng.randrange(9)] * rng.randrange(4)),
    (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        lambda rng: {"a": rng.randrange(9), "b": "?"},
    ),
    (pa.binary(), lambda rng: rng.randbytes(rng.randrange(5))),
    (pa.bool_(), lambda rng: rng.random() < 0.5),
)


def random_join(rng: random.Random) -> JoinCase:
    """A few keys, with times that go on and are sometimes late, null or far ahead."""
    keys = rng.sample(KEY_TYPES, rng.choice((1, 1, 2)))
    on = tuple(f"k{place}" for place in range(len(keys)))
    times = rng.choice((("at", "at"), ("seen", "clicked")))
    units = rng.choice((("us", "us"), ("us", "ms"), ("ns", "us")))
    others = [rng.sample(OTHER_TYPES, rng.randrange(3)) for _ in _SIDES]
    left, right = (
        pa.schema(
            [
                *(pa.field(name, kind) for name, (kind, _) in zip(on, keys, strict=True)),
                pa.field("value", pa.int64()),
                *(pa.field(f"c{n}", kind) for n, (kind, _) in enumerate(others[side])),
                pa.field(times[side], pa.timestamp(units[side])),
            ]
        )
        for side in _SIDES
    )
    lengths = (0, 1, 2 * _SECOND, 10 * _SECOND)
    interval_given = Interval(
        *times,
        rng.choice(lengths),
        rng.choice(lengths),
        rng.choice((0, _SECOND)),
        rng.choice((0, 5 * _SECOND)),
    )
    how, condition = rng.choice(_HOW), rng.choice((None, None, "in order", "even"))
    order_by = None
    if how in ("inner", "left") and rng.random() < 0.4:
        interval_given = replace(interval_given, after=0, is_nearest=True)
        if rng.random() < 0.5:
            interval_given = replace(interval_given, before=_UNBOUNDED)
            condition = None
    within: Interval | None = interval_given
    windows = random_windows(rng) if rng.random() < 0.4 else None
    if windows is not None:
        within, order_by = None, rng.choice((None, None, ("value", "value"), times))
    distinct, now, batches = rng.choice((1, 3, 12)), 0, []
    far, step = rng.choice((0.0, 0.0, 0.02)), rng.choice((_SECOND, _SECOND, 700))
    for _ in range(rng.randrange(2, 12)):
        sides = rng.choice(((0, 1), (0, 1), (0, 1), (0,), (1,)))
        placed: list[tuple[int, list[Any]]] = []
        for _ in range(rng.choice((0, 1, 5, 20))):
            side, now = rng.choice(sides), now + rng.randrange(step)
            at = now - rng.choice((0, 0, 0, 3 * _SECOND, 20 * _SECOND))
            at += 100_000 * _SECOND if rng.random() < far else 0
            number = rng.randrange(distinct)
            made = [None if rng.random() < 0.05 else make(number) for _, make in keys]
            made += [None if rng.random() < 0.1 else rng.randrange(50)]
            made += [None if rng.random() < 0.2 else make(rng) for _, make in others[side]]
            made += [None if rng.random() < 0.05 else _in_unit(at, units[side])]
            placed.append((side, made))
        batches.append(port_rows((left, right), placed, rng.choice((0, 3))))
    return JoinCase(
        (left, right),
        on,
        within,
        how,
        tuple(batches),
        piece_rows=rng.choice((1, 2, 3, 7, 1 << 16)),
        condition=condition,
        windows=windows,
        late=rng.choice(("drop", "keep")) if windows is None else "drop",
        order_by=order_by if units[0] == units[1] else None,
    )


def random_windows(rng: random.Random) -> tuple[LastTuples, LastTuples]:
    """Windows of few tuples and of many, of which at least one has any."""
    left, right = (LastTuples(rng.choice((0, 1, 2, 5, 30)), rng.random() < 0.5) for _ in _SIDES)
    return (left, right) if left.count or right.count else (LastTuples(3, left.per_key), right)


def _in_unit(us: int, unit: str) -> int:
    return {"us": us, "ms": us // 1000, "ns": us * 1000 + 7}[unit]


def port_rows(
    schemas: Sequence[pa.Schema], placed: Sequence[tuple[int, list[Any]]], offset: int = 0
) -> PortRows:
    """Rows of several inputs, in the order given."""
    tables = tuple(
        batch_of(schema, [row for at, row in placed if at == side], offset)
        for side, schema in enumerate(schemas)
    )
    return PortRows(tables, np.array([side for side, _ in placed], dtype=np.uint8))


def small_join(batches: int = 4, how: str = "full") -> JoinCase:
    """Three keys; some tuples match, some leave alone, one waits far longer than all others."""
    schemas = tuple(
        pa.schema([("key", pa.string()), (name, pa.int32()), ("at", pa.timestamp("us"))])
        for name in ("cost", "gain")
    )
    made = []
    for batch in range(batches):
        placed = []
        for place in range(7):
            key = None if place == 5 else "abc"[(batch + place) * place % 3]
            at = (10 * batch + place * (-1) ** place) * _SECOND
            at += 10_000 * _SECOND if (batch, place) == (1, 2) else 0
            placed.append(((place + batch) % 3 % 2, [key, 10 * batch + place, at]))
        made.append(port_rows(schemas, placed))
    within = Interval("at", "at", 2 * _SECOND, 6 * _SECOND, 3 * _SECOND, 0)
    assert len(schemas) == 2
    return JoinCase(schemas, ("key",), within, how, tuple(made), piece_rows=3)


def small_windows(batches: int = 4, how: str = "full") -> JoinCase:
    """The same tuples, of which each side keeps the last few: one of all, one of each key."""
    windows = (LastTuples(3), LastTuples(1, per_key=True))
    return replace(small_join(batches, how), within=None, windows=windows)
