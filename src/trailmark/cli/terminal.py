"""What a terminal can do that a file cannot: colours, and lines that are drawn again."""

from __future__ import annotations

import os
import shutil
from typing import Literal, TextIO, TypeAlias

Style: TypeAlias = Literal["plain", "bold", "dim", "good", "warning", "bad"]

_CODES: dict[Style, str] = {
    "bold": "1",
    "dim": "2",
    "good": "32",
    "warning": "33",
    "bad": "31",
}
_HOME, _CLEAR, _TO_END_OF_LINE, _TO_END = "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J"


class Paint:
    """Colours text where that is wanted: on a terminal, unless NO_COLOR is set."""

    def __init__(self, stream: TextIO) -> None:
        no_color = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._is_on = stream.isatty() and not no_color

    def __call__(self, text: str, style: Style) -> str:
        code = _CODES.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_on and code is not None else text


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
            self._stream.write(f"\r{text[:width]}{_TO_END_OF_LINE}")
            self._stream.flush()

    def clear(self) -> None:
        self.show("")
        if self._is_live:
            self._stream.write("\r")
            self._stream.flush()
