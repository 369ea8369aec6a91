"""Keyed operators as users write them, and the oracle that judges them: plain Python, one key and
one tuple at a time.

What is kept of a key, when it ends and which timers it has is drawn anew for each case, so that
columns of all kinds meet one another.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tests.support.compare import exact
from tests.support.delivered import shuffled, split
from tests.support.oracle import Identity, OracleOutcome, Row
from tests.support.plain import batch_of, plain_rows
from trailmark.kernel.columns import contiguous
from trailmark.log import Segment
from trailmark.operators.keyed import Keyed
from trailmark.records import KIND, OPENED, FrameKind

_SECOND = 1_000_000
_TYPES: dict[str, pa.DataType] = {
    "n": pa.int64(),
    "small": pa.int16(),
    "big": pa.float64(),
    "total": pa.float32(),
    "has_word": pa.bool_(),
    "when": pa.timestamp("us", "UTC"),
    "last": pa.string(),
    "raw": pa.binary(),
    "price": pa.decimal128(12, 2),
    "day": pa.date32(),
    "recent": pa.list_(pa.float64()),
    "words": pa.list_(pa.string()),
    "seen": pa.map_(pa.string(), pa.int64()),
    "flags": pa.list_(pa.bool_()),
}
_INITIAL = {"big": float("-inf"), "small": 7}
_OUTPUT = (("what", pa.string()), ("count", pa.int64()), ("newest", pa.float64()))


@dataclass(frozen=True)
class Wanted:
    """What an operator keeps and does; all times in microseconds, None where it does not."""

    columns: tuple[str, ...]
    remove_at: int | None = None
    event_timer: int | None = None
    clock_timer: int | None = None
    event_ttl: int | None = None
    clock_ttl: int | None = None

    @property
    def uses_time(self) -> bool:
        return self.event_timer is not None or self.event_ttl is not None


class Everything:
    """A user's operator that keeps what is wanted; it can be sent anywhere."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.state = {name: _TYPES[name] for name in ("n", *wanted.columns)}
        self.initial = {name: each for name, each in _INITIAL.items() if name in self.state}
        if wanted.event_ttl is not None:
            self.event_time_to_live = f"{wanted.event_ttl} us"
        if wanted.clock_ttl is not None:
            self.clock_time_to_live = f"{wanted.clock_ttl} us"
        if wanted.event_timer is not None:
            self.on_event_timer = self._on_event_timer
        if wanted.clock_timer is not None:
            self.on_clock_timer = self._on_clock_timer

    def process(self, keys: Any, rows: Any, state: Any) -> Any:
        of_rows, values, words = keys.of_rows, rows["value"], rows["word"]
        state["n"] += keys.counts()
        last_row = np.zeros(len(keys), dtype=np.int64)
        last_row[of_rows] = np.arange(len(of_rows))
        numbers = values.fill_null(0).to_numpy()
        has_word = words.is_valid().to_numpy(zero_copy_only=False)
        if "small" in self.state:
            state["small"][keys.counts() % 2 == 0] += np.int16(1)
        if "big" in self.state:
            np.maximum.at(state["big"], of_rows, numbers)
        if "total" in self.state:
            np.add.at(state["total"], of_rows, numbers.astype(np.float32))
        if "has_word" in self.state:
            state["has_word"][of_rows[has_word]] = True
        if "when" in self.state:
            state["when"] = rows["at"].take(pa.array(last_row))
        if "last" in self.state:
            state["last"] = words.take(pa.array(last_row))
        if "raw" in self.state:
            state["raw"] = words.take(pa.array(last_row)).cast(pa.binary())
        if "price" in self.state:
            state["price"] = values.take(pa.array(last_row)).cast(pa.decimal128(12, 2))
        if "day" in self.state:
            state["day"] = rows["at"].take(pa.array(last_row)).cast(pa.date32())
        if "recent" in self.state:
            state["recent"].append(of_rows, values)
            state["recent"].keep_last(3)
        if "words" in self.state:
            state["words"].append(of_rows, words)
            state["words"].clear(state["words"].lengths() > 5)
        if "flags" in self.state:
            state["flags"].append(of_rows, has_word)
            state["flags"].keep_last(9)
        if "seen" in self.state:
            named = pa.array(np.flatnonzero(has_word))
            state["seen"].put(of_rows[has_word], words.take(named), numbers[has_word].astype("i8"))
            x = words.fill_null("").to_numpy(zero_copy_only=False) == "x"
            state["seen"].remove(of_rows[x], words.filter(pa.array(x)))
        if self.wanted.event_timer is not None:
            at = rows["at"].cast(pa.int64()).to_numpy()
            latest = np.full(len(keys), np.iinfo("i8").min)
            np.maximum.at(latest, of_rows, at)
            state.event_timer[:] = (latest + self.wanted.event_timer).view("M8[us]")
        if self.wanted.clock_timer is not None:
            is_unset = np.isnat(state.clock_timer)
            state.clock_timer[is_unset] = state.now + np.timedelta64(self.wanted.clock_timer, "us")
        if self.wanted.remove_at is not None:
            state.remove(state["n"] >= self.wanted.remove_at)
        newest = values.take(pa.array(last_row))
        what = np.where(state.is_new, "new", "old")
        return keys.table(what=what, count=state["n"], newest=newest)

    def _on_event_timer(self, keys: Any, due: Any, state: Any) -> Any:
        is_odd = state["n"] % 2 == 1
        state["n"] += 1
        state.event_timer[is_odd] = (due + np.timedelta64(self.wanted.event_timer, "us"))[is_odd]
        newest = due.astype("M8[us]").astype(np.int64).astype(np.float64)
        what = pa.array(["event"] * len(keys))
        return keys.table(is_odd, what=what, count=state["n"], newest=newest)

    def _on_clock_timer(self, keys: Any, due: Any, state: Any) -> Any:
        state["n"] += 1000
        if "recent" in self.state:
            state["recent"].clear()
        return keys.table(what=["clock"] * len(keys), count=state["n"], newest=pa.nulls(len(keys)))


