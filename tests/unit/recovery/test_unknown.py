"""Segments of a later format: a recovery refuses them, where it would go around damage."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.followed import Followed
from tests.support.harm import flip_in, segment_path
from tests.support.orders import count_case, random_orders
from tests.support.unknown import NEWS, renew_segment
from trailmark.checkpoint.policy import Continuous, FullSnapshot, Policy
from trailmark.errors import UnknownFormat
from trailmark.records import Foundation, Stream

_BATCHES = 12


@pytest.fixture(params=NEWS)
def news(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _run(policy: Policy | None = None, cache_root: Path | None = None) -> Followed:
    """Stands before its last batch; the extent of a recovery covers several segments."""
    batches = random_orders(random.Random(1), batches=_BATCHES, rows=25, items=14)
    case = count_case(batches, size=6, slide=4)
    run = Followed(case, policy or Continuous(u=70), cache_root=cache_root)
    run.run(_BATCHES - 1)
    run.query.stop()
    return run


def _renew(run: Followed, stream: Stream, batch: int, news: str) -> None:
    renew_segment(run.disk.storage(), segment_path(stream, batch), news)


def _refused(run: Followed, news: str) -> None:
    """The next batch in a new process is refused, and everything that was there stays."""
    before = {name: run.disk.content(name) for name in run.disk.files()}
    with pytest.raises(UnknownFormat, match=NEWS[news][1]):
        run.step()
    assert {name: run.disk.content(name) for name in before} == before


def test_no_segment_of_the_extent_is_gone_around(news: str) -> None:
    whole = _run()
    standing = whole.recounts[0].standing(_BATCHES - 2)
    assert standing.oldest is not None
    assert _BATCHES - standing.oldest >= 4
    for batch in range(standing.oldest, _BATCHES - 1):
        run = whole.copy()
        _renew(run, Stream.OUTPUT, batch, news)
        _refused(run, news)


def test_what_comes_into_view_only_behind_damage_is_not_gone_around_either(news: str) -> None:
    run = _run()
    flip_in(run.disk, Stream.OUTPUT, _BATCHES - 2)
    _renew(run, Stream.OUTPUT, _BATCHES - 3, news)
    _refused(run, news)


def test_input_that_is_replayed_is_refused(news: str) -> None:
    run = _run()
    _renew(run, Stream.INPUT, _BATCHES - 2, news)
    _refused(run, news)


def test_a_snapshot_is_refused_and_no_older_one_is_taken(news: str) -> None:
    run = _run(FullSnapshot(4, asynchronous=True))
    footer, _ = run.query.logs().output(0).read_footer(_BATCHES - 2)
    assert footer.attributes["foundation"] == Foundation.SNAPSHOT.value
    _renew(run, Stream.SNAPSHOT, footer.attributes["base"], news)
    _refused(run, news)


def test_a_snapshot_that_was_just_begun_is_refused(news: str, tmp_path: Path) -> None:
    """The state is cached, so nobody reads the snapshot to recover: only whether it is stored."""
    batches = random_orders(random.Random(1), batches=_BATCHES, rows=25, items=14)
    policy = FullSnapshot(4, asynchronous=True)
    run = Followed(count_case(batches, size=6), policy, cache_root=tmp_path)
    snapshots = run.query.logs().snapshots(0)
    while not snapshots.batches():
        run.step()
        run.query.stop()
    _renew(run, Stream.SNAPSHOT, snapshots.newest(), news)
    _refused(run, news)


def test_a_cached_state_is_not_used_after_an_output_segment_that_is_unknown(
    news: str, tmp_path: Path
) -> None:
    run = _run(cache_root=tmp_path)
    _renew(run, Stream.OUTPUT, _BATCHES - 2, news)
    _refused(run, news)


def test_a_batch_that_is_done_again_is_refused(news: str) -> None:
    run = _run()
    _renew(run, Stream.OUTPUT, _BATCHES - 2, news)
    before = {name: run.disk.content(name) for name in run.disk.files()}
    with pytest.raises(UnknownFormat, match=NEWS[news][1]):
        run.query.run(_BATCHES - 2, run.parts(_BATCHES - 2))
    assert {name: run.disk.content(name) for name in run.disk.files()} == before
