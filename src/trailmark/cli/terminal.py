"""What a terminal can do that a file cannot: colours, and lines that are drawn again.

What is made here is meant for a `Guarded` stream, which is all that a command prints to.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, Literal, TextIO, TypeAlias

from trailmark.units import printable

Style: TypeAlias = Literal["plain", "bold", "dim", "good", "warning", "bad"]

_CODES: dict[Style, str] = {
    "bold": "1",
    "dim": "2",
    "good": "32",
    "warning": "33",
    "bad": "31",
}
#: Begins the escape sequences that are meant. Nobody can know it who wrote what is in a log.
_MEANT = f"\x1b{os.urandom(8).hex()}"
_HOME, _CLEAR = f"{_MEANT}[H", f"{_MEANT}[2J"
_TO_START_OF_LINE, _TO_END_OF_LINE, _TO_END = f"{_MEANT}[G", f"{_MEANT}[K", f"{_MEANT}[J"


class Guarded:
    """A stream to which only those escape sequences pass that come from this module.

    Whatever is printed may quote names and bytes from a log, and anybody may have written those.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write("\x1b".join(printable(part) for part in text.split(_MEANT)))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Paint:
    """Colours text where that is wanted: on a terminal, unless NO_COLOR is set."""

    def __init__(self, stream: TextIO) -> None:
        no_color = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._is_on = stream.isatty() and not no_color

    def __call__(self, text: str, style: Style) -> str:
        code = _CODES.get(style)
        return f"{_MEANT}[{code}m{text}{_MEANT}[0m" if self._is_on and code is not None else text


class Screen:
    """A picture that is drawn over the last one; in a file, one after another."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_live = stream.isatty()
        self._is_first = True

    def draw(self, lines: list[str]) -> None:
        """Shows the lines in place of those before."""
        if self._is_live:
            text = "".join(f"{line}{_TO_END_OF_LINE}\n" for line in self._that_fit(lines))
            text = f"{_CLEAR if self._is_first else ''}{_HOME}{text}{_TO_END}"
        else:
            text = ("" if self._is_first else "\n") + "".join(f"{line}\n" for line in lines)
        self._is_first = False
        self._stream.write(text)
        self._stream.flush()

    def _that_fit(self, lines: list[str]) -> list[str]:
        room = shutil.get_terminal_size().lines - 1
        if len(lines) <= room:
            return lines
        return [*lines[: room - 1], f"... {len(lines) - room + 1} more lines"]


class Passing:
    """One line on a terminal that the next one replaces; nothing anywhere else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_live = stream.isatty()

    def show(self, text: str) -> None:
        if self._is_live:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"{_TO_START_OF_LINE}{text[:width]}{_TO_END_OF_LINE}")
            self._stream.flush()

    def clear(self) -> None:
        self.show("")
        if self._is_live:
            self._stream.write(_TO_START_OF_LINE)
            self._stream.flush()