@dataclass
class _Key:
    """All that is kept of a key."""

    opened: int
    columns: dict[str, Any]
    event_timer: int | None = None
    clock_timer: int | None = None
    event_ttl: int | None = None
    clock_ttl: int | None = None


class KeyedOracle:
    """The same, key by key."""

    def __init__(self, wanted: Wanted, by: Sequence[str], late: str = "drop") -> None:
        self._wanted = wanted
        self._by = by
        self.keeps_late_rows = late == "keep"
        self._keys: dict[tuple[Any, ...], _Key] = {}

    def process(
        self,
        batch: int,
        rows: Sequence[Row],
        late_before: int | None,
        watermark: int | None,
        now: int | None,
    ) -> OracleOutcome:
        outcome = OracleOutcome()
        by_key: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            if self._wanted.uses_time:
                if row["at"] is None:
                    outcome.null_times += 1
                    continue
                if late_before is not None and row["at"] <= late_before:
                    outcome.late.append(row)
                    continue
            by_key.setdefault(tuple(row[name] for name in self._by), []).append(row)
        for key, mine in by_key.items():
            self._take_rows(batch, key, mine, now, outcome)
        if watermark is not None:
            self._fire_event_timers(watermark, outcome)
        if now is not None:
            self._fire_clock_timers(now, outcome)
        for key, kept in list(self._keys.items()):
            if _is_over(kept.event_ttl, watermark) or _is_over(kept.clock_ttl, now):
                del self._keys[key]
        return outcome

    def _take_rows(
        self,
        batch: int,
        key: tuple[Any, ...],
        rows: list[Row],
        now: int | None,
        outcome: OracleOutcome,
    ) -> None:
        wanted = self._wanted
        is_new = key not in self._keys
        kept = self._keys.setdefault(key, _Key(batch, _fresh(wanted)))
        for row in rows:
            _take_row(kept.columns, row)
        if "small" in kept.columns:
            kept.columns["small"] += len(rows) % 2 == 0
        if "words" in kept.columns and len(kept.columns["words"]) > 5:
            kept.columns["words"] = []
        for name, most in (("recent", 3), ("flags", 9)):
            if name in kept.columns:
                kept.columns[name] = kept.columns[name][-most:]
        if "seen" in kept.columns and any(row["word"] == "x" for row in rows):
            kept.columns["seen"].pop("x", None)
        if wanted.event_timer is not None:
            kept.event_timer = max(row["at"] for row in rows) + wanted.event_timer
        if wanted.clock_timer is not None and kept.clock_timer is None:
            assert now is not None
            kept.clock_timer = now + wanted.clock_timer
        if wanted.event_ttl is not None:
            ends = max(row["at"] for row in rows) + wanted.event_ttl
            kept.event_ttl = ends if kept.event_ttl is None else max(kept.event_ttl, ends)
        if wanted.clock_ttl is not None:
            assert now is not None
            kept.clock_ttl = now + wanted.clock_ttl
        self._emit(outcome, key, "new" if is_new else "old", kept, rows[-1]["value"])
        if wanted.remove_at is not None and kept.columns["n"] >= wanted.remove_at:
            del self._keys[key]

    def _fire_event_timers(self, watermark: int, outcome: OracleOutcome) -> None:
        for key, kept in self._keys.items():
            while kept.event_timer is not None and kept.event_timer <= watermark:
                due, kept.event_timer = kept.event_timer, None
                is_odd = kept.columns["n"] % 2 == 1
                kept.columns["n"] += 1
                if is_odd:
                    assert self._wanted.event_timer is not None
                    kept.event_timer = due + self._wanted.event_timer
                    self._emit(outcome, key, "event", kept, float(due))

    def _fire_clock_timers(self, now: int, outcome: OracleOutcome) -> None:
        for key, kept in self._keys.items():
            if kept.clock_timer is not None and kept.clock_timer <= now:
                kept.clock_timer = None
                kept.columns["n"] += 1000
                if "recent" in kept.columns:
                    kept.columns["recent"] = []
                self._emit(outcome, key, "clock", kept, None)

    def _emit(
        self, outcome: OracleOutcome, key: tuple[Any, ...], what: str, kept: _Key, newest: Any
    ) -> None:
        row = dict(zip(self._by, key, strict=True))
        row |= {"what": what, "count": kept.columns["n"], "newest": newest}
        outcome.results.append(row)

    def published(self, results: list[Row]) -> list[Row]:
        return results

    def open_windows(self) -> dict[Identity, Row]:
        return {(key, None): self._state(kept) for key, kept in self._keys.items()}

    def _state(self, kept: _Key) -> Row:
        times = {
            f"${name}": getattr(kept, name)
            for name in ("event_timer", "clock_timer", "event_ttl", "clock_ttl")
            if getattr(self._wanted, name) is not None
        }
        columns = {name: comparable(each) for name, each in kept.columns.items()}
        return {OPENED: kept.opened, **times, **columns}


