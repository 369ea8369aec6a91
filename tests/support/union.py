"""A union of streams, one row at a time: slow, and obviously right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.promises import PlainPromises

#: Time, place of the input, and what it is.
UnionRow = tuple[int, int, int]


@dataclass
class PlainInput:
    """A stream: what its writers promise, and its rows in the order in which they were committed.

    ``delay`` is about streams of which nobody promises anything.
    """

    delay: int
    promises: PlainPromises = field(default_factory=PlainPromises)
    in_time: list[tuple[int, int]] = field(default_factory=list)
    late_rows: int = 0
    latest: int | None = None

    def commit(
        self,
        writer: str | None,
        rows: Sequence[tuple[int | None, int]],
        delay: int | None,
        released: int | None,
    ) -> None:
        """A batch. What the union has released already can only be late."""
        limits = self.promises.limits(writer, delay)
        for time, value in rows:
            if time is None:
                continue
            if any(limit is not None and time < limit for limit in [*limits, released]):
                self.late_rows += 1
            else:
                self.in_time.append((time, value))
        self.promises.commit(writer, [time for time, _ in rows], delay)
        times = [time for time, _ in rows if time is not None]
        self.latest = max([*times, *([] if self.latest is None else [self.latest])], default=None)

    @property
    def boundary(self) -> int | None:
        """Up to which time it is complete."""
        if self.promises.is_told:
            return self.promises.stream
        return None if self.latest is None else self.latest - self.delay


@dataclass
class PlainUnion:
    """Streams in their order, and up to which time their rows are released."""

    inputs: list[PlainInput]
    interval: int
    released: int | None = None

    def look(self) -> None:
        """Release what can be released."""
        boundaries = [each.boundary for each in self.inputs]
        known = [each for each in boundaries if each is not None]
        if len(known) == len(boundaries):
            end = min(known) // self.interval * self.interval
            if self.released is None or end > self.released:
                self.released = end

    def rows(self) -> list[UnionRow]:
        """All that is released, in order."""
        released = self.released
        if released is None:
            return []
        found = [
            (time, place, value)
            for place, each in enumerate(self.inputs)
            for time, value in each.in_time
            if time < released
        ]
        return sorted(found, key=lambda row: row[:2])  # and those of an input as they came
