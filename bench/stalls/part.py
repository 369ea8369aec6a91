"""A part of the experiment: what it measures, and what the page shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from matplotlib.figure import Figure

from bench.experiment import Effort, Note, Raw, Repetition, Section
from bench.stalls.life import Stalled
from trailmark.streams.union.answering import Answering, OnCorrection, OnFailure

#: What becomes of new tuples during a failure, and while it is corrected.
Choice = tuple[OnFailure, OnCorrection]
CHOICES: tuple[Choice, ...] = (
    ("process", "process"),
    ("process", "delay"),
    ("process", "suspend"),
    ("delay", "process"),
    ("delay", "delay"),
    ("delay", "suspend"),
)
BOUND_S = 3
#: Tuples a second of the paper's experiments, and the times as many that are tried beside them.
RATE, FAST = 4_500, 100
_SECOND = 1_000_000


class Part(Protocol):
    """A module of `bench.stalls` whose repetitions are told from those of others by ``what``."""

    def measure(self, effort: Effort, note: Note) -> list[Repetition]: ...

    def show(self, raw: Raw) -> Section | None:
        """None if it has not been measured."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A failure, and how it is answered."""

    rate: int
    failure_s: float
    choice: Choice = CHOICES[0]
    bound_s: float = BOUND_S
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answering(self) -> Answering:
        return Answering(round(self.bound_s * _SECOND), *self.choice)

    def repetition(self, what: str, found: Stalled) -> Repetition:
        return {
            "what": what,
            "rate": self.rate,
            "failure_s": self.failure_s,
            "bound_s": self.bound_s,
            "on_failure": self.choice[0],
            "on_correction": self.choice[1],
            **self.more,
            "longest_s": round(found.longest_s, 3),
            "tentative_tuples": found.tentative_tuples,
            "corrected_s": round(found.corrected_s, 3),
        }


def named(choice: Choice) -> str:
    """As rows and curves have it."""
    return f"{choice[0]} & {choice[1]}"


def cell(one: Repetition) -> str:
    """The longest wait, and how many tuples were tentative."""
    return f"{one['longest_s']:.1f} s / {one['tentative_tuples']:,}"


def two_axes() -> tuple[Figure, Any, Any]:
    """A picture with room for two curves side by side."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    return figure, left, right
