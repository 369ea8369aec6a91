"""Stacked bars: the whole batch, and Trailmark's part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.experiment import Raw
from bench.profiling import parts
from bench.profiling.tables import mean_ms

_OWN = "Trailmark in the worker"
#: Parts of a batch as the bar shows them; those of Trailmark together, in the one colour.
_WHOLE: Mapping[str, tuple[Sequence[str], str]] = {
    "Spark: planning, logs, scheduling": (
        (parts.FIND, parts.PLAN, parts.SCHEDULE, parts.SPARK_OTHER),
        "#707070",
    ),
    "Spark: Parquet, shuffle": ((parts.SHUFFLE,), "#2858a0"),
    "Spark: start and end of tasks": ((parts.TASK_START, parts.TASK_END), "#b0b0b0"),
    "rows into Python": ((parts.ROWS_IN,), "#70a8d8"),
    _OWN: (parts.OWN, "#c03028"),
    "results to Spark": ((parts.ROWS_OUT,), "#50a060"),
    "waiting for the slower bucket": ((parts.SLOWER,), "#e4e4e4"),
}
_OWN_COLOURS = {
    parts.JOIN: "#70a8d8",
    parts.OPEN_LOGS: "#b0b0b0",
    parts.STATE: "#e08030",
    parts.PROCESS: "#c03028",
    parts.FOOTPRINTS: "#8058a0",
    parts.WAIT: "#e4e4e4",
    parts.ENCODE: "#50a060",
    parts.WRITE: "#a0d0a8",
    parts.SYNC: "#202020",
    parts.TRIM: "#d8c060",
    parts.OTHER: "#707070",
}


def draw(raw: Raw) -> Figure:
    """A row for each workload: to the left the batch, to the right Trailmark's part of it."""
    names = list(raw.settings["workloads"])
    figure = Figure(figsize=(13, 3.4 + 1.1 * len(names)))
    figure.set_layout_engine("constrained", h_pad=0.1)
    panels = figure.subplots(len(names), 2, squeeze=False)
    own = {part: ((part,), _OWN_COLOURS[part]) for part in parts.OWN}
    for name, (whole, of_it) in zip(names, panels, strict=True):
        _bar(whole, raw, name, _WHOLE)
        _bar(of_it, raw, name, own)
        whole.set_ylabel(name.replace(" ", "\n"), rotation=0, ha="right", va="center")
    for panel, title in zip(panels[0], ("the whole batch", _OWN), strict=True):
        panel.set_title(title, loc="left")
    for panel in panels[-1]:
        panel.set_xlabel("milliseconds")
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.55), ncols=2, fontsize=9)
    return figure


def _bar(
    panel: Axes, raw: Raw, workload: str, groups: Mapping[str, tuple[Sequence[str], str]]
) -> None:
    left = 0.0
    for label, (chosen, colour) in groups.items():
        width = max(0.0, sum(mean_ms(raw, workload, part) for part in chosen))
        panel.barh([0], [width], left=left, color=colour, edgecolor="white", label=label)
        left += width
    panel.set_yticks([])
    panel.set_xlim(0, left)
    panel.grid(False)
