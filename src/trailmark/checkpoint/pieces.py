"""What policies and the account see of an operator's state: pieces, and how old their footprints
are."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from trailmark.state.table import Slots


class Pieces(Protocol):
    """The open pieces of a bucket's state, ordered by the age of their footprints.

    A piece is named by its slot. A footprint is named by its batch, which is NO_BATCH for a piece
    that has none.
    """

    @property
    def open_windows(self) -> int:
        """How many pieces are open."""

    def oldest_footprint(self) -> int | None:
        """The oldest footprint of any piece; None if none is open."""

    def take_oldest(self, before: int, batch: int, most: int) -> Slots:
        """Gives up to ``most`` pieces with footprints older than ``before`` the footprint ``batch``
        and returns them, oldest first."""

    def list_oldest(
        self, most: int | None = None, *, before: int = ..., opened_before: int = ...
    ) -> Slots:
        """Pieces, oldest footprint first: those with footprints older than ``before`` that opened
        before ``opened_before``."""

    def renew(self, slots: Slots, batch: int) -> None:
        """Gives pieces the footprint ``batch``."""

    def footprints(self, slots: Slots) -> npt.NDArray[np.int64]:
        """The footprints of pieces."""

    def are_open(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Which slots hold a piece that is open."""

    def forget_footprints(self) -> None:
        """Marks every piece as having none."""
