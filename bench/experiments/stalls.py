"""Answers while a stream is missing: how long they take, how many are tentative, and what it costs
to be ready for that."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import ModuleType
from typing import cast

from matplotlib.figure import Figure

from bench.experiment import Effort, Measured, Note, Raw, Repetition, Section, table
from bench.stalls import boundaries, chained, on_spark, reconciling
from bench.stalls.life import Life
from bench.stalls.part import BOUND_S, CHOICES, FAST, RATE, Asked, Part, cell, named, two_axes

NAME = "stalls"
TITLE = "Answers while a stream is missing"

_MODULES: tuple[ModuleType, ...] = (chained, reconciling, boundaries, on_spark)
_PARTS = tuple(cast(Part, module) for module in _MODULES)
_FAILURES_S = ((2, 5, 15), (2, 5, 10, 15, 30, 60))
_FAST_FAILURES_S = ((15,), (5, 15, 60))
#: The second of the paper's experiments: a failure of 5 s at 3,000 tuples a second, by the bound.
_BOUNDS_RATE, _BOUNDS_FAILURE_S = 3_000, 5
_BOUNDS_S = ((0.5, 2, 4, 6), (0.5, 1, 2, 3, 4, 5, 6))


def measure(effort: Effort, note: Note) -> Measured:
    logging.getLogger("trailmark").setLevel(logging.ERROR)  # that something is missing is the point
    failures_s, bounds_s = effort.pick(*_FAILURES_S), effort.pick(*_BOUNDS_S)
    repetitions = [
        *_failures("failures", RATE, failures_s, note),
        *_failures("fast", RATE * FAST, effort.pick(*_FAST_FAILURES_S), note),
        *_bounds("bounds", _BOUNDS_RATE, bounds_s, note),
        *_bounds("fast bounds", _BOUNDS_RATE * FAST, bounds_s, note),
    ]
    for part in _PARTS:
        repetitions += part.measure(effort, note)
    settings = {
        "bound_s": BOUND_S,
        "rate": RATE,
        "failures_s": failures_s,
        "waits_s": bounds_s,
        "interval_ms": 100,
        "commit_ms": 100,
    }
    return Measured(settings, 0, repetitions)


def _failures(what: str, rate: int, lengths_s: Sequence[int], note: Note) -> list[Repetition]:
    found = []
    for choice in CHOICES:
        note(f"{named(choice)}: failures of {lengths_s[0]} to {lengths_s[-1]} s at {rate:,}/s")
        for failure_s in lengths_s:
            asked = Asked(rate, failure_s, choice)
            found.append(asked.repetition(what, Life(rate, asked.answering).run(failure_s)))
    return found


def _bounds(what: str, rate: int, waits_s: Sequence[float], note: Note) -> list[Repetition]:
    found = []
    for choice in (CHOICES[0], CHOICES[3]):
        note(f"{named(choice)}: bounds of {waits_s[0]} to {waits_s[-1]} s at {rate:,}/s")
        for wait_s in waits_s:
            # In the paper it is the wait that goes from 0.5 to 6 s.
            asked = Asked(rate, _BOUNDS_FAILURE_S, choice, wait_s / 0.9)
            found.append(asked.repetition(what, Life(rate, asked.answering).run(_BOUNDS_FAILURE_S)))
    return found


def show(raw: Raw) -> Section:
    text = f"""\
After Balazinska and others, *Fault-Tolerance in the Borealis Distributed Stream Processing System*.
Three streams, one of which is missing for a while, are merged and counted in windows of a second.
Streams, decisions and engine are the real ones, without Spark where nothing else is said; time is
simulated then, and moves by what they really take.

### How long answers take

After figure 10: the longest that a new tuple waited, and how many tuples were given out as
tentative, with `answer_within="{BOUND_S} seconds"` at {RATE:,} tuples a second, by how long the
stream is missing (rows: `on_failure` & `on_correction`):

{_failures_table(raw, "failures")}

As in the paper, nothing is tentative for a failure that is shorter than the wait. There, suspending
while it is corrected breaks the bound as soon as failures are longer than it, because a correction
takes time that grows with them. Here the state has waited where everything was complete, and what
is replaced is processed once. With `delay` each tuple waits for almost as long as it may, and then
for a batch. That takes longer the longer the failure: its fork takes in the tentative tuples of all
batches since, at two milliseconds a batch or more.

The same at {RATE * FAST:,} tuples a second:

{_failures_table(raw, "fast")}

{_corrected(raw)}

After figure 9: a failure of {_BOUNDS_FAILURE_S} s at {_BOUNDS_RATE:,} tuples a second, by how long
the union waits (0.9 of the bound), with `delay` and with `process`:

{_bounds_table(raw)}

In the paper, too, the delay grows with the wait, and *delay* gives out fewer tentative tuples the
longer it is, *process* all of the failure's as soon as it begins.
"""
    pictures = {f"{NAME}.svg": _draw(raw)}
    for part in _PARTS:
        section = part.show(raw)
        if section is not None:
            text += f"\n{section.text}"
            pictures |= section.pictures
    return Section(text, pictures)


def _failures_table(raw: Raw, what: str) -> str:
    lengths_s = sorted({one["failure_s"] for one in raw.of(what=what)})
    rows = []
    for on_failure, on_correction in CHOICES:
        found = raw.of(what=what, on_failure=on_failure, on_correction=on_correction)
        if found:
            rows.append([named((on_failure, on_correction)), *map(cell, found)])
    return table(["", *(f"{length_s} s" for length_s in lengths_s)], rows)


def _corrected(raw: Raw) -> str:
    """The worst of the fast ones."""
    worst = max(raw.of(what="fast"), key=lambda one: one["corrected_s"])
    return (
        f"It took {worst['corrected_s']:.1f} s at most until everything was replaced, after a "
        f"failure of {worst['failure_s']} s."
    )


def _bounds_table(raw: Raw) -> str:
    kinds = [what for what in ("bounds", "fast bounds") if raw.of(what=what)]
    header = ["wait"]
    for what in kinds:
        rate = raw.of(what=what)[0]["rate"]
        header += [f"{on_failure}, {rate:,}/s" for on_failure in ("delay", "process")]
    rows = []
    for wait_s in raw.settings["waits_s"]:
        cells = [
            cell(raw.of(what=what, on_failure=on_failure, bound_s=wait_s / 0.9)[0])
            for what in kinds
            for on_failure in ("delay", "process")
        ]
        rows.append([f"{wait_s} s", *cells])
    return table(header, rows)


def _draw(raw: Raw) -> Figure:
    figure, left, right = two_axes()
    for on_failure, on_correction in CHOICES:
        found = raw.of(what="failures", on_failure=on_failure, on_correction=on_correction)
        style = "-" if on_failure == "process" else "--"
        label = f"{on_failure} & {on_correction}"
        lengths = [one["failure_s"] for one in found]
        left.plot(lengths, [one["longest_s"] for one in found], f"o{style}", label=label)
        right.plot(lengths, [one["tentative_tuples"] for one in found], f"o{style}", label=label)
    left.axhline(raw.settings["bound_s"], color="0.5", linewidth=0.8, linestyle=":")
    left.set_ylabel("longest wait of a new tuple, s")
    left.set_ylim(bottom=0)
    right.set_ylabel("tentative tuples")
    for axes in (left, right):
        axes.set_xlabel("the stream is missing for, s")
    right.legend()
    return figure
