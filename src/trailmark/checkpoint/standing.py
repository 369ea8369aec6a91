"""What the account is told at the end of a batch: by the table, the policy and whoever writes
snapshots."""

from __future__ import annotations

from trailmark.records import NO_BATCH
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot that is safely stored: of the end of a batch, with so many windows, and what their
    records weigh beyond one each."""

    batch: int
    windows: int
    excess: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What the table and the policy say at the end of a batch.

    ``oldest`` is the oldest footprint. With ``marks_openings`` there are none, and what the table
    has in their place are the batches that windows opened in. ``covered``: up to the end of that
    batch, a window whose footprint is older has not changed since. ``snapshot``: the newest that is
    stored. ``looks_back``: the oldest batch to whose tuples the state refers.
    Where not ``catches_up``, windows are not brought up to date one by one, and only those that are
    covered up to a batch lead to the state at its end. ``footprints_excess``: what the footprints
    that the batch writes weigh beyond one each.
    """

    open_windows: int
    oldest: int | None
    marks_openings: bool = False
    covered: int = NO_BATCH
    snapshot: StoredSnapshot | None = None
    looks_back: int | None = None
    footprints_excess: int = 0
    catches_up: bool = True
