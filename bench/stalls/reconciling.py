"""How long it takes until everything is corrected, after figure 12 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.experiment import Effort, Note, Raw, Repetition, Section, spread, table
from bench.stalls.part import FAST, two_axes
from bench.stalls.reconcile import WAYS, Way, reconcile

_BY_STATE, _BY_FAILURE = "reconciled by state", "reconciled by failure"
#: The paper's: windows and tuples. By state 1,000 tuples a second are missing for 5 s, by failure
#: the state is of 20.
_STATES = ((20, 4_000), (20, 1_000, 2_000, 3_000, 4_000))
_FAILURES = ((5_000, 45_000), (5_000, 15_000, 25_000, 35_000, 45_000))
_LEAST_STATE, _LEAST_FAILURE = 20, 5_000
_TURNS = (3, 7)
_TITLES: dict[Way, str] = {
    "waits": "the state has waited",
    "checkpoint": "checkpoint/redo",
    "undo": "undo/redo",
}


def measure(effort: Effort, note: Note) -> list[Repetition]:
    found = []
    for turn in range(effort.pick(*_TURNS)):
        note(f"three ways to go back, turn {turn + 1}")
        for times in (1, FAST):
            cases = [
                *(
                    (_BY_STATE, each * times, _LEAST_FAILURE * times)
                    for each in effort.pick(*_STATES)
                ),
                *((_BY_FAILURE, _LEAST_STATE, each * times) for each in effort.pick(*_FAILURES)),
            ]
            for what, state, failure in cases:
                for way in WAYS if turn % 2 == 0 else reversed(WAYS):
                    one = reconcile(way, state, failure)
                    found.append(
                        {
                            "what": what,
                            "times": times,
                            "state": state,
                            "failure": failure,
                            "way": way,
                            "turn": turn,
                            "back_ms": round(1000 * one.back_s, 3),
                            "redo_ms": round(1000 * one.redo_s, 3),
                            "copy_ms": round(1000 * one.copy_s, 3),
                        }
                    )
    return found


def show(raw: Raw) -> Section | None:
    if not raw.of(what=_BY_STATE):
        return None
    text = f"""\
### Going back, and not having to

After figure 12. The failure is over, and everything that came since it began is to be taken in once
more, in its order. Here the state has waited where all streams were complete, and simply goes on.
In the paper it has taken tentative tuples and has to go back first, in one of two ways; the
engine's recoveries stand for these. *Checkpoint/redo*: the state was copied when the failure began,
and is loaded from the copy. *Undo/redo*: it is made again from the tuples that it was made of,
which are in the input log. Both to the batch before the failure, in the same process; the batches
that follow are the same for all three, and no footprints are written meanwhile. Not compared is
what the paper's undo log costs by itself: the engine has none.

Milliseconds to go back (with a batch that has no rows), and in all, by the size of the state (in
windows; {_LEAST_FAILURE:,} tuples came during the failure), and by the size of the failure (in
tuples; {_LEAST_STATE} windows):

{_table(raw, _BY_STATE, "state", 1)}

{_table(raw, _BY_FAILURE, "failure", 1)}

The same with {FAST} times as many:

{_table(raw, _BY_STATE, "state", FAST)}

{_table(raw, _BY_FAILURE, "failure", FAST)}

In the paper, too, both ways back take longer the larger the state is, and a large one is loaded
faster than made again; writing the copy took {_copies(raw)}. Not to go back costs the same
whatever the size of the state. Its price is the fork, which is paid during the failure.
"""
    figure, left, right = two_axes()
    curves = ((left, _BY_STATE, "state", "windows"), (right, _BY_FAILURE, "failure", "tuples"))
    for axes, what, name, of_what in curves:
        sizes = _sizes(raw, what, name, FAST)
        for way in WAYS:
            middles = [spread(_totals(raw, what, FAST, way, {name: size})).middle for size in sizes]
            axes.plot([size / 1000 for size in sizes], middles, "o-", label=_TITLES[way])
        axes.set_xlabel(f"size of the {name}, thousands of {of_what}")
        axes.set_ylabel("ms until all is taken in")
        axes.set_ylim(bottom=0)
    left.legend()
    return Section(text, {"stalls-reconciled.svg": figure})


def _table(raw: Raw, what: str, name: str, times: int) -> str:
    sizes = _sizes(raw, what, name, times)
    rows = []
    for way in WAYS:
        cells = []
        for size in sizes:
            found = raw.of(what=what, times=times, way=way, **{name: size})
            back = spread([one["back_ms"] for one in found]).middle
            total = spread(_totals(raw, what, times, way, {name: size})).middle
            cells.append(f"{back:,.1f} / {total:,.1f}")
        rows.append([_TITLES[way], *cells])
    return table([f"size of the {name}", *(f"{size:,}" for size in sizes)], rows)


def _sizes(raw: Raw, what: str, name: str, times: int) -> Sequence[int]:
    return sorted({one[name] for one in raw.of(what=what, times=times)})


def _totals(raw: Raw, what: str, times: int, way: Way, sized: dict[str, Any]) -> list[float]:
    found = raw.of(what=what, times=times, way=way, **sized)
    return [one["back_ms"] + one["redo_ms"] for one in found]


def _copies(raw: Raw) -> str:
    largest = max(_sizes(raw, _BY_STATE, "state", FAST))
    found = raw.values("copy_ms", what=_BY_STATE, times=FAST, state=largest, way="checkpoint")
    return f"{spread(found).middle:,.0f} ms for {largest:,} windows"
