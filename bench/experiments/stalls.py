"""Answers while a stream is missing: how long they take, and how many are tentative."""

from __future__ import annotations

import logging
from typing import Any

from matplotlib.figure import Figure

from bench.experiment import Effort, Measured, Note, Raw, Section, table
from bench.stalls.life import Life
from trailmark.streams.union.answering import Answering, OnCorrection, OnFailure

NAME = "stalls"
TITLE = "Answers while a stream is missing"

_SECOND = 1_000_000
_BOUND_S = 3
_RATE = 4_500
_FAILURES_S = ((2, 5, 15), (2, 5, 10, 15, 30, 60))
_FAST, _FAST_FAILURE_S = 100, (15, 60)
_CHOICES: tuple[tuple[OnFailure, OnCorrection], ...] = (
    ("process", "process"),
    ("process", "delay"),
    ("process", "suspend"),
    ("delay", "process"),
    ("delay", "delay"),
    ("delay", "suspend"),
)
#: The second of the paper's experiments: a failure of 5 s at 3,000 tuples a second, by the bound.
_BOUNDS_S = ((0.5, 2, 4, 6), (0.5, 1, 2, 3, 4, 5, 6))


def measure(effort: Effort, note: Note) -> Measured:
    logging.getLogger("trailmark").setLevel(logging.ERROR)  # that something is missing is the point
    repetitions: list[dict[str, Any]] = []
    failures_s, bounds_s = effort.pick(*_FAILURES_S), effort.pick(*_BOUNDS_S)

    def run(what: str, rate: int, failure_s: float, bound_s: float, *choice: Any) -> None:
        answering = Answering(round(bound_s * _SECOND), *choice)
        found = Life(rate, answering).run(failure_s)
        repetitions.append(
            {
                "what": what,
                "rate": rate,
                "failure_s": failure_s,
                "bound_s": bound_s,
                "on_failure": choice[0],
                "on_correction": choice[1],
                "longest_s": round(found.longest_s, 3),
                "tentative_tuples": found.tentative_tuples,
                "corrected_s": round(found.corrected_s, 3),
            }
        )

    for choice in _CHOICES:
        note(f"{' and '.join(choice)}: failures of {failures_s[0]} to {failures_s[-1]} s")
        for failure_s in failures_s:
            run("failures", _RATE, failure_s, _BOUND_S, *choice)
    for on_failure in ("process", "delay"):
        note(f"{on_failure}: bounds of {bounds_s[0]} to {bounds_s[-1]} s")
        for bound_s in bounds_s:
            # In the paper it is the wait that goes from 0.5 to 6 s.
            run("bounds", 3_000, 5, bound_s / 0.9, on_failure, "process")
    fast_s = effort.pick(*_FAST_FAILURE_S)
    note(f"{_FAST} times the rate, a failure of {fast_s} s")
    run("fast", _RATE * _FAST, fast_s, _BOUND_S, "process", "process")
    settings = {
        "bound_s": _BOUND_S,
        "rate": _RATE,
        "failures_s": failures_s,
        "waits_s": bounds_s,
        "interval_ms": 100,
        "commit_ms": 100,
    }
    return Measured(settings, 0, repetitions)


def show(raw: Raw) -> Section:
    rows = []
    for on_failure, on_correction in _CHOICES:
        found = raw.of(what="failures", on_failure=on_failure, on_correction=on_correction)
        rows.append(
            [
                f"{on_failure} & {on_correction}",
                *(f"{one['longest_s']:.1f} s / {one['tentative_tuples']:,}" for one in found),
            ]
        )
    header = ["", *(f"{failure_s} s" for failure_s in raw.settings["failures_s"])]
    waits = []
    for bound_s in raw.settings["waits_s"]:
        found = [
            raw.of(what="bounds", on_failure=each, bound_s=bound_s / 0.9)[0]
            for each in ("delay", "process")
        ]
        waits.append(
            [
                f"{bound_s} s",
                *(f"{one['longest_s']:.1f} s / {one['tentative_tuples']:,}" for one in found),
            ]
        )
    (fast,) = raw.of(what="fast")
    text = f"""\
After figures 9 and 10 of Balazinska and others, *Fault-Tolerance in the Borealis Distributed Stream
Processing System*. Three streams, one of which is missing for a while, are merged and counted in
windows of a second. Streams, decisions and engine are the real ones, without Spark; time is
simulated, and moves by what they really take.

The longest that a new tuple waited, and how many tuples were given out as tentative, with
`answer_within="{_BOUND_S} seconds"` at {_RATE:,} tuples a second, by how long the stream is missing
(rows: `on_failure` & `on_correction`):

{table(header, rows)}

As in the paper, nothing is tentative for a failure that is shorter than the wait. There, suspending
while it is corrected breaks the bound as soon as failures are longer than it, because a correction
takes time that grows with them. Here the state has waited where everything was complete, and what
is replaced is processed once. What `delay` takes beyond the bound in longer failures is the fork:
each batch takes in the tentative tuples of all batches since the failure began, at two milliseconds
a batch or more, and a tenth of the bound is left for it.

A failure of 5 s at 3,000 tuples a second, by how long the union waits (0.9 of the bound), with
`delay` and with `process`:

{table(["wait", "delay", "process"], waits)}

At {fast["rate"]:,} tuples a second, a failure of {fast["failure_s"]} s: the longest wait was
{fast["longest_s"]:.1f} s, and everything was replaced after {fast["corrected_s"]:.1f} s.
"""
    return Section(text, {f"{NAME}.svg": _draw(raw)})


def _draw(raw: Raw) -> Figure:
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for on_failure, on_correction in _CHOICES:
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
