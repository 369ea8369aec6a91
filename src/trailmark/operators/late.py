"""What becomes of tuples that come too late: they are counted, and logged if that is asked for."""

from __future__ import annotations

from typing import Literal

from trailmark.errors import SettingError

Late = Literal["drop", "keep"]


def check_late(late: object) -> None:
    if not isinstance(late, str) or late not in ("drop", "keep"):
        raise SettingError(f"late must be 'drop' or 'keep', got {late!r}.", where="late")
