"""Checking slow windows more or less often: throughput of results and of all records."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from bench.drawing import bars
from bench.experiment import Effort, Measured, Note, Raw, Section, ratios, spread, table
from bench.lanes import Lane, feed_all, lanes
from bench.one_core import one_core
from bench.orders import WINDOW, priced
from trailmark.checkpoint.policy import Continuous, NoCheckpoint, Policy, SlowWindows

NAME = "intensity"
TITLE = "How often slow windows are checked"

FAST_ITEMS, SLOW_ITEMS = 100, 10
#: One order in so many is for a slow item.
ONE_IN_SLOW = 1_000
TUPLES = 10_000
_MILLISECONDS = (2, 10, 20, 100)
_NONE, _OPEN = "no checkpoint", "OPEN only"
_SEED = 44
_PAPER_CHECKS = {"T = H = 2 ms": "718,874", "T = H = 20 ms": "35,000", "T = H = 100 ms": "76"}


def _policies() -> dict[str, Policy]:
    policies: dict[str, Policy] = {_NONE: NoCheckpoint(), _OPEN: Continuous()}
    for each in _MILLISECONDS:
        policies[f"T = H = {each} ms"] = SlowWindows(f"{each} ms", f"{each} ms")
    return policies


def _ids(rng: np.random.Generator) -> npt.NDArray[np.int32]:
    ids = rng.integers(0, FAST_ITEMS, TUPLES, dtype=np.int32)
    is_slow = rng.random(TUPLES) < 1 / ONE_IN_SLOW
    ids[is_slow] = FAST_ITEMS + rng.integers(0, SLOW_ITEMS, int(is_slow.sum()), dtype=np.int32)
    return ids


def measure(effort: Effort, note: Note) -> Measured:
    turns, batches = effort.pick((3, 175), (5, 525))
    repetitions: list[dict[str, Any]] = []
    for turn in range(turns):
        note(f"{len(_policies())} policies, {batches} batches, turn {turn + 1}")
        rng = np.random.default_rng((_SEED, turn))
        with one_core(), lanes(_policies()) as opened:
            for batch in range(batches):
                feed_all(opened, batch, priced(rng, _ids(rng)))
            repetitions += [{"turn": turn, **_describe(lane)} for lane in opened]
    settings = {
        "fast_items": FAST_ITEMS,
        "slow_items": SLOW_ITEMS,
        "one_order_in_so_many_is_slow": ONE_IN_SLOW,
        "window": WINDOW,
        "tuples_per_batch": TUPLES,
        "batches": batches,
    }
    return Measured(settings, _SEED, repetitions)


def _describe(lane: Lane) -> dict[str, Any]:
    seconds = lane.ends[-1]
    return {
        "policy": lane.name,
        "seconds": round(seconds, 6),
        "results": lane.results,
        "opens": lane.opened,
        "checks": lane.checked,
        "results_per_s": round(lane.results / seconds, 1),
        "records_per_s": round((lane.results + lane.opened + lane.checked) / seconds, 1),
    }


def show(raw: Raw) -> Section:
    rows = []
    for policy in _policies():
        base = {"policy": _NONE}
        rows.append(
            [
                policy,
                f"{spread(raw.values('results_per_s', policy=policy)).middle / 1000:,.0f}",
                ratios(raw, "results_per_s", {"policy": policy}, base).show(),
                f"{spread(raw.values('records_per_s', policy=policy)).middle / 1000:,.0f}",
                f"{spread(raw.values('opens', policy=policy)).middle:,.0f}",
                f"{spread(raw.values('checks', policy=policy)).middle:,.0f}",
                _PAPER_CHECKS.get(policy, ""),
            ]
        )
    header = [
        "",
        "thousand results/s",
        "x no checkpoint",
        "thousand records/s",
        "OPENs",
        "CHECKs",
        "thesis, CHECKs",
    ]
    results = int(spread(raw.values("results", policy=_NONE)).middle)
    opens = spread(raw.values("opens", policy=_OPEN)).middle
    batch_ms = 1000 * spread(raw.values("seconds", policy=_OPEN)).middle / raw.settings["batches"]
    text = f"""\
After figure 4.4 of Zoe Sebepou's thesis: 100 items that are ordered often and 10 that are ordered
rarely, windows of 10, every window that is open for longer than H is checked once in every T. The
policy is `SlowWindows(H, T)`; one core, without Spark, synced logs, batches of
{raw.settings["tuples_per_batch"]:,} tuples, {results:,} results (the thesis: 524,288).

{table(header, rows)}

What differs: nothing can be checked more often than once per batch, and a batch takes
{batch_ms:.1f} ms, so that the smallest T stands for every batch. Windows that open and close within
one batch need no OPEN: there are {opens / results:.2f} per result, where the thesis writes one for
every result and loses 35 % of its throughput to them. A policy can be faster than none
at all: it lets go of input, and the next segments are written over what was let go.
"""
    return Section(text, {"intensity.svg": _draw(raw)})


def _draw(raw: Raw) -> Figure:
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    panels = figure.subplots(1, 3)
    names = list(_policies())
    labels = [_NONE.replace(" ", "\n"), _OPEN.replace(" ", "\n")]
    labels += [f"{each} ms" for each in _MILLISECONDS]
    for axes, metric, title, unit in zip(
        panels,
        ("results_per_s", "records_per_s", "checks"),
        ("thousand results/s", "thousand records/s", "CHECKs"),
        (1e3, 1e3, 1),
        strict=True,
    ):
        found = [spread(raw.values(metric, policy=name)) for name in names]
        bars(axes, labels, found, unit, color="#4878a8")
        axes.set_title(title, loc="left", fontsize=10)
        axes.tick_params(axis="x", labelsize=8)
    return figure
