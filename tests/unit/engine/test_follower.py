"""A follower has the table of a bucket ready on another host, and disturbs nobody."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.crashes import OTHER_KINDS, at_any_price
from tests.support.followed import Followed
from tests.support.harm import flip_in
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.policies import ONE_OF_EACH, policy_for
from tests.support.seeds import reported, seeds
from tests.support.strategies import random_case
from trailmark.checkpoint.policy import Continuous
from trailmark.inspection.logs import existing_meta
from trailmark.records import Loss, Stream
from trailmark.state.cache import StateCache
from trailmark.streams.operator_state import operator_of
from trailmark.testing.disk import SimulatedDisk


def _counted(root: Path) -> Followed:
    batches = random_orders(random.Random(3), batches=10, rows=25, items=12)
    case = count_case(batches, size=5, slide=3)
    return Followed(case, Continuous(q=60, u=40), cache_root=root / "here")


def _timed(root: Path) -> Followed:
    batches = random_timed_orders(random.Random(4), batches=10, rows=20, items=5)
    return Followed(time_case(batches), Continuous(q=60, u=40), cache_root=root / "here")


def _as_it_is(token: Path) -> tuple[int, int, str]:
    """Replacing it would change this, looking at it does not."""
    found = token.stat()
    return found.st_ino, found.st_mtime_ns, token.read_text()


def _take_over(run: Followed, host: Path) -> None:
    run.query.stop()
    run.query.cache_root = host


@pytest.mark.parametrize("policy", ONE_OF_EACH)
@pytest.mark.parametrize("make", [_counted, _timed], ids=["count", "time"])
def test_who_takes_over_on_another_host_finds_the_state(
    make: Callable[[Path], Followed], policy: str, tmp_path: Path
) -> None:
    run, there = make(tmp_path), tmp_path / "there"
    run.query.policy = ONE_OF_EACH[policy]
    for _ in range(6):
        run.step()
        assert run.query.follow(there) == [0]
    _take_over(run, there)
    (report,) = run.step()
    assert report.recovery is None
    assert report.caught_up is None
    for _ in range(3):
        run.copy().step()  # which recovers, and is judged
        run.step()


@pytest.mark.parametrize("kind", ["aggregate", *OTHER_KINDS])
def test_operators_made_again_from_their_logs_are_followed(kind: str, tmp_path: Path) -> None:
    for seed in seeds(4):
        rng = random.Random(seed)
        case = random_case(rng) if kind == "aggregate" else OTHER_KINDS[kind](rng)
        with reported(seed, case):
            here, there = tmp_path / f"{seed} here", tmp_path / f"{seed} there"
            run = Followed(case, policy_for(rng, case), cache_root=here)
            for (report,) in run.steps():
                assert report.recovery is None
                operator = None
                if kind != "pairing":  # which only the tests know
                    operator = operator_of(existing_meta(run.disk.storage()), case.code())
                assert run.query.follow(there, operator) == [0]
                if rng.random() < 0.3:
                    here, there = there, here
                    _take_over(run, here)
            run.query.stop()


def test_a_table_a_few_batches_behind_catches_up(tmp_path: Path) -> None:
    run, there = _counted(tmp_path), tmp_path / "there"
    run.run(3)
    assert run.query.follow(there) == [0]
    run.run(2)
    _take_over(run, there)
    with at_any_price():
        (report,) = run.step()
    assert report.caught_up is not None
    assert report.caught_up.batches == 2


def test_on_the_host_of_the_query_there_is_nothing_to_do(tmp_path: Path) -> None:
    run, here = _counted(tmp_path), tmp_path / "here"
    for _ in range(8):
        run.step()
        (token,) = here.glob("*/00000/token")
        before = _as_it_is(token)
        assert run.query.follow(here) == [0]
        assert _as_it_is(token) == before
        run.query.stop()
        assert run.query.follow(here) == [0]
        assert _as_it_is(token) == before


def test_a_directory_that_hosts_share_is_left_to_the_query(tmp_path: Path) -> None:
    """What another host has left is no table here, and building one would take it from there."""
    run, here = _counted(tmp_path), tmp_path / "here"
    run.run(3)
    run.query.stop()
    (token,) = here.glob("*/00000/token")
    token.write_text(json.dumps({**json.loads(token.read_text()), "boot": "of another host"}))
    before = _as_it_is(token)
    assert run.query.follow(here) == [0]
    assert _as_it_is(token) == before


def test_a_bucket_that_is_at_work_is_left_alone(tmp_path: Path) -> None:
    run, here = _counted(tmp_path), tmp_path / "here"
    run.run(3)
    run.query.stop()
    held = StateCache(here).acquire(run.query.logs().log_id, 0).cached
    assert held is not None
    held.begin_change()
    assert run.query.follow(here) == [None]
    held.close()
    run.step()


def test_what_may_be_lost_is_not_followed(tmp_path: Path) -> None:
    run = _timed(tmp_path)
    run.query.loss = Loss.BOUNDED
    run.run(3)
    assert run.query.follow(tmp_path / "there") == [None]


def test_a_state_around_damage_is_left_to_who_goes_on_from_there(tmp_path: Path) -> None:
    run, there = _counted(tmp_path), tmp_path / "there"
    run.run(4)
    flip_in(run.disk, Stream.OUTPUT, 3)
    assert run.query.follow(there) == [None]
    _take_over(run, there)
    (report,) = run.step()
    assert report.recovery is not None
    assert report.recovery.plan.skipped


def test_a_log_without_batches_is_followed(tmp_path: Path) -> None:
    run = Followed(_counted(tmp_path).case, Continuous(), disk=SimulatedDisk())
    run.query.logs()
    assert run.query.follow(tmp_path / "there") == [0]
