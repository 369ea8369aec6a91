"""Bytes as a sequence of choices: a fuzzer that changes the bytes changes what is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Thing = TypeVar("Thing")


class Choices:
    """Takes the bytes in order; at their end every choice is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def bytes(self, count: int) -> bytes:
        """The next bytes, zeros where there are none left."""
        found = self._data[self._at : self._at + count]
        self._at += count
        return found.ljust(count, b"\0")

    def below(self, limit: int) -> int:
        """A number from 0 to before the limit."""
        if limit <= 1:
            return 0
        width = 1 if limit <= 256 else 2 if limit <= 65536 else 4
        return int.from_bytes(self.bytes(width), "little") % limit

    def one_of(self, things: Sequence[Thing]) -> Thing:
        """One of these."""
        return things[self.below(len(things))]

    @property
    def are_left(self) -> bool:
        """Whether any bytes are left."""
        return self._at < len(self._data)
