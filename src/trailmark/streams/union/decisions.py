"""The decisions of a union as files: see `decided`.

Operators behind the union go by its boundary, which they find here.
"""

from __future__ import annotations

from trailmark.log import Storage
from trailmark.streams.decided import Decided, Kind, newest_number, newest_of
from trailmark.streams.union.decision import NOTHING_YET, Decision

__all__ = ["Decisions", "newest_decision", "newest_number"]

_KIND = Kind(
    from_json=Decision.from_json,
    nothing_yet=NOTHING_YET,
    whose="union",
    taken="Another query, or another part of this one, has begun to run the same union.",
    alone="Give each query that runs a union a path of its own. One that uses a union "
    "twice, to join it with itself for example, needs two of them with two paths.",
    gone_on="Give each query that runs a union a path of its own. If this is the same query and "
    "its Spark checkpoint was deleted or went back, restore the checkpoint or start with an "
    "empty path.",
)


class Decisions(Decided[Decision]):
    """Those of one that plans the batches of a union, from where its query stands."""

    def __init__(self, storage: Storage, start: Decision, planned: Decision | None = None) -> None:
        super().__init__(storage, _KIND, start, planned)


def newest_decision(storage: Storage) -> Decision:
    """The newest one; `NOTHING_YET` if there is none."""
    return newest_of(storage, _KIND)
