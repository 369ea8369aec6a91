"""A budget for checking: the response time of windows against the length of the extent."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from bench.experiment import Effort, Measured, Note, Raw, Section, ratios, spread, table
from bench.lanes import Lane, feed_all, lanes
from bench.one_core import one_core
from bench.orders import WINDOW, opening_orders, orders
from trailmark.checkpoint.policy import Continuous, NoCheckpoint, Policy

NAME = "budget"
TITLE = "Response time under a budget for checking"

ITEMS = 100_000
TUPLES = 25_000
OPEN_WINDOWS = 90_000
_PERIODS_MS = (25, 50, 100, 250)
_NONE = "no checkpoint"
_SEED = 8
#: As printed in the paper, in seconds; the last one is "approximates that of native".
_PAPER = {_NONE: "16.5", "CP 25 ms": "32.5", "CP 50 ms": "21.5", "CP 100 ms": "18.5"}
_PAPER_RATIO = {"CP 25 ms": "1.97", "CP 50 ms": "1.30", "CP 100 ms": "1.12", "CP 250 ms": "about 1"}


def _policies() -> dict[str, Policy]:
    policies: dict[str, Policy] = {_NONE: NoCheckpoint()}
    for period in _PERIODS_MS:
        policies[f"CP {period} ms"] = Continuous(
            q=OPEN_WINDOWS, interval="10 ms", period=f"{period} ms"
        )
    return policies


def measure(effort: Effort, note: Note) -> Measured:
    turns, batches = effort.pick((2, 220), (5, 400))
    repetitions: list[dict[str, Any]] = []
    for turn in range(turns):
        note(f"{len(_policies())} policies, {batches} batches, turn {turn + 1}")
        with one_core(), lanes(_policies()) as opened:
            rng = np.random.default_rng((_SEED, turn))
            stream = opening_orders(rng, ITEMS, TUPLES * 10)
            stream += [orders(rng, ITEMS, TUPLES) for _ in range(batches - len(stream))]
            for batch, rows in enumerate(stream):
                feed_all(opened, batch, rows)
            opened_in, closed_in = lives(
                [rows.column("item_id").to_numpy() for rows in stream], ITEMS
            )
            for lane in opened:
                repetitions.append({"turn": turn, **_describe(lane, opened_in, closed_in)})
    settings = {
        "items": ITEMS,
        "window": WINDOW,
        "tuples_per_batch": TUPLES,
        "batches": batches,
        "q": OPEN_WINDOWS,
        "interval": "10 ms",
    }
    return Measured(settings, _SEED, repetitions)


Batches = npt.NDArray[np.int64]


def lives(ids: list[npt.NDArray[np.int32]], items: int) -> tuple[Batches, Batches]:
    """The batches in which each window of ``WINDOW`` orders opened and closed."""
    batch = np.repeat(np.arange(len(ids)), [len(each) for each in ids])
    taken = np.concatenate(ids)
    by_item = np.argsort(taken, kind="stable")
    counts = np.bincount(taken, minlength=items)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    whole = counts // WINDOW
    first = np.repeat(starts, whole)
    number = np.arange(whole.sum()) - np.repeat(np.cumsum(whole) - whole, whole)
    opens = first + number * WINDOW
    return batch[by_item[opens]], batch[by_item[opens + WINDOW - 1]]


def _describe(lane: Lane, opened_in: Batches, closed_in: Batches) -> dict[str, Any]:
    """Response times in seconds of the lane: from the arrival of a window's first tuple to its
    result; once windows that opened under the policy close, and for every eighth of the run."""
    begins, ends = np.array(lane.begins), np.array(lane.ends)
    response = ends[closed_in] - begins[opened_in]
    counted = closed_in >= len(ends) // 2
    eighth = closed_in * 8 // len(ends)
    account = lane.run.report.account
    return {
        "policy": lane.name,
        "response_s": round(float(response[counted].mean()), 6),
        "response_s_by_eighth": [
            round(float(response[eighth == part].mean()), 6) for part in range(8)
        ],
        "seconds": round(lane.ends[-1], 6),
        "checks": lane.checked,
        "results": lane.results,
        "extent_records": account.extent,
        "open_windows": account.open_windows,
    }


def show(raw: Raw) -> Section:
    rows = []
    for policy in _policies():
        response = spread([1000 * each for each in raw.values("response_s", policy=policy)])
        ratio = ratios(raw, "response_s", {"policy": policy}, {"policy": _NONE})
        has_extent = policy != _NONE
        extent = spread(raw.values("extent_records", policy=policy)).show(",.0f")
        rows.append(
            [
                policy,
                response.show(".0f"),
                _PAPER.get(policy, ""),
                ratio.show() if has_extent else "1",
                _PAPER_RATIO.get(policy, "1"),
                extent if has_extent else "all input",
                f"{spread(raw.values('checks', policy=policy)).middle:,.0f}",
            ]
        )
    header = [
        "",
        "response time, ms",
        "paper, s",
        "x without",
        "paper",
        "records in the extent at the end",
        "CHECKs",
    ]
    most = raw.of(policy=f"CP {_PERIODS_MS[0]} ms")
    checks_per_result = spread([each["checks"] / each["results"] for each in most]).middle
    text = f"""\
After figures 8 and 9 of Sebepou and Magoutis, *CEC*: 10 ms of checking in every period CP, with a
target (Q = 90,000, the number of open windows) that always asks for more. The response time of a
window goes from the arrival of its first tuple to its result. One core, without Spark, synced logs,
batches of {raw.settings["tuples_per_batch"]:,} tuples.

{table(header, rows)}

"Without" writes no footprints, and its recovery replays all input. As in the paper the budget is
kept: response times grow by about the share of time that it grants, and by what OPENs cost. What
differs: a window lives for some forty batches and a few hundred milliseconds, not 16 seconds,
because an operator takes millions of tuples per second and not thousands. And a shorter period
need not give a shorter extent: CHECKs are records of it, too, and with CP 25 ms there are
{checks_per_result:.0f} of them for every result.
"""
    return Section(text, {"budget.svg": _draw(raw)})


def _draw(raw: Raw) -> Figure:
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    colours = ("#404040", "#c03028", "#e08030", "#2858a0", "#50a060")
    for policy, colour in zip(_policies(), colours, strict=True):
        turns = np.array([r["response_s_by_eighth"] for r in raw.of(policy=policy)]) * 1000
        left.plot(np.arange(1, 9) / 8, np.median(turns, axis=0), color=colour, label=policy)
    left.set_xlabel("part of the run")
    left.set_ylabel("response time of windows, ms")
    left.set_ylim(bottom=0)
    left.legend()
    periods = [f"CP {period} ms" for period in _PERIODS_MS]
    extents = [
        spread(raw.values("extent_records", policy=policy)).middle / 1000 for policy in periods
    ]
    right.bar(periods, extents, color="#4878a8")
    right.set_ylabel("extent at the end, thousand records")
    return figure
