"""The footprint of a barrier as an Arrow row: the tuples in flight.

::

    $kind, $opened      as of every footprint
    arrived             tuples that had come to the bucket
    held_before         tuples of earlier batches are in the footprint, others in the input log
    ranges              these, by input and batch: place of the first, how many, a bit for each
                        place from there on where they are not neighbours, and how many tuples came
                        to the bucket before the batch
    held:NAME           tuples of an input that the footprint holds, the oldest first
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import DamagedSegment
from trailmark.kernel.columns import arrow_fixed, numbers, single, whole_numbers
from trailmark.log.rows import same_columns
from trailmark.operators.ages import CHECK, OPEN, age_trouble
from trailmark.operators.barrier.state import BarrierState
from trailmark.records import FOOTPRINT, KIND, NO_BATCH, OPENED
from trailmark.state.table import LAST_BATCH

ARRIVED, HELD_BEFORE, RANGES = "arrived", "held_before", "ranges"
_PARTS = ("port", "batch", "first", "count", "position")
_BITS = "bits"
_RANGE = pa.struct([*(pa.field(name, pa.int64()) for name in _PARTS), pa.field(_BITS, pa.binary())])
_MOST = 1 << 62
_MOST_ROWS = 1 << 40


class BarrierFootprints:
    """Turns the tuples in flight into a row, and back.

    Attributes
    ----------
    schema
        The columns of footprints.
    """

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        # Whether a column may be null is in no description of a log.
        self._ports = [
            pa.schema([pa.field(f.name, f.type) for f in each]) for each in schemas.values()
        ]
        self._held = [f"held:{name}" for name in schemas]
        self._kinds = [pa.list_(pa.struct(list(each))) for each in self._ports]
        fields = [pa.field(name, pa.int64()) for name in (OPENED, ARRIVED, HELD_BEFORE)]
        held = [pa.field(name, kind) for name, kind in zip(self._held, self._kinds, strict=True)]
        ranges = pa.field(RANGES, pa.list_(_RANGE))
        self.schema = pa.schema([pa.field(KIND, pa.int8()), *fields, ranges, *held])

    def content(self, state: BarrierState) -> pa.RecordBatch:
        """All tuples in flight, wherever their home is."""
        found = self.encode(state, is_opening=False, holds_all=True)
        return found.select([OPENED, *self._held]).slice(0, state.open_windows)

    def encode(
        self, state: BarrierState, *, is_opening: bool, holds_all: bool = False
    ) -> pa.RecordBatch:
        """The footprint of a state; with ``holds_all`` it holds all tuples."""
        held_before = LAST_BATCH + 1 if holds_all else state.held_before
        ranges: list[dict[str, Any]] = []
        held = []
        for place, (queue, schema) in enumerate(zip(state.queues, self._ports, strict=True)):
            waiting = queue.numbers()
            tuples = queue.tuples[waiting]
            is_held = tuples["batch"] < held_before
            ranges += _ranges(place, tuples[~is_held])
            rows = queue.rows.take(waiting[is_held])
            held.append(_one_list(pa.StructArray.from_arrays(rows.columns, fields=list(schema))))
        struct = pa.array(ranges, _RANGE)
        values = [state.opened, state.arrived, held_before]
        return pa.RecordBatch.from_arrays(
            [
                pa.array([OPEN if is_opening else CHECK], pa.int8()),
                *(pa.array([value], pa.int64()) for value in values),
                _one_list(struct),
                *held,
            ],
            schema=self.schema,
        )

    def weigh(self, rows: pa.RecordBatch) -> int:
        """How many tuples a recovery brings back, from wherever, and one for the footprint."""
        if not rows.num_rows:
            return 0
        return 1 + int(self._numbers(rows)[:, 3].sum()) + sum(map(len, self._held_tuples(rows)))

    def trouble(self, rows: pa.RecordBatch, batch: int) -> str:
        """What is wrong with the footprints of a batch; empty if they can be loaded."""
        if not same_columns(rows.schema, self.schema):
            return "has other columns than the footprints of this barrier"
        bounds = {ARRIVED: (0, _MOST), HELD_BEFORE: (0, LAST_BATCH + 1)}
        wrong = age_trouble(rows, batch, bounds)
        if wrong:
            return wrong
        if rows.num_rows > 1 or any(column.null_count for column in rows.columns):
            return "is not one footprint"
        if not rows.num_rows:
            return ""
        flat = single(rows.column(RANGES)).flatten()
        if flat.null_count or any(column.null_count for column in flat.flatten()[: len(_PARTS)]):
            return f"has nulls in {RANGES!r}"
        if any(tuples.null_count for tuples in self._held_tuples(rows)):
            return "holds tuples that are null"
        return self._range_trouble(rows, batch)

    def _range_trouble(self, rows: pa.RecordBatch, batch: int) -> str:
        ranges, arrived = self._numbers(rows), int(whole_numbers(rows, ARRIVED)[0])
        least = (0, int(whole_numbers(rows, HELD_BEFORE)[0]), 0, 1, 0)
        most = (len(self._ports) - 1, batch, _MOST_ROWS, _MOST_ROWS, arrived)
        for part, (name, low, high) in enumerate(zip(_PARTS, least, most, strict=True)):
            if ((ranges[:, part] < low) | (ranges[:, part] > high)).any():
                return f"has ranges whose {name} is not from {low} to {high}"
        before, after = ranges[:-1], ranges[1:]
        is_same_port = before[:, 0] == after[:, 0]
        if not ((after[:, 0] > before[:, 0]) | (is_same_port & (after[:, 1] > before[:, 1]))).all():
            return "has ranges that are not in order"
        for count, bits in zip(ranges[:, 3].tolist(), self._bits(rows), strict=True):
            if bits is not None and int(np.unpackbits(bits).sum()) != count:
                return "has ranges with other bits than one for each tuple"
        return ""

    def load(self, state: BarrierState, rows: pa.RecordBatch, where: str) -> None:
        """Puts the tuples of a footprint back, which is without trouble."""
        for place, (tuples, schema) in enumerate(
            zip(self._held_tuples(rows), self._ports, strict=True)
        ):
            held = pa.RecordBatch.from_arrays(tuples.flatten(), schema=schema)
            state.add(place, held, NO_BATCH, np.zeros(len(tuples), dtype=np.int64))
        ranges = zip(self._numbers(rows).tolist(), self._bits(rows), strict=True)
        # By batch: those of all inputs are in one segment.
        for (place, batch, first, count, position), bits in sorted(ranges, key=lambda r: r[0][1]):
            waits = None if bits is None else np.flatnonzero(np.unpackbits(bits, bitorder="little"))
            last = first + (count - 1 if waits is None else int(waits[-1]))
            table = state.history.rows(batch).tables[place]
            if last >= table.num_rows:  # before room is made for as many as a footprint says
                raise DamagedSegment(
                    f"The logged state contradicts the logged input: tuple {last} of batch {batch} "
                    f"should wait, and there are only {table.num_rows}.",
                    where=where,
                    fix="Run a verification of both logs; restore the damaged files from a backup.",
                )
            state.arrived = position
            places = first + (np.arange(count) if waits is None else waits)
            state.add(place, table.take(arrow_fixed(places, pa.int64())), batch, places)
        state.arrived = int(whole_numbers(rows, ARRIVED)[0])
        state.held_before = int(whole_numbers(rows, HELD_BEFORE)[0])
        state.open_at(int(whole_numbers(rows, OPENED)[0]), int(whole_numbers(rows, FOOTPRINT)[0]))
        state.tidy()

    def _numbers(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The numbers of the ranges, a row each."""
        flat = single(rows.column(RANGES)).flatten().flatten()[: len(_PARTS)]
        return np.stack([numbers(each) for each in flat], axis=1).reshape(-1, len(_PARTS))

    def _bits(self, rows: pa.RecordBatch) -> list[npt.NDArray[np.uint8] | None]:
        """Which places of each range; None where it is all of them."""
        column = single(rows.column(RANGES)).flatten().flatten()[-1]
        return [
            np.frombuffer(each.as_buffer(), dtype=np.uint8) if each.is_valid else None
            for each in column
        ]

    def _held_tuples(self, rows: pa.RecordBatch) -> list[Any]:
        return [single(rows.column(name)).flatten() for name in self._held]


def _one_list(values: pa.Array) -> pa.Array:
    """A column with one list."""
    offsets = pa.py_buffer(np.array([0, len(values)], dtype=np.int32))
    return pa.Array.from_buffers(pa.list_(values.type), 1, [None, offsets], children=[values])


def _ranges(place: int, tuples: npt.NDArray[Any]) -> list[dict[str, Any]]:
    """Tuples of an input, in the order in which they came, batch by batch."""
    starts = np.flatnonzero(np.diff(tuples["batch"], prepend=-1))
    found = []
    for mine in np.split(tuples, starts[1:]) if len(tuples) else ():
        first, last = int(mine["place"][0]), int(mine["place"][-1])
        bits = None
        if last - first >= len(mine):
            waits = np.zeros(last - first + 1, dtype=np.uint8)
            waits[mine["place"] - first] = 1
            bits = np.packbits(waits, bitorder="little").tobytes()
        parts = (place, mine["batch"][0], first, len(mine), mine["position"][0])
        found.append({**dict(zip(_PARTS, map(int, parts), strict=True)), _BITS: bits})
    return found
