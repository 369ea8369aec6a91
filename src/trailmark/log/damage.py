"""How damage is reported: the file, the byte, and whether it is cut short or does not match."""

from __future__ import annotations

from typing import Literal, TypeAlias

from trailmark.errors import DamagedSegment
from trailmark.values import dataclass

Finding: TypeAlias = Literal["cut short", "does not match"]


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

    def _damaged(self, offset: int, finding: Finding, detail: str) -> DamagedSegment:
        verb = "is cut short" if finding == "cut short" else "does not match"
        return DamagedSegment(
            f"A file of the log {verb}: {detail}.",
            where=self.at(offset),
            fix="Run verify() to see how far the damage goes. repair() sets a damaged newest tail "
            "aside; damage elsewhere needs a copy of the file from a backup.",
        )
