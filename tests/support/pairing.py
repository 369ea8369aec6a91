"""An operator with two inputs, for tests only: it proves that the engine takes any operator.

A tuple on the left is remembered by its key, in the place of the one before; every tuple on the
right is paired with what is remembered of its key. A key is forgotten when the watermark has passed
the time of its tuple. Its state is a plain dictionary, not a table: the engine sees only pieces.
It holds no tuples but their places in the input log, and looks them up there. Some of its
footprints claim to be much heavier than others. Both the operator and its oracle are plain Python.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.support.oracle import Identity, OracleOutcome, Row
from tests.support.plain import plain_rows
from trailmark.kernel.columns import whole_numbers
from trailmark.log import Order, PortRows, Segment, read_ports
from trailmark.operators.ages import without_kinds
from trailmark.operators.identities import Identities
from trailmark.operators.independent import IndependentPieces
from trailmark.operators.protocol import BatchInput, History, Outcome, Port
from trailmark.records import FOOTPRINT, KIND, NO_BATCH, OPENED
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import PAGE, Memory
from trailmark.state.table import LAST_BATCH, Slots

_SECOND = 1_000_000
_KEY = pa.field("key", pa.int32())
_LEFT = pa.schema([_KEY, pa.field("left", pa.int64()), pa.field("at", pa.timestamp("us"))])
_RIGHT = pa.schema([_KEY, pa.field("right", pa.int64()), pa.field("at", pa.timestamp("us"))])
_RESULTS = pa.schema([_KEY, pa.field("left", pa.int64()), pa.field("right", pa.int64())])
_STATE = pa.schema(
    [
        _KEY,
        pa.field(KIND, pa.int8()),
        pa.field(OPENED, pa.int64()),
        pa.field("batch", pa.int64()),
        pa.field("row", pa.int64()),
        pa.field("at", pa.int64()),
    ]
)
#: What footprints weigh, by the tuple that they refer to: as counters, lists, or a whole operator.
_WEIGHTS = np.array([1, 1, 40, 3_000, 2_000_000])


def in_order(rows: PortRows) -> Iterator[tuple[int, Row]]:
    """Tuples with their ports, in the order in which they count."""
    ports = [iter(plain_rows(table)) for table in rows.tables]
    assert rows.order is not None
    for port in rows.order.tolist():
        yield port, next(ports[port])


@dataclass
class Piece:
    """What is remembered of a key: where its tuple lies in the input log, and its time."""

    key: int
    batch: int
    row: int
    at: int
    opened: int
    footprint: int


class PairingState:
    """Pieces by slot, oldest footprint first. All of it is written down after every change."""

    def __init__(self, memory: Memory, history: History, *, is_new: bool) -> None:
        self.memory = memory
        self.history = history
        self._region = memory.region("pieces", PAGE)
        self.pieces: dict[int, Piece] = {}
        self._next = 1
        if is_new:
            self.save()
        else:
            length = int(self._region.view("<i8", 1)[0])
            stored = json.loads(self._region.bytes[8 : 8 + length].tobytes())
            self._next = stored["next"]
            self.pieces = {slot: Piece(*fields) for slot, fields in stored["pieces"]}

    def save(self) -> None:
        ordered = sorted(self.pieces.items(), key=lambda each: each[1].footprint)
        self.pieces = dict(ordered)
        fields = [[slot, list(vars(piece).values())] for slot, piece in ordered]
        text = json.dumps({"next": self._next, "pieces": fields}).encode()
        if 8 + len(text) > self._region.size:
            self._region.grow(8 + 2 * len(text))
        self._region.view("<i8", 1)[0] = len(text)
        self._region.bytes[8 : 8 + len(text)] = np.frombuffer(text, np.uint8)

    def left_of(self, piece: Piece, given: BatchInput | None = None) -> int:
        """The value of the tuple that is remembered; that of the batch at hand is not in the log
        yet."""
        if given is not None and piece.batch == given.batch:
            rows = given.rows
        else:
            rows = self.history.rows(piece.batch).tables[0]
        value: int = rows.column("left")[piece.row].as_py()
        return value

    def slot_of(self, key: int) -> int | None:
        return next((slot for slot, piece in self.pieces.items() if piece.key == key), None)

    def add(self, piece: Piece) -> int:
        slot, self._next = self._next, self._next + 1
        self.pieces[slot] = piece
        return slot

    def reserve_windows(self, count: int) -> None:
        """A dictionary grows by itself."""

    @property
    def open_windows(self) -> int:
        return len(self.pieces)

    def oldest_footprint(self) -> int | None:
        return min((piece.footprint for piece in self.pieces.values()), default=None)

    def take_oldest(self, before: int, batch: int, most: int) -> Slots:
        slots = self.list_oldest(most, before=before)
        self.renew(slots, batch)
        return slots

    def list_oldest(
        self,
        most: int | None = None,
        *,
        before: int = LAST_BATCH + 1,
        opened_before: int = LAST_BATCH + 1,
    ) -> Slots:
        found = [
            slot
            for slot, piece in self.pieces.items()
            if piece.footprint < before and piece.opened < opened_before
        ]
        return np.array(found[:most], dtype=np.int64)

    def renew(self, slots: Slots, batch: int) -> None:
        for slot in slots.tolist():
            self.pieces[slot].footprint = batch
        self.save()

    def footprints(self, slots: Slots) -> npt.NDArray[np.int64]:
        return np.array([self.pieces[slot].footprint for slot in slots.tolist()], dtype=np.int64)

    def are_open(self, slots: Slots) -> npt.NDArray[np.bool_]:
        return np.array([slot in self.pieces for slot in slots.tolist()], dtype=np.bool_)

    def forget_footprints(self) -> None:
        self.renew(np.array(list(self.pieces), dtype=np.int64), NO_BATCH)


class Pairing(IndependentPieces):
    """Implements ``Operator``."""

    logged_schema = result_schema = shown_schema = _RESULTS
    late_schema = _RESULTS  # it keeps none
    rebuilds_from_openings = False
    uses_clock = False

    def __init__(self, delays_us: tuple[int, int]) -> None:
        self.ports = (
            Port("left", _LEFT, "at", delays_us[0]),
            Port("right", _RIGHT, "at", delays_us[1]),
        )
        self.identities = self.copied_together = Identities(KeyLayout([_KEY]), has_start=False)

    def describe(self) -> dict[str, Any]:
        return {"operator": "pairing", "delays_us": [port.delay_us for port in self.ports]}

    def layout_key(self) -> str:
        return "pairing"

    def arrange(self, rows: PortRows) -> PortRows:
        return rows

    def open(self, memory: Memory, history: History, *, is_new: bool = True) -> PairingState:
        return PairingState(memory, history, is_new=is_new)

    def looks_back(self, state: PairingState) -> int | None:
        return min((piece.batch for piece in state.pieces.values()), default=None)

    def next_alarm(self, state: PairingState) -> None:
        """Keys are forgotten by event time alone."""

    def process(self, state: PairingState, given: BatchInput) -> Outcome:
        results, opened, changed = [], set(), set()
        lefts = itertools.count()
        for port, row in in_order(_rows_of(given)):
            slot = state.slot_of(row["key"])
            if port == 1:
                if slot is not None:
                    left = state.left_of(state.pieces[slot], given)
                    results.append({"key": row["key"], "left": left, "right": row["right"]})
                continue
            if slot is None:
                slot = state.add(Piece(row["key"], 0, 0, 0, given.batch, given.footprint))
                opened.add(slot)
            _refer(state.pieces[slot], given.batch, next(lefts), row["at"])
            changed.add(slot)
        closed = self._ended(state, given)
        keys = [state.pieces.pop(slot).key for slot in closed]
        state.save()
        return Outcome(
            pa.RecordBatch.from_pylist(results, schema=_RESULTS),
            _slots(opened - set(closed)),
            _slots(changed - set(closed) if given.lists_changed else set()),
            closed=pa.RecordBatch.from_pylist([{"key": key} for key in keys], pa.schema([_KEY])),
        )

    def _ended(self, state: PairingState, given: BatchInput) -> list[int]:
        mark = given.watermark
        if mark is None:
            return []
        return [slot for slot, piece in state.pieces.items() if piece.at <= mark]

    def replay(self, state: PairingState, given: BatchInput, where: str) -> None:
        lefts = [row for port, row in in_order(_rows_of(given)) if port == 0]
        for place, row in enumerate(lefts):
            slot = state.slot_of(row["key"])
            if slot is not None and state.pieces[slot].footprint < given.batch:
                _refer(state.pieces[slot], given.batch, place, row["at"])
        state.save()

    def touched(self, state: PairingState, given: BatchInput) -> Slots:
        keys = {row["key"] for _, row in in_order(_rows_of(given))}
        met = {slot for slot, piece in state.pieces.items() if piece.key in keys}
        return _slots(met | set(self._ended(state, given)))

    def publish(self, results: pa.RecordBatch) -> pa.RecordBatch:
        return results

    def show(self, published: pa.RecordBatch) -> pa.RecordBatch:
        return published

    def footprints(self, state: PairingState, slots: Slots, opened: int) -> pa.RecordBatch:
        pieces = [state.pieces[slot] for slot in slots.tolist()]
        rows = [
            {**vars(piece), KIND: int(n >= opened), OPENED: piece.opened}
            for n, piece in enumerate(pieces)
        ]
        return pa.RecordBatch.from_pylist(rows, schema=_STATE)

    def content(self, state: PairingState) -> pa.RecordBatch:
        return without_kinds(self.footprints(state, state.list_oldest(), 0))

    def widen(self, footprints: pa.RecordBatch, where: str) -> pa.RecordBatch:
        return footprints

    def weigh(self, footprints: pa.RecordBatch) -> int:
        places = sum(whole_numbers(footprints, name) for name in ("key", "batch", "row"))
        return int(_WEIGHTS[places % len(_WEIGHTS)].sum())

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        is_right = footprints.schema.equals(_STATE)
        return "" if is_right else "has other columns than a pairing"

    def load(self, state: PairingState, footprints: pa.RecordBatch, where: str) -> None:
        ages = whole_numbers(footprints, FOOTPRINT).tolist()
        for row, age in zip(plain_rows(footprints), ages, strict=True):
            piece = Piece(row["key"], row["batch"], row["row"], row["at"], row[OPENED], age)
            state.left_of(piece)  # has to be there
            state.add(piece)
        state.save()


def _refer(piece: Piece, batch: int, row: int, at: int) -> None:
    piece.batch, piece.row, piece.at = batch, row, at


def _rows_of(given: BatchInput) -> PortRows:
    return PortRows((given.rows, *given.others), given.order)


def _slots(found: set[int]) -> Slots:
    return np.array(sorted(found), dtype=np.int64)


class PairingOracle:
    """The same, said once more and without pieces."""

    keeps_late_rows = False

    def __init__(self) -> None:
        self._remembered: dict[int, Row] = {}

    def process(
        self, batch: int, rows: Sequence[tuple[int, Row]], watermark: int | None
    ) -> OracleOutcome:
        outcome = OracleOutcome()
        for port, row in rows:
            if port == 0:
                opened = self._remembered.get(row["key"], {OPENED: batch})[OPENED]
                remembered = {OPENED: opened, "left": row["left"], "at": row["at"]}
                self._remembered[row["key"]] = remembered
            elif row["key"] in self._remembered:
                left = self._remembered[row["key"]]["left"]
                outcome.results.append({"key": row["key"], "left": left, "right": row["right"]})
        if watermark is not None:
            kept = {key: r for key, r in self._remembered.items() if r["at"] > watermark}
            self._remembered = kept
        return outcome

    def published(self, results: list[Row]) -> list[Row]:
        return results

    def open_windows(self) -> dict[Identity, Row]:
        return {((key,), None): row for key, row in self._remembered.items()}


@dataclass(frozen=True)
class PairingCase:
    """Batches for a pairing. See `tests.support.engine.CrashCase`."""

    delays_us: tuple[int, int]
    batches: tuple[PortRows, ...]

    def code(self) -> None:
        """Its description is all there is of it."""

    def operator(self) -> Pairing:
        return Pairing(self.delays_us)

    def oracle(self) -> PairingOracle:
        return PairingOracle()

    def shuffled(self, rows: PortRows, rng: random.Random) -> PortRows:
        tables = []
        for table in rows.tables:
            places = list(range(table.num_rows))
            rng.shuffle(places)
            tables.append(table.take(pa.array(places, pa.int64())))
        assert rows.order is not None
        order = rows.order.tolist()
        rng.shuffle(order)
        return PortRows(tuple(tables), np.array(order, dtype=np.uint8))

    def split(self, rows: PortRows, buckets: int) -> list[PortRows]:
        placed = [(port, row, row["key"] % buckets) for port, row in in_order(rows)]
        return [
            port_rows([(port, row) for port, row, b in placed if b == bucket])
            for bucket in range(buckets)
        ]

    def outcome(
        self,
        oracle: PairingOracle,
        batch: int,
        rows: PortRows,
        late_before: int | None,
        watermark: int | None,
    ) -> OracleOutcome:
        return oracle.process(batch, list(in_order(rows)), watermark)

    def expected(self, oracle: PairingOracle, logged: Segment) -> OracleOutcome:
        rows = read_ports(logged, self.operator().ports)
        watermark = logged.footer.attributes["watermark"]
        return oracle.process(logged.batch, list(in_order(rows)), watermark)

    def footprint_states(
        self, operator: Pairing, footprints: pa.RecordBatch
    ) -> dict[Identity, Row]:
        states: dict[Identity, Row] = {}
        for row in plain_rows(footprints):
            identity = ((row["key"],), None)
            assert identity not in states, f"key {identity} is there twice"
            states[identity] = {name: row[name] for name in (OPENED, "batch", "row", "at")}
        return states

    def states(self, operator: Pairing, state: PairingState) -> dict[Identity, Row]:
        return {
            ((p.key,), None): {OPENED: p.opened, "left": state.left_of(p), "at": p.at}
            for p in state.pieces.values()
        }


def port_rows(placed: Sequence[tuple[int, Row]]) -> PortRows:
    """Tuples with their ports, in the order in which they count, as they are given to a bucket."""
    tables = tuple(
        pa.RecordBatch.from_pylist([row for p, row in placed if p == port], schema=schema)
        for port, schema in enumerate((_LEFT, _RIGHT))
    )
    order: Order = np.array([port for port, _ in placed], dtype=np.uint8)
    return PortRows(tables, order)


def random_pairing(rng: random.Random) -> PairingCase:
    """A few keys, with times that go on and are sometimes late; some batches have one side only."""
    batches, now, keys = [], 0, rng.choice((1, 3, 12))
    for _ in range(rng.randrange(2, 12)):
        sides = rng.choice(((0, 1), (0, 1), (0, 1), (0,), (1,)))
        placed = []
        for _ in range(rng.choice((0, 1, 5, 20))):
            port, now = rng.choice(sides), now + rng.randrange(2 * _SECOND)
            value = {("left", "right")[port]: rng.randrange(1000)}
            at = max(0, now - rng.choice((0, 0, 20 * _SECOND)))
            placed.append((port, {"key": rng.randrange(keys), "at": at, **value}))
        batches.append(port_rows(placed))
    delays = (rng.choice((0, _SECOND)), rng.choice((0, 10 * _SECOND)))
    return PairingCase(delays, tuple(batches))
