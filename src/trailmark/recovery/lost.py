"""What a recovery has lost, where that is accepted: counted, and said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trailmark import units
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Lost:
    """What is missing from a state that was loaded and not brought up to date.

    Attributes
    ----------
    batches, tuples
        Batches after the oldest footprint that is needed, and the input tuples in them: at most so
        many are missing from the windows that were loaded, and from those that had no footprint
        yet. Timers and the like that were called in these batches are not known to have been.
    is_estimate
        Whether the footers that would tell are damaged or gone, so that the tuples are those of
        the time that has passed, at the rate of the time before.
    windows
        Windows that were open and are not any more, at most; None if the newest footer is damaged,
        which alone says how many were open.
    doubtful
        Windows that were loaded from before a damaged segment: they may have closed in it.
    footprints
        Footprints in damaged segments whose footers can be read.
    """

    batches: int
    tuples: int
    is_estimate: bool = False
    windows: int | None = 0
    doubtful: int = 0
    footprints: int = 0

    @property
    def is_nothing(self) -> bool:
        """A batch without tuples may have called timers, so the tuples alone do not tell."""
        return not (self.batches or self.windows is None or self.windows or self.doubtful)

    def describe(self) -> dict[str, Any]:
        """As it is logged, and shown to scripts."""
        return asdict(self)

    @classmethod
    def from_attributes(cls, stored: object) -> Lost | None:
        """What the footer of the next batch says; None if it says nothing. Footers of other
        versions may say less."""
        if not isinstance(stored, Mapping):
            return None
        windows = stored.get("windows", 0)
        return cls(
            _count(stored.get("batches")),
            _count(stored.get("tuples")),
            stored.get("is_estimate") is True,
            None if windows is None else _count(windows),
            _count(stored.get("doubtful")),
            _count(stored.get("footprints")),
        )

    def __str__(self) -> str:
        if self.is_nothing:
            return "nothing"
        about = ", by an estimate" if self.is_estimate else ""
        tuples, batches = units.some(self.tuples, "tuple"), units.some(self.batches, "batch")
        parts = [f"at most {tuples} of {batches}{about}"]
        if self.windows is None:
            parts.append("windows that the damaged newest segment opened")
        elif self.windows:
            parts.append(f"at most {units.some(self.windows, 'window')}")
        if self.footprints:
            parts.append(f"{units.some(self.footprints, 'footprint')} in damaged segments")
        if self.doubtful:
            back = units.some(self.doubtful, "window")
            parts.append(f"and {back} may be back that had closed in one")
        return ", ".join(parts)


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