def _is_over(ends: int | None, now: int | None) -> bool:
    return ends is not None and now is not None and ends <= now


def _fresh(wanted: Wanted) -> dict[str, Any]:
    empty: dict[str, Any] = {"n": 0, "total": 0.0, "has_word": False, **_INITIAL}
    found: dict[str, Any] = {}
    for name in ("n", *wanted.columns):
        kind = _TYPES[name]
        found[name] = {} if pa.types.is_map(kind) else [] if pa.types.is_list(kind) else None
        found[name] = empty.get(name, found[name])
    return found


def _take_row(kept: dict[str, Any], row: Row) -> None:
    """One tuple, column by column."""
    value, word = row["value"], row["word"]
    number = 0.0 if value is None else value
    kept["n"] += 1
    taken: dict[str, Any] = {
        "big": lambda before: max(before, number),
        "total": lambda before: float(np.float32(before) + np.float32(number)),
        "has_word": lambda before: before or word is not None,
        "when": lambda before: row["at"],
        "last": lambda before: word,
        "raw": lambda before: None if word is None else word.encode(),
        "price": lambda before: None if value is None else Decimal(f"{value:.2f}"),
        "day": lambda before: None if row["at"] is None else row["at"] // (86_400 * _SECOND),
        "recent": lambda before: [*before, value],
        "words": lambda before: [*before, word],
        "flags": lambda before: [*before, word is not None],
        "seen": lambda before: before if word is None else {**before, word: int(number)},
    }
    for name, take in taken.items():
        if name in kept:
            kept[name] = take(kept[name])


def comparable(value: Any) -> Any:
    """A value of a state as it can be compared: lists and maps element by element."""
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list):
        return tuple(comparable(each) for each in value)
    if isinstance(value, tuple):
        return tuple(comparable(each) for each in value)
    return exact(value) if isinstance(value, float) else value


