"""Curves of cost and recovery over everything that grows."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.experiment import Raw
from bench.growth.curves import Curve, cost_ns, loading_ms, recovery_ms
from bench.growth.points import UNITS

_COST, _RECOVERY, _LOADING = "#2858a0", "#c03028", "#e08030"


def draw(raw: Raw) -> Figure:
    """Above the cost, below the recovery; a column for each thing that grows."""
    figure = Figure(figsize=(14, 7), layout="constrained")
    panels = figure.subplots(2, len(UNITS), sharey="row", sharex="col")
    for (axis, unit), (cost, recovery) in zip(UNITS.items(), panels.T, strict=True):
        _add(cost, cost_ns(raw, axis), "cost", _COST, "o")
        _add(recovery, recovery_ms(raw, axis), "recovery", _RECOVERY, "o")
        _add(recovery, loading_ms(raw, axis), "opening, loading", _LOADING, "s")
        recovery.set_xlabel(unit)
        for panel in (cost, recovery):
            _finish(panel)
    panels[0, 0].set_ylabel("ns per tuple")
    panels[1, 0].set_ylabel("recovery, ms")
    figure.suptitle("Dashed: size to the power e, fitted to the medians; bars: least and greatest")
    return figure


def _add(panel: Axes, curve: Curve, name: str, colour: str, mark: str) -> None:
    below = [value.middle - value.least for value in curve.values]
    above = [value.most - value.middle for value in curve.values]
    power = curve.power()
    panel.errorbar(
        curve.sizes,
        curve.middles,
        yerr=[below, above],
        color=colour,
        marker=mark,
        markersize=5,
        capsize=3,
        linewidth=1.5,
        label=f"{name}, e = {power.exponent:+.2f}",
    )
    fitted = [power.at(size) for size in curve.sizes]
    panel.plot(curve.sizes, fitted, color=colour, linestyle="--", linewidth=1, alpha=0.6)


def _finish(panel: Axes) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.legend(loc="best", fontsize=9)
