"""What is printed, without orders to a terminal."""

from __future__ import annotations

from typing import Any, TextIO

from trailmark.units import printable


class Guarded:
    """A stream that passes no orders on to a terminal.

    Whatever is printed may quote names and bytes from a log, and anybody may have written those.
    """

    def __init__(self, stream: TextIO) -> None:
        self.bare = stream

    def write(self, text: str) -> int:
        self.bare.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)
