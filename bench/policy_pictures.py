"""The pictures of docs/recovery.md, from the numbers that `bench.policies` has left.

python -m bench.policy_pictures [directory]
"""

from __future__ import annotations

import json
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.drawing import drawn_alike, save

NUMBERS = "policies.json"
_HOME = Path("docs/pictures")
_DARK = "#404040"
_TICKS_S = (0.1, 0.2, 0.5, 1.0)
_COLOURS = {
    "Continuous.within": "#c03028",
    "Continuous(u=)": "#e08030",
    "CostBenefit": "#8058a0",
    "SlowWindows": "#50a060",
    "FullSnapshot": "#2858a0",
    "FullSnapshot, asynchronous": "#70a8d8",
    "Delta": "#202020",
}
_MARKS = {"uniform": ("o", "#4878a8"), "skewed": ("s", "#c03028"), "mixed": ("^", "#50a060")}


def draw_all(directory: Path) -> list[Path]:
    """Draws what there are numbers for; returns the files."""
    found = json.loads((directory / NUMBERS).read_text())
    drawn = []
    with drawn_alike({"font.size": 12}):
        if "tradeoff" in found:
            drawn.append(save(_tradeoff(found["tradeoff"]), directory / "policy-tradeoff.svg"))
        if "crashes" in found:
            drawn.append(save(_crashes(found["crashes"]), directory / "recovery-times.svg"))
    return drawn


def _tradeoff(found: dict[str, Any]) -> Figure:
    """Bytes and time that policies add to a batch, against the longest recovery."""
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    by_size, by_time = figure.subplots(1, 2, sharex=True)
    mixed = found["mixed"]
    kinds: dict[str, list[dict[str, Any]]] = {}
    for point in mixed["points"]:
        kinds.setdefault(point["kind"], []).append(point)
    for (kind, points), mark in zip(kinds.items(), cycle("osD^vPX"), strict=False):
        points.sort(key=lambda point: point["worst_s"])
        worst = [point["worst_s"] for point in points]
        sizes = [100 * point["extra_bytes"] / mixed["batch_bytes"] for point in points]
        times = [100 * point["extra_s"] / mixed["batch_s"] for point in points]
        style: dict[str, Any] = {"color": _COLOURS[kind], "marker": mark, "label": kind}
        by_size.plot(worst, sizes, **style)
        by_time.plot(worst, times, **style)
    _name_axes(by_size, "output bytes beyond NoCheckpoint's, %")
    _name_axes(by_time, "time beyond NoCheckpoint's, %")
    by_size.set_yscale("log")
    by_size.yaxis.set_major_formatter("{x:g}")
    by_size.yaxis.set_minor_formatter("")
    by_time.set_ylim(bottom=0)
    figure.suptitle("What policies cost, and how long a recovery takes at worst (mixed workload)")
    handles, labels = by_size.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _name_axes(axes: Axes, cost: str) -> None:
    axes.set_xscale("log")
    axes.set_xlabel("longest recovery, seconds")
    axes.set_ylabel(cost)
    axes.set_xticks(_TICKS_S, [f"{tick:g}" for tick in _TICKS_S])
    axes.xaxis.set_minor_formatter("")
    axes.grid(True, which="major", color="#e4e4e4")


def _crashes(found: dict[str, Any]) -> Figure:
    """Every recovery: what had been predicted, what it took, and what was asked for."""
    figure = Figure(figsize=(7.5, 6.5), layout="constrained")
    axes = figure.subplots()
    objective = found["objective_s"]
    largest = objective
    for of_workload in found["workloads"]:
        name = of_workload["workload"]
        predicted = [recovery["predicted_s"] for recovery in of_workload["recoveries"]]
        took = [recovery["took_s"] for recovery in of_workload["recoveries"]]
        mark, colour = _MARKS[name]
        axes.plot(predicted, took, mark, color=colour, label=name, markersize=5, alpha=0.8)
        largest = max([largest, *predicted, *took])
    axes.plot([0, largest], [0, largest], color=_DARK, linewidth=1, label="as predicted")
    axes.axhline(objective, color=_DARK, linestyle="--", linewidth=1, label="objective")
    axes.set_xlim(0, 1.05 * largest)
    axes.set_ylim(0, 1.05 * largest)
    axes.set_xlabel("predicted recovery time, seconds")
    axes.set_ylabel("real recovery time, seconds")
    kills = sum(of_workload["kills"] for of_workload in found["workloads"])
    axes.set_title(f"Recoveries after {kills} random kills", loc="left")
    axes.legend(frameon=False, loc="lower right")
    return figure


if __name__ == "__main__":
    for path in draw_all(Path(sys.argv[1]) if len(sys.argv) > 1 else _HOME):
        print(path)
