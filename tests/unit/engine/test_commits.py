"""Commit marks: written once each, and only the newest are kept."""

from __future__ import annotations

from tests.support.disk import SimulatedDisk
from trailmark.engine.commits import mark_committed, newest_mark
from trailmark.records import NO_BATCH


def test_the_newest_mark_is_found_and_old_ones_are_removed() -> None:
    storage = SimulatedDisk().storage()
    assert newest_mark(storage) == NO_BATCH
    for batch in range(300):
        mark_committed(storage, batch)
        mark_committed(storage, batch)
        assert newest_mark(storage) == batch
    assert 64 <= len(storage.list("commits")) <= 128
