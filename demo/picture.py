"""The picture: throughput over time with the crash in it, and what a recovery would have taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from demo.supervise import Batch, Run

_BLUE, _RED, _GREY, _DARK = "#4878a8", "#c03028", "#e4e4e4", "#404040"


def draw(path: Path, killed: Run, restarted: Run, *, target_s: float) -> None:
    """Both lives of the query on one axis, which begins with the first."""
    with rc_context({"font.size": 12, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11, 6.5), layout="constrained")
        top, bottom = figure.subplots(2, sharex=True, height_ratios=[3, 1.4])
        begin = killed.started_at
        for axes in (top, bottom):
            _mark_starts(axes, killed, restarted, begin)
        _throughput(top, [*killed.batches, *restarted.batches], begin)
        _name_starts(top, killed, restarted, begin)
        _name_recovery(top, restarted, begin)
        _predictions(bottom, killed, restarted, begin, target_s)
        bottom.set_xlabel("seconds since the first start")
        top.set_xlim(0, restarted.batches[-1].time - begin)
        figure.align_ylabels()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)


def _throughput(axes: Axes, batches: list[Batch], begin: float) -> None:
    """A bar per batch, as wide as it took: its area is its tuples."""
    axes.bar(
        [batch.time - batch.took_s - begin for batch in batches],
        [batch.tuples_per_s / 1e6 for batch in batches],
        width=[batch.took_s for batch in batches],
        align="edge",
        color=_BLUE,
        edgecolor="white",
        linewidth=0.6,
    )
    axes.set_ylabel("million tuples/s")
    axes.set_title(
        "Throughput of a query that is killed and restarted, one bar per batch", loc="left"
    )
    axes.set_ylim(0, 1.45 * max(batch.tuples_per_s for batch in batches) / 1e6)


def _mark_starts(axes: Axes, killed: Run, restarted: Run, begin: float) -> None:
    """Grey where there is no query: until Spark is up, and from the kill until it is up again."""
    for down, up in (_down(killed, killed.started_at), _down(restarted, killed.killed_at)):
        axes.axvspan(down - begin, up - begin, color=_GREY, linewidth=0, zorder=0)
    axes.axvline(_known(killed.killed_at) - begin, color=_RED, linewidth=2)


def _name_starts(axes: Axes, killed: Run, restarted: Run, begin: float) -> None:
    below_top: dict[str, Any] = {"y": 0.97, "va": "top", "transform": axes.get_xaxis_transform()}
    kill = _known(killed.killed_at)
    axes.text(kill - begin, s="kill -9 ", color=_RED, ha="right", weight="bold", **below_top)
    for run, word, since in ((killed, "start", killed.started_at), (restarted, "restart", kill)):
        down, up = _down(run, since)
        text = f"{word}\nof Spark\n{up - run.started_at:.1f} s"
        axes.text((down + up) / 2 - begin, s=text, color=_DARK, ha="center", **below_top)


def _name_recovery(axes: Axes, restarted: Run, begin: float) -> None:
    first = next(batch for batch in restarted.batches if batch.recoveries)
    slowest = max(recovery.took_us for recovery in first.recoveries)
    axes.annotate(
        f" recovery: {slowest / 1e6:.2f} s\n of this batch",
        xy=(first.time - first.took_s / 2 - begin, first.tuples_per_s / 1e6),
        xytext=(first.time - first.took_s - begin, 0.97),
        textcoords=axes.get_xaxis_transform(),
        arrowprops={"arrowstyle": "->", "color": _RED},
        color=_RED,
        va="top",
    )


def _down(run: Run, since: float | None) -> tuple[float, float]:
    return _known(since), _known(run.ready_at)


def _known(moment: float | None) -> float:
    assert moment is not None, "has happened in a run that is drawn"
    return moment


def _predictions(axes: Axes, killed: Run, restarted: Run, begin: float, target_s: float) -> None:
    for run, label in ((killed, "predicted"), (restarted, None)):
        axes.plot(
            [batch.time - begin for batch in run.batches],
            [batch.predicted_us / 1e6 for batch in run.batches],
            color=_BLUE,
            label=label,
        )
    recovered = [(b.time - begin, r.took_us / 1e6) for b in restarted.batches for r in b.recoveries]
    axes.plot(*zip(*recovered, strict=True), "o", color=_RED, label="real, per bucket")
    axes.axhline(target_s, color=_DARK, linestyle="--", linewidth=1, label="asked for")
    axes.set_ylim(0, 1.15 * max(target_s, *(real for _, real in recovered)))
    axes.set_ylabel("seconds")
    axes.set_title("What a recovery would take", loc="left")
    axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 0.95))
