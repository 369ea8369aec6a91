"""Traps that a test lays for code that runs in the workers of Spark."""

from __future__ import annotations

import os
import time

#: A task that is held longer than this was forgotten by its test.
_LONGEST_HOLD_S = 90.0


def meet_traps(directory: str) -> None:
    """A trap is a file. Who renames it is caught, and nobody else; the new name says who it is.

    ``raise`` makes the task fail. ``hold`` keeps it where it is until the file is removed. Only
    ``refuse`` stays where it is and makes every task fail.
    """
    if os.path.exists(f"{directory}/refuse"):
        raise RuntimeError("fails always, for a test")
    for kind in ("raise", "hold"):
        mine = f"{directory}/{kind}.{os.getpid()}"
        try:
            os.rename(f"{directory}/{kind}", mine)
        except FileNotFoundError:
            continue
        if kind == "raise":
            raise RuntimeError("fails once, for a test")
        until = time.monotonic() + _LONGEST_HOLD_S
        while os.path.exists(mine) and time.monotonic() < until:
            time.sleep(0.01)
