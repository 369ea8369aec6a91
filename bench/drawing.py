"""What pictures of benchmarks have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.experiment import Spread


def drawn_alike(own: Mapping[str, Any]) -> AbstractContextManager[None]:
    """The look of all pictures, and settings of one's own. The same numbers give the same bytes."""
    settings: dict[Any, Any] = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "trailmark",
        **own,
    }
    return rc_context(settings)


def save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    return path


def bars(
    axes: Axes,
    places: Sequence[str] | npt.NDArray[Any],
    found: Sequence[Spread],
    unit: float = 1.0,
    **style: Any,
) -> None:
    """A bar for every median, with a line from the least value to the greatest."""
    errors = [
        [(one.middle - one.least) / unit for one in found],
        [(one.most - one.middle) / unit for one in found],
    ]
    middles = [one.middle / unit for one in found]
    axes.bar(places, middles, yerr=errors, ecolor="#404040", capsize=3, **style)


def annotate_bar(axes: Axes, place: float, found: Spread, text: str) -> None:
    """A lying bar's line from the least value to the greatest, and what is written behind it."""
    axes.plot([found.least, found.most], [place, place], color="#333333", linewidth=1.5)
    axes.annotate(text, (found.most, place), (5, 0), textcoords="offset points", va="center")
