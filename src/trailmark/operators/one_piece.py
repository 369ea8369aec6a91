"""A state that is one piece: it opens with the first batch, and stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trailmark.records import NO_BATCH
from trailmark.state.memory import PAGE, Memory
from trailmark.state.table import LAST_BATCH, Slots

_HEADER = np.dtype([(name, "<i8") for name in ("is_open", "opened", "footprint")])
_ONE: Slots = np.ones(1, dtype=np.int64)
_NONE: Slots = np.empty(0, dtype=np.int64)


class OnePiece:
    """What policies and the account see of it. Implements `State`."""

    def __init__(self, memory: Memory, *, is_new: bool) -> None:
        self.memory = memory
        self._piece = memory.region("piece", PAGE)
        if is_new:
            self._header[:] = np.zeros(1, dtype=_HEADER)
            self._header["footprint"] = NO_BATCH

    @property
    def _header(self) -> npt.NDArray[Any]:
        return self._piece.view(_HEADER, 1)

    @property
    def opened(self) -> int:
        return int(self._header["opened"][0])

    @property
    def footprint(self) -> int:
        return int(self._header["footprint"][0])

    def open_at(self, batch: int, footprint: int) -> None:
        """The piece is there from now on."""
        self._header["is_open"], self._header["opened"] = 1, batch
        self._header["footprint"] = footprint

    @property
    def open_windows(self) -> int:
        return int(self._header["is_open"][0])

    def reserve_windows(self, count: int) -> None:
        """There is one at most."""

    def oldest_footprint(self) -> int | None:
        return self.footprint if self.open_windows else None

    def take_oldest(self, before: int, batch: int, most: int) -> Slots:
        slots = self.list_oldest(most, before=before)
        self.renew(slots, batch)
        return slots

    def list_oldest(
        self,
        most: int | None = None,
        *,
        before: int = LAST_BATCH + 1,
        opened_before: int = LAST_BATCH + 1,
    ) -> Slots:
        is_listed = self.open_windows and self.footprint < before and self.opened < opened_before
        return _ONE.copy() if is_listed and most != 0 else _NONE

    def renew(self, slots: Slots, batch: int) -> None:
        if len(slots):
            self._header["footprint"] = batch

    def footprints(self, slots: Slots) -> npt.NDArray[np.int64]:
        return np.full(len(slots), self.footprint, dtype=np.int64)

    def are_open(self, slots: Slots) -> npt.NDArray[np.bool_]:
        return np.full(len(slots), bool(self.open_windows))

    def forget_footprints(self) -> None:
        self._header["footprint"] = NO_BATCH
