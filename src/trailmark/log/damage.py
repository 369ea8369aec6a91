"""How it is told that bytes cannot be read: the file, the byte, and why not.

They are damaged, cut short or not what was written; or they are whole, and say something that this
Trailmark does not know. Who is told of damage may go around it, never around what is unknown.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from trailmark.errors import DamagedSegment, UnknownFormat
from trailmark.values import dataclass

Finding: TypeAlias = Literal["cut short", "does not match"]

#: What to do about what is unknown.
USE_A_NEWER_ONE = "Use the Trailmark that wrote it, or a newer one."


@dataclass(frozen=True, slots=True)
class Origin:
    """Where bytes come from: a file, and how far into it they begin."""

    path: str
    start: int = 0

    def at(self, offset: int) -> str:
        """The place of a byte, as it is printed."""
        return f"{self.path}, byte {self.start + offset}"

    def moved(self, offset: int) -> Origin:
        """The origin of the bytes from an offset on."""
        return Origin(self.path, self.start + offset)

    def cut_short(self, offset: int, detail: str) -> DamagedSegment:
        """The bytes end where more are needed."""
        return self._damaged(offset, "cut short", detail)

    def mismatch(self, offset: int, detail: str) -> DamagedSegment:
        """The bytes are there, but are not those that were written."""
        return self._damaged(offset, "does not match", detail)

    def unknown(self, offset: int, what: str) -> UnknownFormat:
        """The bytes are those that were written, and mean nothing to this Trailmark."""
        return UnknownFormat(what, where=self.at(offset), fix=USE_A_NEWER_ONE)

    def _damaged(self, offset: int, finding: Finding, detail: str) -> DamagedSegment:
        verb = "is cut short" if finding == "cut short" else "does not match"
        return DamagedSegment(
            f"A file of the log {verb}: {detail}.",
            where=self.at(offset),
            fix="Run verify() to see how far the damage goes. repair() sets a damaged newest tail "
            "aside; damage elsewhere needs a copy of the file from a backup.",
        )
