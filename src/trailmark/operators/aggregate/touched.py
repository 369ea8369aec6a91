"""Which windows a batch would change or close, found without changing any."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trailmark.kernel.library import address, kernel, reference
from trailmark.operators.find import find_slots, slots_of_keys
from trailmark.operators.protocol import BatchInput
from trailmark.state.table import Slots, StateTable
from trailmark.windows.spec import TimeWindow, Window, event_times


def touched_windows(
    table: StateTable, window: Window, rows: pa.RecordBatch, given: BatchInput
) -> Slots:
    """The windows that the rows are in, and those that the watermark of the batch closes."""
    keys = table.encode_keys(rows)
    structure = reference(keys.structure)
    if not isinstance(window, TimeWindow):
        return np.unique(slots_of_keys(table, keys))
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

    met = find_slots(step_in_time, keys.count)
    return np.unique(np.concatenate([met, _ended(table, window, given.watermark)]))


def _ended(table: StateTable, window: TimeWindow, watermark: int | None) -> Slots:
    slots = np.empty(table.open_windows, dtype=np.int64)
    if watermark is None:
        return slots[:0]
    count = kernel.tm_find_ended(table.structure, window.size, watermark, address(slots))
    return slots[:count]
