"""Functions of a user's own in a module, as readers of a state name them."""

from __future__ import annotations

from tests.support.userfunctions import notes, spread, trail, weighted
from trailmark.windows import functions as f
from trailmark.windows.functions import AnyFunction

#: ``values`` of an aggregate over columns ``n`` and ``x``.
VALUES: dict[str, AnyFunction] = {
    "trail": trail("n"),
    "spread": spread("x"),
    "weighted": weighted("n", "n"),
    "notes": notes("n"),
    "number": f.count(),
}


class Kept:
    """A place in a module that is no name of its own."""

    values = VALUES
