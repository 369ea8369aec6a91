"""How far results go: a count and a digest for each bucket, which are alike on all replicas."""

from __future__ import annotations

from typing import Any, TypeAlias

from trailmark.log.json_text import text_of, whole
from trailmark.records import Fingerprint

#: What each bucket has given.
Position: TypeAlias = tuple[Fingerprint, ...]


def results_at(position: Position) -> int:
    """How many results there are before a position."""
    return sum(each.rows for each in position)


def has_reached(given: Position, position: Position) -> bool:
    """Whether all that leads to a position has been given. Replicas give whole slices of time, so
    what one of them has in any bucket the other has when it has as much."""
    return all(ours.rows >= theirs.rows for ours, theirs in zip(given, position, strict=True))


def is_ahead(given: Position, position: Position) -> bool:
    """Whether all that leads to a position has been given, and something more."""
    return has_reached(given, position) and results_at(given) > results_at(position)


def earlier(one: Position, other: Position) -> Position:
    """The one of two positions that the other goes on from."""
    return one if is_ahead(other, one) else other


def position_to_json(position: Position) -> list[list[Any]]:
    """As it is kept in an offset. Digests are text: not every reader of JSON has 64 bits."""
    return [[each.rows, f"{each.digest:016x}"] for each in position]


def position_from_json(stored: object) -> Position:
    """From what is kept; raises ``TypeError`` or ``ValueError``."""
    if not isinstance(stored, list):
        raise ValueError("no positions")
    return tuple(
        Fingerprint(whole(rows, 0, 2**62), int(text_of(digest), 16)) for rows, digest in stored
    )
