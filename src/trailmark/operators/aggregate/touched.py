"""Which windows a batch would change or close, found without changing any."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from trailmark.kernel.library import address, kernel, reference
from trailmark.operators.protocol import BatchInput
from trailmark.state.table import Slots, StateTable
from trailmark.windows.spec import TimeWindow, Window, event_times

_FIRST_ROOM = 1024


def touched_windows(
    table: StateTable, window: Window, rows: pa.RecordBatch, given: BatchInput
) -> Slots:
    """The windows that the rows are in, and those that the watermark of the batch closes."""
    keys = table.encode_keys(rows)
    structure = reference(keys.structure)
    if not isinstance(window, TimeWindow):

        def step(done: int, room: Slots, found: int | None) -> int:
            reached: int = kernel.tm_find_keys(
                table.structure, structure, done, address(room), len(room), found
            )
            return reached

        return _distinct([_find(step, keys.count)])
    times = event_times(rows.column(window.column))

    def step_in_time(done: int, room: Slots, found: int | None) -> int:
        reached: int = kernel.tm_find_times(
            table.structure,
            structure,
            window.size,
            window.slide,
            address(times),
            done,
            address(room),
            len(room),
            found,
        )
        return reached

    return _distinct([_find(step_in_time, keys.count), _ended(table, window, given.watermark)])


def _find(step: Callable[[int, Slots, int | None], int], count: int) -> Slots:
    """Goes through the rows, with more room whenever a step stops for want of it."""
    parts: list[Slots] = []
    done, size = 0, max(_FIRST_ROOM, count)
    while done < count:
        room, found = np.empty(size, dtype=np.int64), np.zeros(1, dtype=np.int64)
        reached = step(done, room, address(found))
        parts.append(room[: found[0]])
        size = size if reached > done else 2 * size
        done = reached
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _ended(table: StateTable, window: TimeWindow, watermark: int | None) -> Slots:
    slots = np.empty(table.open_windows, dtype=np.int64)
    if watermark is None:
        return slots[:0]
    count = kernel.tm_find_ended(table.structure, window.size, watermark, address(slots))
    return slots[:count]


def _distinct(parts: list[Slots]) -> Slots:
    return np.unique(np.concatenate(parts))