@dataclass(frozen=True)
class KeyedCase:
    """Batches for a keyed operator. See `tests.support.engine.CrashCase`."""

    schema: pa.Schema
    by: tuple[str, ...]
    wanted: Wanted
    batches: tuple[pa.RecordBatch, ...] = field(repr=False)
    late: Any = "drop"
    delay_us: int = 0
    order_by: tuple[str, ...] = ()

    def code(self) -> Everything:
        return Everything(self.wanted)

    @property
    def output(self) -> pa.Schema:
        return pa.schema([*(self.schema.field(name) for name in self.by), *_OUTPUT])

    def operator(self) -> Keyed:
        return Keyed(
            self.schema,
            self.code(),
            by=self.by,
            output=self.output,
            time="at" if self.wanted.uses_time else None,
            delay=f"{self.delay_us} us",
            late=self.late,
            order_by=self.order_by or None,
        )

    def oracle(self) -> KeyedOracle:
        return KeyedOracle(self.wanted, self.by, self.late)

    def shuffled(self, rows: pa.RecordBatch, rng: random.Random) -> pa.RecordBatch:
        return shuffled(rows, rng)

    def split(self, rows: pa.RecordBatch, buckets: int) -> list[pa.RecordBatch]:
        return split(rows, self.by, buckets)

    def outcome(
        self,
        oracle: KeyedOracle,
        batch: int,
        rows: pa.RecordBatch,
        late_before: int | None,
        watermark: int | None,
    ) -> OracleOutcome:
        return oracle.process(batch, plain_rows(rows), late_before, watermark, None)

    def expected(self, oracle: KeyedOracle, logged: Segment) -> OracleOutcome:
        attributes: Mapping[str, Any] = logged.footer.attributes
        rows = plain_rows(contiguous(logged.rows(FrameKind.INPUT, self.schema)))
        times = [attributes.get(name) for name in ("late_before", "watermark", "clock_us")]
        return oracle.process(logged.batch, rows, *times)

    def footprint_states(self, operator: Keyed, footprints: pa.RecordBatch) -> dict[Identity, Row]:
        states: dict[Identity, Row] = {}
        for row in plain_rows(footprints):
            identity = (tuple(row[name] for name in self.by), None)
            assert identity not in states, f"key {identity} is there twice"
            states[identity] = {
                name: comparable(value)
                for name, value in row.items()
                if name not in (*self.by, KIND)
            }
        return states

    def states(self, operator: Keyed, state: Any) -> dict[Identity, Row]:
        footprints = operator.footprints(state, state.slots(), 0)
        footprints.validate(full=True)
        return self.footprint_states(operator, footprints)


def random_keyed(rng: random.Random) -> KeyedCase:
    """A few keys of random types, with times that go on and are sometimes late or null."""
    kinds = {"k0": rng.choice((pa.int32(), pa.string(), pa.int64(), pa.date32())), "k1": pa.bool_()}
    by = ("k0",) if rng.random() < 0.7 else ("k0", "k1")
    schema = pa.schema(
        [
            *((name, kinds[name]) for name in by),
            ("value", pa.float64()),
            ("word", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    columns = [name for name in _TYPES if name != "n" and rng.random() < 0.4]
    rng.shuffle(columns)
    wanted = Wanted(
        tuple(columns),
        remove_at=rng.choice((None, None, 2, 7)),
        event_timer=rng.choice((None, 1, 3 * _SECOND)),
        clock_timer=rng.choice((None, None, 0, 30, _SECOND)),
        event_ttl=rng.choice((None, None, 2 * _SECOND)),
        clock_ttl=rng.choice((None, None, 50, 10 * _SECOND)),
    )
    distinct, now, batches = rng.choice((1, 3, 12)), 0, []
    for _ in range(rng.randrange(2, 12)):
        rows = []
        for _ in range(rng.choice((0, 1, 5, 20))):
            now += rng.randrange(_SECOND)
            at = now - rng.choice((0, 0, 0, 20 * _SECOND))
            key = _key(kinds["k0"], rng.randrange(distinct))
            rows.append(
                (
                    *((key, rng.random() < 0.5)[: len(by)]),
                    None if rng.random() < 0.1 else rng.randrange(-50, 1000) / 4,
                    rng.choice((None, "", "x", "y", "longer " * 20, "ß\0")),
                    None if rng.random() < 0.05 else at,
                )
            )
        batches.append(batch_of(schema, rows, rng.choice((0, 3))))
    return KeyedCase(
        schema,
        by,
        wanted,
        tuple(batches),
        late=rng.choice(("drop", "keep")),
        delay_us=rng.choice((0, 5 * _SECOND)),
    )


def small_keyed(batches: int = 4) -> KeyedCase:
    """Three keys; lists and maps, timers that fire, and keys that are removed and come again."""
    schema = pa.schema(
        [
            ("k0", pa.string()),
            ("value", pa.float64()),
            ("word", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    made = []
    for batch in range(batches):
        rows = []
        for place in range(6):
            at = (10 * batch + place * (-1) ** place) * _SECOND
            word = None if place == 4 else "xyz"[place % 3] * batch
            rows.append((_key(pa.string(), batch * place % 3), place / 4, word, at))
        made.append(batch_of(schema, rows))
    columns = ("big", "last", "words", "seen")
    wanted = Wanted(columns, remove_at=9, event_timer=3 * _SECOND, event_ttl=15 * _SECOND)
    return KeyedCase(schema, ("k0",), wanted, tuple(made), delay_us=2 * _SECOND)


def _key(kind: pa.DataType, number: int) -> Any:
    if number == 0:
        return None
    return f"key {number}" if pa.types.is_string(kind) else number
