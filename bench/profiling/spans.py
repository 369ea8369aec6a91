"""Exclusive times: every moment of a thread belongs to one name, that of the innermost part."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time in which one thread did one thing."""

    name: str
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def overlap(self, other: Span) -> float:
        return max(0.0, min(self.ended, other.ended) - max(self.began, other.began))


class Tracer:
    """Collects the spans of all threads while something runs.

    A part that begins inside another interrupts it, so the spans of a thread never overlap.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._threads: dict[int, _Thread] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        thread = self._threads.setdefault(threading.get_ident(), _Thread())
        thread.begin(name, self._clock())
        try:
            yield
        finally:
            thread.end(self._clock())

    def of_this_thread(self) -> list[Span]:
        found = self._threads.get(threading.get_ident())
        return [] if found is None else list(found.spans)

    def of_other_threads(self) -> list[Span]:
        mine = threading.get_ident()
        return [s for ident, t in self._threads.items() if ident != mine for s in t.spans]


@dataclass(slots=True)
class _Thread:
    """The spans of a thread so far, and the parts that it is in."""

    spans: list[Span] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    since: float = 0.0

    def begin(self, name: str, now: float) -> None:
        self._close(now)
        self.inside.append(name)

    def end(self, now: float) -> None:
        self._close(now)
        self.inside.pop()

    def _close(self, now: float) -> None:
        if self.inside:
            self.spans.append(Span(self.inside[-1], self.since, now))
        self.since = now


def totals(spans: Sequence[Span]) -> dict[str, float]:
    """Seconds by name."""
    found: dict[str, float] = {}
    for span in spans:
        found[span.name] = found.get(span.name, 0.0) + span.seconds
    return found


def explain_waits(spans: Sequence[Span], waiting: str, others: Sequence[Span]) -> dict[str, float]:
    """Seconds by name; a wait counts as what the others did in the meantime.

    What is left of it, when they did nothing that has a name, stays a wait.
    """
    found = totals([span for span in spans if span.name != waiting])
    for wait in (span for span in spans if span.name == waiting):
        left = wait.seconds
        for other in others:
            shared = wait.overlap(other)
            left -= shared
            found[other.name] = found.get(other.name, 0.0) + shared
        found[waiting] = found.get(waiting, 0.0) + left
    return found
