"""Barriers and the oracle that judges them: a list for each input and key, one tuple at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.support.compare import exact
from tests.support.delivered import shuffled_ports, split_ports
from tests.support.joining import KEY_TYPES, OTHER_TYPES, port_rows
from tests.support.oracle import Identity, OracleOutcome, Row
from tests.support.pairing import in_order
from tests.support.plain import plain_rows
from trailmark.log import PortRows, Segment, read_ports
from trailmark.operators.barrier import Barrier
from trailmark.operators.barrier.state import BarrierState
from trailmark.operators.protocol import BatchInput
from trailmark.records import OPENED

#: There is one piece, without a name.
_PIECE: Identity = ((), None)


class BarrierOracle:
    """The tuples that wait, in the order in which they came."""

    keeps_late_rows = False

    def __init__(self, case: BarrierCase) -> None:
        self._case = case
        self._waiting: list[list[Row]] = [[] for _ in case.schemas]
        self._opened: int | None = None

    def process(self, batch: int, rows: Sequence[tuple[int, Row]]) -> OracleOutcome:
        outcome = OracleOutcome()
        for port, row in rows:
            self._opened = batch if self._opened is None else self._opened
            self._waiting[port].append(row)
            firsts = [self._first(waiting, self._key(row)) for waiting in self._waiting]
            together = [each for each in firsts if each is not None]
            if len(together) == len(firsts):
                outcome.results.append(self._case.result(together))
                for waiting, first in zip(self._waiting, together, strict=True):
                    waiting[:] = [each for each in waiting if each is not first]
        return outcome

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self._case.by)

    def _first(self, waiting: list[Row], key: tuple[Any, ...]) -> Row | None:
        return next((row for row in waiting if self._key(row) == key), None)

    def published(self, results: list[Row]) -> list[Row]:
        return results

    def open_windows(self) -> dict[Identity, Row]:
        if self._opened is None:
            return {}
        queues = tuple(tuple(map(exact, waiting)) for waiting in self._waiting)
        return {_PIECE: {OPENED: self._opened, "queues": queues}}


@dataclass(frozen=True)
class BarrierCase:
    """Batches for a barrier. See `tests.support.engine.CrashCase`."""

    schemas: dict[str, pa.Schema]
    by: tuple[str, ...]
    batches: tuple[PortRows, ...] = field(repr=False)
    order_by: str | None = None

    def code(self) -> None:
        """All of it is in the description."""

    def operator(self) -> Barrier:
        return Barrier(self.schemas, by=self.by, order_by=self.order_by)

    def oracle(self) -> BarrierOracle:
        return BarrierOracle(self)

    def result(self, rows: Sequence[Row]) -> Row:
        """Rows of all inputs as they come out together."""
        made = {name: rows[0][name] for name in self.by}
        names = [n for schema in self.schemas.values() for n in schema.names]
        for port, row in zip(self.schemas, rows, strict=True):
            for name, value in row.items():
                if name not in self.by:
                    made[f"{name}_{port}" if names.count(name) > 1 else name] = value
        return made

    def shuffled(self, rows: PortRows, rng: random.Random) -> PortRows:
        return shuffled_ports(rows, rng)

    def split(self, rows: PortRows, buckets: int) -> list[PortRows]:
        return split_ports(rows, self.by, buckets)

    def given(self, batch: int) -> BatchInput:
        return BatchInput.of(batch, self.operator().arrange(self.batches[batch]), None, None)

    def outcome(
        self,
        oracle: BarrierOracle,
        batch: int,
        rows: PortRows,
        late_before: int | None,
        watermark: int | None,
    ) -> OracleOutcome:
        return oracle.process(batch, list(in_order(rows)))

    def expected(self, oracle: BarrierOracle, logged: Segment) -> OracleOutcome:
        rows = read_ports(logged, self.operator().ports)
        return oracle.process(logged.batch, list(in_order(rows)))

    def footprint_states(
        self, operator: Barrier, footprints: pa.RecordBatch
    ) -> dict[Identity, Row]:
        assert footprints.num_rows <= 1
        rows = plain_rows(footprints.select([OPENED]))
        return {_PIECE: {OPENED: rows[0][OPENED]}} if rows else {}

    def states(self, operator: Barrier, state: BarrierState) -> dict[Identity, Row]:
        if not state.open_windows:
            return {}
        footprints = operator.footprints(state, state.list_oldest(), 0)
        footprints.validate(full=True)
        queues = tuple(
            tuple(exact(row) for row in plain_rows(queue.rows.take(queue.numbers())))
            for queue in state.queues
        )
        return {_PIECE: {OPENED: state.opened, "queues": queues}}


def random_barrier(rng: random.Random) -> BarrierCase:
    """Two to four inputs, with keys or without, some of which are silent for a while."""
    keys = rng.sample(KEY_TYPES, rng.choice((0, 1, 1, 2)))
    by = tuple(f"k{place}" for place in range(len(keys)))
    names = ("a", "b", "c", "d")[: rng.randrange(2, 5)]
    others = [rng.sample(OTHER_TYPES, rng.randrange(3)) for _ in names]
    schemas = {
        name: pa.schema(
            [
                *(pa.field(key, kind) for key, (kind, _) in zip(by, keys, strict=True)),
                pa.field("value", pa.int64()),
                *(pa.field(f"c{n}", kind) for n, (kind, _) in enumerate(mine)),
            ]
        )
        for name, mine in zip(names, others, strict=True)
    }
    distinct, batches = rng.choice((1, 3, 12)), []
    slow = rng.choice((None, None, rng.randrange(len(names))))
    for _ in range(rng.randrange(2, 12)):
        speaking = rng.sample(range(len(names)), rng.randrange(1, len(names) + 1))
        placed: list[tuple[int, list[Any]]] = []
        for _ in range(rng.choice((0, 1, 5, 30))):
            port, number = rng.choice(speaking), rng.randrange(distinct)
            if port == slow and rng.random() < 0.8:
                continue
            made = [None if rng.random() < 0.05 else make(number) for _, make in keys]
            made += [None if rng.random() < 0.1 else rng.randrange(50)]
            made += [None if rng.random() < 0.2 else make(rng) for _, make in others[port]]
            placed.append((port, made))
        batches.append(port_rows(tuple(schemas.values()), placed, rng.choice((0, 3))))
    return BarrierCase(schemas, by, tuple(batches), rng.choice((None, "value")))


def small_barrier(batches: int = 4) -> BarrierCase:
    """Two inputs and two keys; one input is slower."""
    schemas = {
        name: pa.schema([("key", pa.string()), (name, pa.int32())]) for name in ("cost", "gain")
    }
    made = []
    for batch in range(batches):
        placed = [
            (int((place + batch) % 3 == 0), ["ab"[place % 2], 10 * batch + place])
            for place in range(7)
        ]
        made.append(port_rows(tuple(schemas.values()), placed))
    return BarrierCase(schemas, ("key",), tuple(made))
