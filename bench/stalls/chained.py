"""Chains of operators behind a union, after figure 11 of the paper."""

from __future__ import annotations

from bench.experiment import Effort, Note, Raw, Repetition, Section, table
from bench.stalls.chain import numbering
from bench.stalls.life import Life
from bench.stalls.part import BOUND_S, FAST, RATE, Asked, Choice, named, two_axes

_WHAT = "chain"
_FAILURE_S = 15
_DEPTHS = ((1, 4), (1, 2, 3, 4))
_CHOICES: tuple[Choice, ...] = (
    ("process", "process"),
    ("delay", "delay"),
    ("process", "suspend"),
)


def measure(effort: Effort, note: Note) -> list[Repetition]:
    found = []
    for rate in (RATE, RATE * FAST):
        for choice in _CHOICES:
            for depth in effort.pick(*_DEPTHS):
                note(f"{named(choice)}: a chain of {depth} at {rate:,} tuples a second")
                asked = Asked(rate, _FAILURE_S, choice, more={"depth": depth})
                life = Life(rate, asked.answering, operators=numbering(depth))
                found.append(asked.repetition(_WHAT, life.run(_FAILURE_S)))
    return found


def show(raw: Raw) -> Section | None:
    measured = raw.of(what=_WHAT)
    if not measured:
        return None
    depths = sorted({one["depth"] for one in measured})
    text = f"""\
### Chains of operators

After figure 11. A failure of {_FAILURE_S} s, and behind the union a chain of operators that give a
result for every tuple they take in: the longest that a new tuple waited for its result of the last
operator, and how many of these results were tentative.

{_table(raw, RATE, depths)}

In the paper each operator of a chain is on a node of its own, which has to find out by itself that
something is missing and is corrected after the one before it. The delay of *process & process*
stays at the bound there, that of *delay & delay* grows by the bound with every node, and that of
*process & suspend* is the sum of all corrections; the longer the chain, the more is tentative. Here
one union decides for a query, and a batch goes through all of its operators: the bound is waited
for once, and all of them are corrected together. What each operator adds is the time for its part
of a batch, and for a fork of its own.

The same at {RATE * FAST:,} tuples a second:

{_table(raw, RATE * FAST, depths)}

A fork takes in the last 2,000,000 tentative tuples at most with every batch, in every operator; at
this rate that is what a batch is made of.
"""
    figure, left, right = two_axes()
    for choice in _CHOICES:
        found = _of(raw, RATE, choice)
        places = [one["depth"] for one in found]
        left.plot(places, [one["longest_s"] for one in found], "o-", label=named(choice))
        right.plot(places, [one["tentative_tuples"] for one in found], "o-", label=named(choice))
    left.axhline(BOUND_S, color="0.5", linewidth=0.8, linestyle=":")
    left.set_ylabel("longest wait of a new tuple, s")
    right.set_ylabel("tentative tuples")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.set_xlabel("operators in the chain")
        axes.set_xticks(depths)
    right.legend()
    return Section(text, {"stalls-chains.svg": figure})


def _table(raw: Raw, rate: int, depths: list[int]) -> str:
    rows = []
    for choice in _CHOICES:
        of_depth = {one["depth"]: one for one in _of(raw, rate, choice)}
        cells = [
            f"{of_depth[depth]['longest_s']:.1f} s / {of_depth[depth]['tentative_tuples']:,}"
            for depth in depths
        ]
        rows.append([named(choice), *cells])
    return table(
        ["", *(f"{depth} operators" if depth > 1 else "1 operator" for depth in depths)], rows
    )


def _of(raw: Raw, rate: int, choice: Choice) -> list[Repetition]:
    on_failure, on_correction = choice
    return raw.of(what=_WHAT, rate=rate, on_failure=on_failure, on_correction=on_correction)
