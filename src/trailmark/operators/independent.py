"""What operators have in common whose pieces are loaded and brought up to date one by one."""

from __future__ import annotations

from typing import Any


class IndependentPieces:
    """No piece has to wait for the others of its state."""

    group_size: int | None = None

    def settle(self, state: Any, missed: int = 0) -> None:
        """There is nothing left to do when all of them are there."""
