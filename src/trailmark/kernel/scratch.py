"""Working memory that is used again by the next batch.

Fresh memory costs a page fault for every 4 KiB, which in a virtual machine is as much as the work a
batch does in it.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

#: Larger arrays are not kept: rare batches should not hold memory for ever.
_MOST_BYTES = 64 << 20


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[str, npt.NDArray[np.uint8]] = {}


_buffers = _Buffers()


def scratch(name: str, count: int, dtype: Any) -> npt.NDArray[Any]:
    """An array of arbitrary content, valid until this thread asks for the same name again."""
    kind = np.dtype(dtype)
    size = count * kind.itemsize
    if size > _MOST_BYTES:
        return np.empty(count, dtype=kind)
    buffer = _buffers.by_name.get(name)
    if buffer is None or len(buffer) < size:
        buffer = np.empty(max(size, 4096), dtype=np.uint8)
        _buffers.by_name[name] = buffer
    return buffer[:size].view(kind)
