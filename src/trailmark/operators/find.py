"""Finds pieces by keys, without changing any."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trailmark.kernel.library import address, kernel, reference
from trailmark.state.keys import EncodedKeys
from trailmark.state.table import Slots, StateTable

_FIRST_ROOM = 1024


def slots_of_keys(table: StateTable, keys: EncodedKeys) -> Slots:
    """All pieces of some keys, a key as often as it comes."""

    def step(done: int, room: Slots, found: int | None) -> int:
        reached: int = kernel.tm_find_keys(
            table.structure, reference(keys.structure), done, address(room), len(room), found
        )
        return reached

    return find_slots(step, keys.count)


def find_slots(step: Callable[[int, Slots, int | None], int], count: int) -> Slots:
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
