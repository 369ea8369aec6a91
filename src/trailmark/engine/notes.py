"""What a bucket remembers from batch to batch beside its table and its account."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from trailmark.checkpoint.account import MOST_EXCESS
from trailmark.checkpoint.chooser import Chooser
from trailmark.checkpoint.noted import Bounds, Fields, Noted, number, or_none, read_batch, read_flag
from trailmark.log.json_text import shown, whole
from trailmark.values import dataclass

#: The longest time without a rehearsal, however long the last seems to have taken: clocks leap.
LONGEST_PAUSE_US = 3_600 * 1e6


def _read_due_time(value: object, bounds: Bounds) -> float:
    return number(value, 0.0, bounds.now_us + LONGEST_PAUSE_US)


def _read_link(value: object, bounds: Bounds) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{shown(value)} names no segment")
    return read_batch(value[0], bounds), whole(value[1], 0, 2**32 - 1)


def _read_excess(value: object, bounds: Bounds) -> int:
    return whole(value, 0, MOST_EXCESS)


@dataclass(slots=True)
class BucketNotes(Noted):
    """Nothing in it changes results: it is about costs.

    Attributes
    ----------
    chooser
        The policy at work.
    has_warned
        Whether somebody was told that the policy's targets are out of reach.
    rehearse_after_us
        When loading may be rehearsed again, by a clock that never goes back.
    pending
        Batch and checksum of the output segment that a snapshot is being written after.
    pending_excess
        What the records of that snapshot weigh beyond one each.
    """

    chooser: Chooser = field(default_factory=Chooser)
    has_warned: bool = False
    rehearse_after_us: float | None = None
    pending: tuple[int, int] | None = None
    pending_excess: int = 0

    FIELDS: ClassVar[Fields] = {
        "has_warned": read_flag,
        "rehearse_after_us": or_none(_read_due_time),
        "pending": or_none(_read_link),
        "pending_excess": _read_excess,
    }
    PARTS = ("chooser",)
