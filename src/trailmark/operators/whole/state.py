"""The state of a whole operator: one piece, which is the checkpoint of a user's object."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from trailmark.operators.whole.checkpoint import Checkpoint
from trailmark.records import NO_BATCH
from trailmark.state.memory import PAGE, Memory
from trailmark.state.table import LAST_BATCH, Slots
from trailmark.values import dataclass

_HEADER = np.dtype(
    [(name, "<i8") for name in ("is_open", "opened", "footprint", "form", "length", "stamp")]
)
_ONE: Slots = np.ones(1, dtype=np.int64)
_NONE: Slots = np.empty(0, dtype=np.int64)

#: Objects of this process, by the place of their checkpoints: what was restored need not be again.
_LIVE: OrderedDict[str, _Live] = OrderedDict()
_MOST_LIVE = 64


@dataclass(frozen=True, slots=True)
class _Live:
    """A user's object, and the checkpoint that it stands at."""

    stamp: int
    thing: Any


class WholeState:
    """The checkpoint of a bucket's object, and the object itself where this process has it."""

    def __init__(self, memory: Memory, *, is_new: bool) -> None:
        self.memory = memory
        self._region = memory.region("checkpoint", PAGE)
        self._thing: Any = None
        self.is_behind = False
        if is_new:
            self._header[:] = np.zeros(1, dtype=_HEADER)
            self._header["footprint"] = NO_BATCH

    @property
    def _header(self) -> npt.NDArray[Any]:
        return self._region.view(_HEADER, 1)

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

    # The object and its checkpoint

    def take_object(self) -> Any:
        """The object, if this process has it as it was left; the caller gives it back when it is
        whole again."""
        thing, self._thing = self._thing, None
        if thing is None and self.memory.directory is not None:
            live = _LIVE.pop(str(self.memory.directory), None)
            if live is not None and live.stamp == int(self._header["stamp"][0]):
                thing = live.thing
        return thing

    def give_back(self, thing: Any) -> None:
        """The object as it is after a batch. Its checkpoint is out of date from now on."""
        self._thing = thing
        self.is_behind = True

    @property
    def thing(self) -> Any:
        """The object that was given back."""
        return self._thing

    def save(self, checkpoint: Checkpoint) -> None:
        """Keeps the checkpoint of the object as it is."""
        need = _HEADER.itemsize + len(checkpoint.data)
        if need > self._region.size:
            self._region.grow(need + need // 4)
        header = self._header
        header["form"], header["length"] = checkpoint.form, len(checkpoint.data)
        header["stamp"] = secrets.randbits(62)
        first = _HEADER.itemsize
        data = np.frombuffer(checkpoint.data, dtype=np.uint8)
        self._region.bytes[first : first + len(data)] = data
        self.is_behind = False
        if self.memory.directory is not None and self._thing is not None:
            _remember(str(self.memory.directory), _Live(int(header["stamp"][0]), self._thing))

    def checkpoint(self) -> Checkpoint | None:
        """The one that was kept last; None if there is none."""
        header, first = self._header, _HEADER.itemsize
        if not header["form"][0]:
            return None
        length = int(header["length"][0])
        return Checkpoint(
            int(header["form"][0]), self._region.bytes[first : first + length].tobytes()
        )

    # Pieces

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


def _remember(place: str, live: _Live) -> None:
    _LIVE[place] = live
    _LIVE.move_to_end(place)
    while len(_LIVE) > _MOST_LIVE:
        _LIVE.popitem(last=False)
