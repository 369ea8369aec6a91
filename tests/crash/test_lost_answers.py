"""Calls that are carried out and reported as failed, each in turn: what is there counts."""

from __future__ import annotations

import errno
import random

import pytest

from tests.support.lives import life_of, refusal_of
from tests.support.logs import append, open_log, rows_of
from tests.support.small import SMALL_KINDS, small_buckets
from trailmark.errors import StorageError
from trailmark.log import RepeatedTrim
from trailmark.records import START_OF_LOG, FrameKind
from trailmark.testing.disk import REPEATABLE, SimulatedDisk


@pytest.mark.parametrize("code", [None, errno.EIO], ids=["repeated", "EIO"])
@pytest.mark.parametrize("kind", SMALL_KINDS)
def test_an_answer_that_is_lost_makes_no_difference_to_a_query(kind: str, code: int | None) -> None:
    """Every second time the query goes on in a new process."""
    first = 1 if code is None else 2
    apart = (
        2 if small_buckets(kind) == 1 else 6
    )  # where there are two buckets, there are many calls
    for call in range(first, _calls_of(kind) + 1, apart):
        life = life_of(kind, SimulatedDisk())
        disk = life.query.disk
        disk.lose_answer(call, code)
        refused = 0
        for step in life.steps():
            if refusal_of(step, StorageError) is None:
                continue
            refused += 1
            if call // apart % 2:
                life.query.stop()
            step()
        assert disk.failed is not None
        name, _ = disk.failed
        is_looked_at = name == "link" or (name in REPEATABLE and code is None)
        assert refused <= (0 if is_looked_at else 1), disk.failed
        life.check()
        life.query.stop()


def _calls_of(kind: str) -> int:
    life = life_of(kind, SimulatedDisk())
    for step in life.steps():
        step()
    life.query.stop()
    return life.query.disk.calls


@pytest.mark.parametrize("code", [None, errno.EIO], ids=["repeated", "EIO"])
def test_an_answer_that_is_lost_harms_no_log_that_is_written_over_its_spares(
    code: int | None,
) -> None:
    call = 0
    while _goes_on_over_spares(call := call + 1, code):
        pass
    assert call > 40


def _goes_on_over_spares(call: int, code: int | None) -> bool:
    """Whether there was a call whose answer was lost."""
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    links = [append(log, 0, START_OF_LOG).link]
    for batch in range(1, 20):
        links.append(append(log, batch, links[-1]).link)
    trims = RepeatedTrim(log.reader)
    trims.trim(10, most=32)
    assert any("/spare-" in path for path in disk.files())
    disk.lose_answer(call, code)
    for batch in range(20, 24):
        try:
            published = append(log, batch, links[-1])
        except StorageError:
            published = append(log, batch, links[-1])
        links.append(published.link)
        try:
            trims.trim(batch - 8, most=32)
        except StorageError:
            trims.trim(batch - 8, most=32)
    disk.crash(random.Random(call))
    log = open_log(disk.storage())
    found = {segment.batch: segment for segment in log.read_from()}
    assert [found[link.batch].link for link in links[15:]] == links[15:]
    assert all(each.table(FrameKind.INPUT) == rows_of(batch) for batch, each in found.items())
    assert log.verify().problems == []
    return disk.failed is not None
