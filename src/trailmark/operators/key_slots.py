"""A table of keys beside a state that is not cut by keys: it gives each of them a number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.library import address, kernel, reference
from trailmark.operators.row_blocks import Numbers
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable, TableLayout

#: What is known of a key: its newest tuple of each side, for those who chain tuples by key.
CHAINS = np.dtype([("left", "<u4"), ("right", "<u4")])


class KeySlots(StateTable):
    """Numbers of keys, from 1 on. A number is that of its key until it is released."""

    def __init__(self, keys: KeyLayout, memory: Memory, *, is_new: bool) -> None:
        super().__init__(TableLayout(keys, CHAINS), memory, is_new=is_new, name="keys-")

    def slots_of(
        self, rows: pa.RecordBatch, is_left_out: npt.NDArray[np.bool_] | None, *, adds: bool
    ) -> Numbers:
        """The numbers of the keys of rows; 0 for those that are left out, and without ``adds`` for
        keys that nobody has."""
        encoded = self.encode_keys(rows)
        slots = np.empty(encoded.count, dtype=np.int64)
        need = np.zeros(1, dtype=np.int32)
        done = 0
        while done < encoded.count:
            done = kernel.tm_join_keys(
                self.structure,
                reference(encoded.structure),
                None if is_left_out is None else address(is_left_out),
                int(adds),
                done,
                address(slots),
                address(need),
            )
            if need[0]:
                self.make_room(int(need[0]))
        return slots

    def release(self, slots: npt.NDArray[np.uint32]) -> None:
        """Gives back the numbers of keys that have no tuple in a chain."""
        kernel.tm_join_release(self.structure, address(slots), len(slots))
