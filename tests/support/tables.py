"""Tables made to fail early: regions no larger than asked for, and capacities that grow at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from trailmark.kernel import scratch as scratch_module
from trailmark.kernel.library import SLOT_HEADER, address
from trailmark.operators.aggregate import assign
from trailmark.operators.join import waiting
from trailmark.state import table as table_module
from trailmark.state.memory import Memory, Region
from trailmark.state.table import StateTable


class ExactRegion(Region):
    """Allocated bytes without a page's slack: an address sanitizer sees every step outside."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, dtype=np.uint8)
        self.size = size

    def grow(self, size: int) -> None:
        if size > self.size:
            before = self.bytes
            self.bytes = np.zeros(size, dtype=np.uint8)
            self.bytes[: len(before)] = before
            self.size = size

    @property
    def address(self) -> int:
        return address(self.bytes) or 0

    def view(self, dtype: Any, count: int, offset: int = 0) -> npt.NDArray[Any]:
        return np.frombuffer(self.bytes, dtype=dtype, count=count, offset=offset)

    def close(self) -> None:
        pass


class ExactMemory(Memory):
    def region(self, name: str, size: int) -> Region:
        region = ExactRegion(size)
        self._regions.append(region)
        return region


def footprint_ages(table: StateTable) -> list[int]:
    """The batch of every open window's footprint, in the table's order."""
    capacity, stride = table.header.slot_capacity, table.layout.stride
    headers: npt.NDArray[Any] = np.ndarray(
        capacity, SLOT_HEADER, buffer=table._slots.bytes.data, strides=(stride,)
    )
    return [int(age) for age in headers["footprint"][table.slots() - 1]]


@contextmanager
def cramped() -> Iterator[None]:
    """Tables begin with room for next to nothing, pairs are handed over a few at a time, and
    working memory is no larger than asked for."""
    first: dict[str, Any] = {
        "_FIRST_SLOTS": 1,
        "_FIRST_INDEX": 2,
        "_FIRST_HEAP": 64,
        "_FIRST_STARTS": 2,
    }
    with (
        mock.patch.multiple(table_module, **first),
        mock.patch.object(assign, "_PAIRS", 1),
        mock.patch.object(waiting, "_SPARE", 1 << 62),
        mock.patch.object(scratch_module, "_MOST_BYTES", -1),
    ):
        yield


def memory_bytes(memory: Memory) -> list[bytes]:
    """All that a memory holds."""
    return [region.bytes.tobytes() for region in memory._regions]
