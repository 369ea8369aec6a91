"""Whole operators as users write them, and the oracle that judges them: plain Python."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.support.delivered import shuffled, split
from tests.support.oracle import Identity, OracleOutcome, Row
from tests.support.plain import batch_of, plain_rows
from trailmark.kernel.columns import contiguous
from trailmark.log import Segment
from trailmark.operators.whole import Whole
from trailmark.records import KIND, OPENED, FrameKind

_SCHEMA = pa.schema(
    [("item", pa.int32()), ("value", pa.float64()), ("words", pa.list_(pa.string()))]
)
_OUTPUT = pa.schema([("item", pa.int32()), ("smooth", pa.float64()), ("rows", pa.int64())])
_ARROW = pa.schema([("item", pa.int32()), ("smooth", pa.float64())])


class Smooth:
    """A smoothed value per item, in plain attributes; the order of rows matters."""

    def __init__(self) -> None:
        self.items: dict[int | None, float] = {}
        self.rows = 0

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        found = []
        for row in batch.to_pylist():
            self.rows += 1
            before = self.items.get(row["item"], 0.0)
            self.items[row["item"]] = smooth = 0.75 * before + 0.25 * (row["value"] or 0.0)
            if self.rows % 3 == 0:
                found.append({"item": row["item"], "smooth": smooth, "rows": self.rows})
        return pa.RecordBatch.from_pylist(found, schema=_OUTPUT) if found else None


class SmoothBytes(Smooth):
    """Whose state is bytes."""

    def get_checkpoint(self) -> bytes:
        return _as_bytes(self.rows, self.items)

    def restore_checkpoint(self, state: bytes) -> None:
        stored = json.loads(state)
        self.rows, self.items = stored["rows"], dict(stored["items"])


class SmoothArrow(Smooth):
    """Whose state is an Arrow table; the count of rows rides in its metadata."""

    def get_checkpoint(self) -> pa.Table:
        rows = [{"item": item, "smooth": each} for item, each in self.items.items()]
        table = pa.Table.from_pylist(rows, schema=_ARROW)
        return table.replace_schema_metadata({"rows": str(self.rows)})

    def restore_checkpoint(self, state: pa.Table) -> None:
        self.rows = int(state.schema.metadata[b"rows"])
        self.items = {row["item"]: row["smooth"] for row in state.to_pylist()}


def _as_bytes(rows: int, items: dict[int | None, float]) -> bytes:
    return json.dumps({"rows": rows, "items": list(items.items())}).encode()


class WholeOracle:
    """The same once more."""

    keeps_late_rows = False

    def __init__(self) -> None:
        self._smooth: dict[int | None, float] = {}
        self._rows = 0
        self._opened: int | None = None

    def process(self, batch: int, rows: Sequence[Row]) -> OracleOutcome:
        outcome = OracleOutcome()
        for row in rows:
            self._opened = batch if self._opened is None else self._opened
            self._rows += 1
            item, value = row["item"], 0.0 if row["value"] is None else row["value"]
            self._smooth[item] = self._smooth.get(item, 0.0) * 0.75 + value * 0.25
            if self._rows % 3 == 0:
                outcome.results.append(
                    {"item": item, "smooth": self._smooth[item], "rows": self._rows}
                )
        return outcome

    def published(self, results: list[Row]) -> list[Row]:
        return results

    def open_windows(self) -> dict[Identity, Row]:
        if self._opened is None:
            return {}
        items = {str(item): each.hex() for item, each in self._smooth.items()}
        return {((), None): {OPENED: self._opened, "rows": self._rows, "items": items}}


@dataclass(frozen=True)
class WholeCase:
    """Batches for a whole operator. See `tests.support.engine.CrashCase`."""

    user: type[Smooth]
    batches: tuple[pa.RecordBatch, ...] = field(repr=False)

    def code(self) -> type[Smooth]:
        return self.user

    def operator(self) -> Whole:
        return Whole(_SCHEMA, self.user, output=_OUTPUT, by=["item"])

    def oracle(self) -> WholeOracle:
        return WholeOracle()

    def shuffled(self, rows: pa.RecordBatch, rng: random.Random) -> pa.RecordBatch:
        return shuffled(rows, rng)

    def split(self, rows: pa.RecordBatch, buckets: int) -> list[pa.RecordBatch]:
        return split(rows, ["item"], buckets)

    def outcome(
        self,
        oracle: WholeOracle,
        batch: int,
        rows: pa.RecordBatch,
        late_before: int | None,
        watermark: int | None,
    ) -> OracleOutcome:
        return oracle.process(batch, plain_rows(rows))

    def expected(self, oracle: WholeOracle, logged: Segment) -> OracleOutcome:
        rows = plain_rows(contiguous(logged.rows(FrameKind.INPUT, _SCHEMA)))
        return oracle.process(logged.batch, rows)

    def footprint_states(self, operator: Whole, footprints: pa.RecordBatch) -> dict[Identity, Row]:
        states: dict[Identity, Row] = {}
        for row in footprints.to_pylist():
            assert not states, "a bucket has one state"
            assert row.keys() >= {KIND, OPENED, "form", "state"}
            thing: Any = self.user()
            if self.user is SmoothBytes:
                thing.restore_checkpoint(row["state"])
            else:
                thing.restore_checkpoint(pa.ipc.open_stream(row["state"]).read_all())
            items = {str(item): each.hex() for item, each in thing.items.items()}
            states[(), None] = {OPENED: row[OPENED], "rows": thing.rows, "items": items}
        return states

    def states(self, operator: Whole, state: Any) -> dict[Identity, Row]:
        return self.footprint_states(operator, operator.footprints(state, state.list_oldest(), 0))


def random_whole(rng: random.Random) -> WholeCase:
    """Batches of a few items; some are empty."""
    batches = []
    for _ in range(rng.randrange(2, 12)):
        rows = [
            (
                rng.choice((None, 1, 2, 3)),
                None if rng.random() < 0.1 else rng.randrange(1000) / 7,
                rng.choice(([], ["a"], ["a", "b"])),
            )
            for _ in range(rng.choice((0, 1, 5, 20)))
        ]
        batches.append(batch_of(_SCHEMA, rows))
    return WholeCase(rng.choice((SmoothBytes, SmoothArrow)), tuple(batches))


def small_whole(batches: int = 4) -> WholeCase:
    """Two items, and a batch without rows."""
    made = []
    for batch in range(batches):
        count = 0 if batch == 2 else 5
        rows = [(place % 2, batch + place / 4, ["a"] * place) for place in range(count)]
        made.append(batch_of(_SCHEMA, rows))
    return WholeCase(SmoothBytes, tuple(made))
