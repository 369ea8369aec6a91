"""What a union has given out before all its streams were complete, and how far it is corrected."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from trailmark.log.json_text import object_of, text_of, whole
from trailmark.log.names import LARGEST_BATCH
from trailmark.records import MOST_PORTS
from trailmark.streams.times import EARLIEST, LATEST
from trailmark.values import dataclass

#: Places that are remembered at which a correction may rest.
_MOST_EDGES = 64


class Phase(str, enum.Enum):
    """What a union, and whatever is behind it, is doing."""

    #: All that was given out stands.
    STABLE = "STABLE"
    #: Streams are missing: what the others have is given out as tentative.
    UP_FAILURE = "UP_FAILURE"
    #: They are back, and what was tentative is replaced.
    STABILIZATION = "STABILIZATION"


@dataclass(frozen=True, slots=True)
class Edge:
    """The time up to which a decision gave out tentative rows."""

    time_us: int
    number: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far a union is ahead of what is complete.

    Parameters
    ----------
    until_us
        Rows before this time were given out, those that are not complete as tentative.
    since
        The first decision whose tentative rows still stand; those of earlier ones are replaced.
    phase
        Whether streams are missing, or what was tentative is being replaced.
    missing
        The streams that are not complete up to ``until_us``.
    began_us
        When the union began to be ahead, by the clock.
    edges
        Where tentative parts end, the earliest first. What is replaced ends at one of these, so
        that a part is replaced as a whole; one that is replaced in part is void as a whole.
    """

    until_us: int
    since: int
    phase: Phase
    missing: tuple[str, ...]
    began_us: int
    edges: tuple[Edge, ...]

    def rest_before(self, wanted_us: int) -> int | None:
        """The last place not after a time where a correction may rest; None if there is none."""
        if wanted_us >= self.until_us:
            return wanted_us
        return max((e.time_us for e in self.edges if e.time_us <= wanted_us), default=None)

    def to_json(self) -> dict[str, Any]:
        """As it is kept, within a decision."""
        return {
            "began_us": self.began_us,
            "edges": [[each.time_us, each.number] for each in self.edges],
            "missing": list(self.missing),
            "phase": self.phase.value,
            "since": self.since,
            "until_us": self.until_us,
        }

    @classmethod
    def from_json(cls, stored: object) -> Ahead:
        """From what is kept; raises ``KeyError`` or ``ValueError``."""
        body = object_of(stored)
        edges, missing = body["edges"], body["missing"]
        if not isinstance(edges, list) or not isinstance(missing, list):
            raise ValueError("no list")
        if not edges or len(missing) > MOST_PORTS:
            raise ValueError("no edge, or too many inputs")
        return cls(
            whole(body["until_us"], EARLIEST, LATEST),
            whole(body["since"], 0, LARGEST_BATCH),
            Phase(body["phase"]),
            tuple(text_of(name) for name in missing),
            whole(body["began_us"], EARLIEST, LATEST),
            tuple(_edge(each) for each in edges),
        )


def _edge(stored: object) -> Edge:
    if not isinstance(stored, list) or len(stored) != 2:
        raise ValueError("no edge")
    time_us, number = stored
    return Edge(whole(time_us, EARLIEST, LATEST), whole(number, 0, LARGEST_BATCH))


def moved_on(
    before: Ahead | None,
    released_us: int | None,
    until_us: int,
    number: int,
    phase: Phase,
    missing: Sequence[str],
    now_us: int,
    *,
    is_cut: bool = False,
) -> Ahead:
    """After the decision with this number, which has replaced everything before ``released_us`` and
    given out tentative rows before ``until_us``. ``is_cut`` says that it has replaced a part of the
    first part that is left."""
    kept: list[Edge] = []
    since, began_us, ahead_us = number, now_us, None
    if before is not None and not _is_at(released_us, before.until_us):
        since, began_us, ahead_us = before.since, before.began_us, before.until_us
        for edge in before.edges:
            if _is_at(released_us, edge.time_us):
                since = edge.number + 1
            else:
                kept.append(edge)
        if is_cut:
            since = kept[0].number + 1
    if ahead_us is None or until_us > ahead_us:
        kept.append(Edge(until_us, number))
    if len(kept) > _MOST_EDGES:
        # Parts that are left out are replaced together with the next.
        kept = [*kept[:-1][1::2], kept[-1]]
    return Ahead(until_us, since, phase, tuple(missing), began_us, tuple(kept))


def _is_at(released_us: int | None, time_us: int) -> bool:
    """Whether everything before a time is released."""
    return released_us is not None and released_us >= time_us
