"""A policy changes costs, never results: it may be another one after every restart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.followed import Followed
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.policies import random_footprints, random_policy
from tests.support.seeds import reported, seeds
from tests.support.strategies import random_case
from trailmark.checkpoint.policy import (
    Continuous,
    CostBenefit,
    Delta,
    FullSnapshot,
    NoCheckpoint,
    Policy,
    SlowWindows,
    UpstreamBackup,
)

_NONE, _CONTINUOUS = NoCheckpoint(), Continuous(q=60, u=40)


@pytest.mark.parametrize(
    "policies",
    [
        [_NONE] * 4 + [_CONTINUOUS] * 4 + [_NONE] * 4,
        [_CONTINUOUS] * 4 + [_NONE] * 4 + [_CONTINUOUS] * 4,
        [_NONE, _CONTINUOUS] * 6,
        [Continuous()] * 4 + [Continuous(q=1, u=1)] * 4 + [Continuous()] * 4,
    ],
    ids=["none-continuous-none", "continuous-none-continuous", "in turns", "targets"],
)
@pytest.mark.parametrize("restarts", ["every batch", "with the policy"])
@pytest.mark.parametrize("kind", ["count", "time"])
def test_a_query_whose_policy_changes_goes_on_exactly(
    policies: Sequence[Policy], restarts: str, kind: str
) -> None:
    rng = random.Random(4)
    case = (
        count_case(random_orders(rng, batches=12, rows=25, items=15), size=5, slide=3)
        if kind == "count"
        else time_case(random_timed_orders(rng, batches=12, rows=25, items=5))
    )
    run = Followed(case, policies[0])
    for policy in policies:
        if restarts == "every batch" or policy != run.query.policy:
            run.query.stop()
        run.query.policy = policy
        run.step()
        run.check_accounts()


@pytest.mark.parametrize("part", range(2))
def test_random_queries_go_on_exactly_under_a_new_policy_every_time(part: int) -> None:
    for seed in seeds(60)[part::2]:
        rng = random.Random(seed)
        case = random_case(rng)
        with reported(seed, case):
            run = Followed(case, random_footprints(rng))
            for _ in run.steps():
                run.check_accounts()
                run.query.policy = random_footprints(rng)
                run.query.stop()


@pytest.mark.parametrize("part", range(4))
def test_any_policy_may_follow_any_other_whatever_is_left_of_the_state(
    part: int, tmp_path: Path
) -> None:
    """Before every batch the process goes on, or another one finds the table in the cache, or
    recovers; with the same policy or with another one."""
    for seed in seeds(120)[part::4]:
        rng = random.Random(seed)
        case = random_case(rng)
        root = tmp_path / str(seed) if rng.random() < 0.7 else None
        with reported(seed, case):
            run = Followed(case, random_policy(rng), buckets=rng.choice((1, 1, 2)), cache_root=root)
            for _ in run.steps():
                if rng.random() < 0.2:
                    for bucket in run.query.open():
                        bucket.trim(acknowledged=rng.choice((None, run.next_batch)))
                if rng.random() < 0.7:
                    _hand_over(run, rng)
            run.query.stop()


def _hand_over(run: Followed, rng: random.Random) -> None:
    """To another process, which may have another policy, and may find no cache."""
    run.query.stop()
    if rng.random() < 0.6:
        run.query.policy = random_policy(rng)
    if run.query.cache_root is not None and rng.random() < 0.3:
        for token in run.query.cache_root.glob("*/*/token"):
            token.unlink()


_EACH: dict[str, Policy] = {
    "none": NoCheckpoint(),
    "upstream backup": UpstreamBackup(),
    "targets": Continuous(q=60, u=40),
    "objective": Continuous.within("21 ms"),
    "cost-benefit": CostBenefit(failure_rate=100.0),
    "slow windows": SlowWindows("100 us", "200 us", shots=2),
    "snapshots": FullSnapshot(3),
    "snapshots behind": FullSnapshot(2, asynchronous=True),
    "deltas": Delta(2, full_every=3),
}


@pytest.mark.parametrize("second", _EACH)
@pytest.mark.parametrize("first", _EACH)
def test_every_policy_follows_every_other_exactly(first: str, second: str, tmp_path: Path) -> None:
    """There and back, with a recovery and without; afterwards a recovery gives the same state."""
    rng = random.Random(7)
    counted = count_case(random_orders(rng, batches=13, rows=20, items=12), size=5, slide=3)
    timed = time_case(random_timed_orders(rng, batches=13, rows=20, items=5))
    for case, root in ((counted, None), (timed, tmp_path)):
        run = Followed(case, _EACH[first], cache_root=root)
        for policy in (first, second, first):
            run.query.stop()
            run.query.policy = _EACH[policy]
            run.run(4)
        run.query.stop()
        run.copy().step()


@pytest.mark.parametrize("part", range(2))
def test_a_query_that_is_restarted_writes_the_footprints_of_one_that_is_not(part: int) -> None:
    for seed in seeds(60)[part::2]:
        rng = random.Random(seed)
        case = random_case(rng)
        # Without a budget: what is affordable depends on time.
        policies = [
            Continuous(q=rng.choice((None, 5, 40)), u=rng.choice((None, 5, 40)))
            if rng.random() < 0.6
            else NoCheckpoint()
            for _ in case.batches
        ]
        with reported(seed, case):
            written = []
            for restart_share in (0.0, 0.7):
                run = Followed(case, policies[0])
                for policy in policies:
                    if rng.random() < restart_share:
                        run.query.stop()
                    elif policy != run.query.policy:
                        _change_policy(run, policy)
                    run.query.policy = policy
                    run.step()
                written.append({(f.batch, f.identity, f.kind) for f in run.recounts[0].footprints})
            assert written[0] == written[1]


def _change_policy(run: Followed, policy: Policy) -> None:
    """The same process goes on under another policy, as no user can ask it to."""
    for bucket in run.query.open():
        bucket._checkpoints.policy = policy
        if bucket._keeper.state is not None:
            bucket._keeper.state.notes.chooser = policy.begin()


def test_the_first_batch_with_footprints_makes_up_for_all_that_were_not_written() -> None:
    batches = random_orders(random.Random(5), batches=6, rows=30, items=20)
    run = Followed(count_case(batches, size=9), NoCheckpoint())
    run.run(4)
    run.query.stop()
    run.query.policy = Continuous()
    (report,) = run.step()
    assert report.footprints_opened == report.account.open_windows
    assert report.account.base == 4
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is not None
    assert report.recovery.plan.base == 4


def test_footprints_of_an_earlier_policy_are_built_upon() -> None:
    batches = random_orders(random.Random(6), batches=8, rows=30, items=20)
    run = Followed(count_case(batches, size=9), Continuous(u=0))
    run.run(4)
    run.query.policy = NoCheckpoint()
    run.query.stop()
    run.run(3)
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is not None
    plan = report.recovery.plan
    assert plan.oldest == 3
    assert plan.open_windows > 0


def test_every_output_footer_says_which_policy_wrote_it() -> None:
    run = Followed(count_case([[(1, 1)], [(1, 1)]]), NoCheckpoint())
    run.step()
    run.query.stop()
    run.query.policy = Continuous(q=5)
    run.step()
    log = run.query.logs().output(0)
    found = [log.read_footer(batch)[0].attributes["policy"] for batch in range(2)]
    assert found == [NoCheckpoint().describe(), Continuous(q=5).describe()]
