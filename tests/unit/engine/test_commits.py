"""Commit marks: written once each, and only the newest are kept."""

from __future__ import annotations

import pytest

from trailmark.engine.commits import RunMarks, check_not_rolled_back, newest_mark
from trailmark.errors import BatchGoesBackward
from trailmark.records import NO_BATCH
from trailmark.testing.disk import SimulatedDisk


def test_the_newest_mark_is_found_and_old_ones_are_removed() -> None:
    storage = SimulatedDisk().storage()
    assert newest_mark(storage) == NO_BATCH
    marks = RunMarks(storage, "one")
    for batch in range(300):
        assert marks.commit(batch)
        assert newest_mark(storage) == batch
    assert 64 <= len(storage.list("commits")) <= 128
    assert bytes(storage.read(f"commits/{299:020d}")) == b"committed by run one\n"


def test_a_run_that_tells_of_a_batch_twice_tells_nothing_new() -> None:
    storage = SimulatedDisk().storage()
    assert RunMarks(storage, "one").commit(0)
    listeners = [RunMarks(storage, "two"), RunMarks(storage, "two")]
    for batch in (1, 2, 3):
        assert all(marks.commit(batch) for marks in listeners)
    assert listeners[0].commit(2), "its answer was lost"
    check_not_rolled_back(storage)


def test_a_run_that_repeats_the_newest_batch_has_not_gone_back() -> None:
    storage = SimulatedDisk().storage()
    one = RunMarks(storage, "one")
    for batch in range(4):
        assert one.commit(batch)
    two = RunMarks(storage, "two")
    assert two.commit(3)
    assert two.commit(4)
    check_not_rolled_back(storage)
    assert newest_mark(storage) == 4


@pytest.mark.parametrize("first", range(8))
def test_a_run_that_was_overtaken_does_not_condemn_its_successor(first: int) -> None:
    """Whatever batch it tells of late, and whether or not it had told of any before."""
    storage = SimulatedDisk().storage()
    for batch in range(first):
        assert RunMarks(storage, "before").commit(batch)
    zombie, successor = RunMarks(storage, "zombie"), RunMarks(storage, "successor")
    for batch in range(first, 200):
        assert successor.commit(batch)
    for batch in range(first, 10):
        assert zombie.commit(batch)
    assert successor.commit(200)
    check_not_rolled_back(storage)


def test_logs_of_a_query_that_went_back_take_no_batch() -> None:
    storage = SimulatedDisk().storage()
    one = RunMarks(storage, "one")
    for batch in range(8):
        assert one.commit(batch)
    check_not_rolled_back(storage)
    two = RunMarks(storage, "two")
    assert not two.commit(5)
    assert not two.commit(6)
    expected = "batch 5 was committed again by run two, which began after batch 7 was"
    with pytest.raises(BatchGoesBackward, match=expected) as refused:
        check_not_rolled_back(storage)
    assert "delete this file" in refused.value.fix
    storage.delete(refused.value.where)
    check_not_rolled_back(storage)


def test_marks_that_do_not_name_their_run_are_understood() -> None:
    storage = SimulatedDisk().storage()
    for batch in range(3):
        storage.publish(f"commits/{batch:020d}", [b"committed\n"])
    assert newest_mark(storage) == 2
    marks = RunMarks(storage, "one")
    assert marks.commit(2)
    assert marks.commit(3)
    assert not RunMarks(storage, "two").commit(1)
