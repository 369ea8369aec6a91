"""A union of streams, one row at a time: slow, and obviously right."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tests.support.promises import PlainPromises
from trailmark.streams.promises import has_ended

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
    batches: int = 0

    def commit(
        self,
        writer: str | None,
        rows: Sequence[tuple[int | None, int]],
        delay: int | None,
        released: int | None,
    ) -> None:
        """A batch. What the union has released already can only be late."""
        self.batches += 1
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
class PlainIdleness:
    """Streams that promise nothing, and which of them have had no batch for so long; None for none.

    ``moved`` is how many batches each had, and when a look first saw them; ``passed`` how far the
    others have come meanwhile, which stays even if they fall idle, too.
    """

    inputs: list[PlainInput]
    after: int | None
    moved: dict[int, tuple[int, int]] = field(default_factory=dict)
    passed: dict[int, int] = field(default_factory=dict)
    now: int = 0

    def look(self, now: int, away: Collection[int] = ()) -> None:
        """Streams that do not answer have their time anew when they do."""
        self.now = now
        for place, each in enumerate(self.inputs):
            if place in away:
                self.moved.pop(place, None)
            elif self.moved.get(place, (-1, 0))[0] != each.batches:
                self.moved[place] = each.batches, now
        for place in [*self.passed]:
            if place not in self.silent:
                del self.passed[place]

    @property
    def silent(self) -> set[int]:
        """Those that have been so for long enough."""
        return {
            place
            for place, (_, since) in self.moved.items()
            if self.after is not None and self.now - since >= self.after
            if not self.inputs[place].promises.is_told
        }

    def idle(self, boundaries: Sequence[int | None]) -> set[int]:
        """Those that nobody waits for, if there are others that may still go on."""
        going_on = [n for n, each in enumerate(boundaries) if not has_ended(each)]
        return self.silent if set(going_on) - self.silent else set()

    def go_on(self, boundaries: Sequence[int | None]) -> None:
        """The others, if all of them say so, are complete up to some time without them."""
        places = range(len(boundaries))
        others = [boundaries[n] for n in places if n not in self.silent]
        others = [each for each in others if not has_ended(each)]
        if others and None not in others:
            least = min(each for each in others if each is not None)
            for place in self.silent:
                self.passed[place] = max(least, self.passed.get(place, least))

    def lifted(self, boundaries: Sequence[int | None]) -> list[int | None]:
        """The boundaries that count."""
        found: list[int | None] = []
        for place, own in enumerate(boundaries):
            known = [each for each in (own, self.passed.get(place)) if each is not None]
            found.append(max(known, default=None))
        return found


@dataclass
class PlainUnion:
    """Streams in their order, and up to which time their rows are released."""

    inputs: list[PlainInput]
    interval: int
    released: int | None = None

    def look(self, idleness: PlainIdleness) -> None:
        """Release what can be released."""
        own = [each.boundary for each in self.inputs]
        slices = [None if each is None else each // self.interval * self.interval for each in own]
        idleness.go_on(slices)
        boundaries = idleness.lifted(slices)
        known = [each for each in boundaries if each is not None]
        if len(known) == len(boundaries):
            end = min(known)
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
