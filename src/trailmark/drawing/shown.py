"""``tm.status``: a status as a value that shows itself, in a notebook and in a prompt."""

from __future__ import annotations

import os
from typing import Any

from trailmark.drawing.bars import bars_of
from trailmark.drawing.html import html_of
from trailmark.drawing.kinds import draw
from trailmark.drawing.text import lines_of
from trailmark.errors import SettingError
from trailmark.inspection.read import LOOK_BACK
from trailmark.units import printable
from trailmark.watch.pictures import Picture, looker


def status(path: str | os.PathLike[str], *, look_back: int = LOOK_BACK) -> ShownStatus:
    """Where an operator, a stream, a union or a lease stands: what ``trailmark status`` says.

    Files are only read, beside whatever is running, and Spark is not needed. In a notebook the
    answer is a table and a small picture, anywhere else it prints as text. To look again, call
    again.

    Parameters
    ----------
    path
        What the operator or the stream was given as ``path``: a directory or a URL.
    look_back
        Batches whose footers are read at most, per bucket: sums and the last recovery cover these.

    Examples
    --------
    >>> tm.status("logs/average")                                        # doctest: +SKIP
    logs/average: aggregate by item, windows of 10 tuples
    batch 41, committed up to 41, written 1 s ago
    ...
    >>> tm.status("logs/average").describe()["predicted_us"]             # doctest: +SKIP
    139000
    """
    if look_back < 1:
        raise SettingError(
            f"It cannot look back {look_back} batches.", where="look_back", fix="Give 1 or more."
        )
    path = os.fspath(path)
    return ShownStatus(looker(path, look_back)(), path)


class ShownStatus:
    """What was seen at a path when it was looked at.

    Attributes
    ----------
    status
        The figures: an `OperatorStatus`, a `StreamStatus`, a `UnionStatus` or a `LeaseStatus`.
    path
        Where that is.
    """

    def __init__(self, status: Picture, path: str) -> None:
        self.status = status
        self.path = path

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong with the logs, as the exit code of the command tells."""
        return self.status.is_sound

    def describe(self) -> dict[str, Any]:
        """All of it as JSON: what ``trailmark status --json`` prints."""
        return {"path": self.path, **self.status.describe()}

    def __repr__(self) -> str:
        return printable("\n".join(lines_of(draw(self.status, self.path))))

    def _repr_html_(self) -> str:
        bars = bars_of(self.status)
        picture = "" if bars is None else bars.svg()
        return f"<div>{html_of(draw(self.status, self.path))}{picture}</div>"
