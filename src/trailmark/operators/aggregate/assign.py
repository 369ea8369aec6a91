"""Which tuples of a batch go to which windows: drives the window kernels over the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trailmark.kernel.library import (
    NEED_PAIRS,
    CountWindows,
    Pairs,
    TimeWindows,
    address,
    kernel,
    reference,
)
from trailmark.kernel.scratch import scratch
from trailmark.operators.met_windows import BatchWindows
from trailmark.operators.protocol import BatchInput
from trailmark.state.keys import EncodedKeys
from trailmark.state.table import StateTable
from trailmark.windows.bound import Assignment
from trailmark.windows.spec import CountWindow, TimeWindow

#: Pairs of tuple and window worked on at a time, where windows overlap.
_PAIRS = 1 << 21
_NEVER, _ALWAYS = -(1 << 63), (1 << 63) - 1


def assign_disjoint(
    table: StateTable,
    windows: BatchWindows,
    keys: EncodedKeys,
    spec: CountWindow,
    given: BatchInput,
    is_replay: bool,
    where: str,
) -> Iterator[Assignment]:
    """At most one window per tuple."""
    window = scratch("window of each tuple", keys.count, np.int32)
    need = np.zeros(1, dtype=np.int32)
    settings = CountWindows(spec.size, spec.slide, given.batch, is_replay, given.footprint)
    done = 0
    while done < keys.count:
        done = kernel.tm_disjoint_count(
            table.structure,
            reference(keys.structure),
            reference(settings),
            done,
            windows.structure,
            address(window),
            address(need),
        )
        if need[0]:
            windows.make_room(int(need[0]), where)
    yield Assignment(None, window)


class _PairBuffer:
    def __init__(self, rows: int, per_row: int) -> None:
        capacity = max(min(rows * per_row, _PAIRS), 2 * per_row)
        self._row = scratch("tuple of each pair", capacity, np.int32)
        self._window = scratch("window of each pair", capacity, np.int32)
        self.pairs = Pairs(address(self._row), address(self._window), capacity, 0)

    def take(self) -> Assignment:
        count = self.pairs.count
        self.pairs.count = 0
        return Assignment(self._row[:count], self._window[:count])


def assign_overlapping(
    table: StateTable,
    windows: BatchWindows,
    keys: EncodedKeys,
    spec: CountWindow,
    given: BatchInput,
    is_replay: bool,
    where: str,
) -> Iterator[Assignment]:
    """Every open window of the key takes the tuple."""
    buffer = _PairBuffer(keys.count, -(-spec.size // spec.slide) + 1)
    settings = CountWindows(spec.size, spec.slide, given.batch, is_replay, given.footprint)

    def step(done: int, need: int | None) -> int:
        reached: int = kernel.tm_overlapping_count(
            table.structure,
            reference(keys.structure),
            reference(settings),
            done,
            windows.structure,
            reference(buffer.pairs),
            need,
        )
        return reached

    yield from _in_steps(step, keys.count, windows, buffer, where)


def _in_steps(
    step: Callable[[int, int | None], int],
    count: int,
    windows: BatchWindows,
    buffer: _PairBuffer,
    where: str,
) -> Iterator[Assignment]:
    """Goes through the tuples, handing over the pairs and making room whenever a step stops."""
    need = np.zeros(1, dtype=np.int32)
    done = 0
    while done < count:
        done = step(done, address(need))
        if need[0] & NEED_PAIRS:
            yield buffer.take()
        if need[0] & ~NEED_PAIRS:
            windows.make_room(int(need[0]) & ~NEED_PAIRS, where)
    yield buffer.take()


class TimeAssignment:
    """Windows by event time; afterwards ``is_late`` and ``late_updates`` tell what was left out."""

    def __init__(self, count: int) -> None:
        self.is_late = np.zeros(count, dtype=np.uint8)
        self._late_updates = np.zeros(1, dtype=np.int64)

    @property
    def late_updates(self) -> int:
        return int(self._late_updates[0])

    def assign(
        self,
        table: StateTable,
        windows: BatchWindows,
        keys: EncodedKeys,
        spec: TimeWindow,
        times: npt.NDArray[np.int64],
        given: BatchInput,
        is_replay: bool,
        where: str,
    ) -> Iterator[Assignment]:
        buffer = _PairBuffer(keys.count, -(-spec.size // spec.slide))
        late = _NEVER if given.late_before is None else given.late_before
        settings = TimeWindows(spec.size, spec.slide, given.batch, is_replay, given.footprint, late)

        def step(done: int, need: int | None) -> int:
            reached: int = kernel.tm_time_pairs(
                table.structure,
                reference(keys.structure),
                reference(settings),
                address(times),
                done,
                windows.structure,
                reference(buffer.pairs),
                address(self.is_late),
                address(self._late_updates),
                need,
            )
            return reached

        yield from _in_steps(step, keys.count, windows, buffer, where)


def close_ended(table: StateTable, windows: BatchWindows, spec: TimeWindow, watermark: int) -> None:
    """Closes every window that ends at or before the watermark, earliest start first."""
    due = np.sort(_due_starts(table, spec, watermark))
    done = 0
    while done < len(due):
        rest = np.ascontiguousarray(due[done:])
        done += kernel.tm_close_starts(table.structure, address(rest), len(rest), windows.structure)
        if done < len(due):
            windows.grow()


def first_end(table: StateTable, spec: TimeWindow) -> int | None:
    """When the first of the open windows ends; None if none is open."""
    starts = _due_starts(table, spec, _ALWAYS)
    return int(starts.min()) + spec.size if len(starts) else None


def _due_starts(table: StateTable, spec: TimeWindow, watermark: int) -> npt.NDArray[np.int64]:
    """Starts of the windows that end at or before the watermark."""
    header: Any = table.header
    due = np.empty(header.starts_used, dtype=np.int64)
    count = kernel.tm_due_starts(table.structure, spec.size, watermark, address(due), len(due))
    return due[:count]
