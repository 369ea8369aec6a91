"""Commit marks: written once each, and only the newest are kept."""

from __future__ import annotations

import pytest

from tests.support.disk import SimulatedDisk
from trailmark.engine.commits import (
    check_not_rolled_back,
    mark_committed,
    mark_rolled_back,
    newest_mark,
)
from trailmark.errors import BatchGoesBackward
from trailmark.records import NO_BATCH


def test_the_newest_mark_is_found_and_old_ones_are_removed() -> None:
    storage = SimulatedDisk().storage()
    assert newest_mark(storage) == NO_BATCH
    for batch in range(300):
        assert mark_committed(storage, batch)
        assert not mark_committed(storage, batch), "a batch is committed once"
        assert newest_mark(storage) == batch
    assert 64 <= len(storage.list("commits")) <= 128


def test_logs_of_a_query_that_went_back_take_no_batch() -> None:
    storage = SimulatedDisk().storage()
    check_not_rolled_back(storage)
    mark_rolled_back(storage, 7)
    mark_rolled_back(storage, 8)
    with pytest.raises(BatchGoesBackward, match="batch 7 was committed twice") as refused:
        check_not_rolled_back(storage)
    assert "delete this file" in refused.value.fix
    storage.delete(refused.value.where)
    check_not_rolled_back(storage)
