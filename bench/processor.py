"""How much of a processor processes take, from Linux's own accounts."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

_PROCESSES = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


def share_of_a_core(process: int, seconds: float) -> float:
    """What a process and all that it has started take in the next seconds: 1 is a whole core."""
    before, began = processor_s(process), time.monotonic()
    time.sleep(seconds)
    return taken_s(before, processor_s(process)) / (time.monotonic() - began)


def taken_s(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """What the processes have had meanwhile that are there now. Of those that have ended nobody
    knows: not all who start some ask for what they took."""
    return sum(seconds - before.get(number, 0.0) for number, seconds in after.items())


def processor_s(process: int, processes: Path = _PROCESSES) -> dict[int, float]:
    """Seconds that a process has had so far, and each of those that come from it."""
    found = dict(filter(None, map(_read, processes.glob("[0-9]*/stat"))))
    return {
        number: ticks / _TICKS
        for number, (_, ticks) in found.items()
        if _is_of(number, process, found)
    }


def _read(stat: Path) -> tuple[int, tuple[int, int]] | None:
    """A process, who started it, and its ticks; None if it has ended."""
    try:
        text = stat.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # A name may hold anything, brackets and blanks too.
    fields = text[text.rindex(")") + 2 :].split()
    return int(stat.parent.name), (int(fields[1]), int(fields[11]) + int(fields[12]))


def _is_of(number: int, process: int, found: Mapping[int, tuple[int, int]]) -> bool:
    """Whether a process is another one, or comes from it."""
    while number != process:
        if number not in found:
            return False
        number, _ = found[number]
    return True
