"""The state of a whole operator: one piece, which is the checkpoint of a user's object."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from trailmark.operators.one_piece import OnePiece
from trailmark.operators.whole.checkpoint import Checkpoint
from trailmark.state.memory import PAGE, Memory
from trailmark.values import dataclass

_HEADER = np.dtype([(name, "<i8") for name in ("form", "length", "stamp")])

#: Objects of this process, by the place of their checkpoints: what was restored need not be again.
_LIVE: OrderedDict[str, _Live] = OrderedDict()
_MOST_LIVE = 64


@dataclass(frozen=True, slots=True)
class _Live:
    """A user's object, and the checkpoint that it stands at."""

    stamp: int
    thing: Any


class WholeState(OnePiece):
    """The checkpoint of a bucket's object, and the object itself where this process has it."""

    def __init__(self, memory: Memory, *, is_new: bool) -> None:
        super().__init__(memory, is_new=is_new)
        self._region = memory.region("checkpoint", PAGE)
        self._thing: Any = None
        self.is_behind = False
        if is_new:
            self._stored[:] = np.zeros(1, dtype=_HEADER)

    @property
    def _stored(self) -> npt.NDArray[Any]:
        """What is known of the checkpoint, before its bytes."""
        return self._region.view(_HEADER, 1)

    # The object and its checkpoint

    def take_object(self) -> Any:
        """The object, if this process has it as it was left; the caller gives it back when it is
        whole again."""
        thing, self._thing = self._thing, None
        if thing is None and self.memory.directory is not None:
            live = _LIVE.pop(str(self.memory.directory), None)
            if live is not None and live.stamp == int(self._stored["stamp"][0]):
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
        header = self._stored
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
        header, first = self._stored, _HEADER.itemsize
        if not header["form"][0]:
            return None
        length = int(header["length"][0])
        return Checkpoint(
            int(header["form"][0]), self._region.bytes[first : first + length].tobytes()
        )


def _remember(place: str, live: _Live) -> None:
    _LIVE[place] = live
    _LIVE.move_to_end(place)
    while len(_LIVE) > _MOST_LIVE:
        _LIVE.popitem(last=False)
