"""`FullSnapshot` and `Delta`: what is in the output log, and when."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.cases import Case
from tests.support.followed import Followed
from tests.support.oracle import Identity, Row
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.seeds import reported, seeds
from tests.support.strategies import random_case
from tests.support.work import Costs, Worked
from trailmark.checkpoint.policy import Delta, FullSnapshot, Periodic, Policy
from trailmark.engine import BatchReport
from trailmark.records import Foundation

_BATCHES = 18
_NO_TIME = Costs(0, 0, 0, 0, 0, 0, 0)
_SECOND_US = 1_000_000.0


def _cases() -> dict[str, Case]:
    rng = random.Random(4)
    return {
        "tumbling": count_case(random_orders(rng, batches=_BATCHES, rows=25, items=40), size=6),
        "overlapping": count_case(
            random_orders(rng, batches=_BATCHES, rows=25, items=30), size=6, slide=4
        ),
        "gapped": count_case(
            random_orders(rng, batches=_BATCHES, rows=25, items=30), size=3, slide=7
        ),
        "time": time_case(
            random_timed_orders(rng, batches=_BATCHES, rows=25, items=15), slide=5_000_000
        ),
    }


_CASES = _cases()
_KINDS = pytest.mark.parametrize("kind", _CASES)


def _written(run: Followed, batch: int) -> set[Identity]:
    return {f.identity for f in run.recounts[0].footprints if f.batch == batch}


def _states(run: Followed) -> dict[Identity, Row]:
    states: dict[Identity, Row] = run.judge.oracle(0).open_windows()
    return states


def _changed(before: Mapping[Identity, Row], now: Mapping[Identity, Row]) -> set[Identity]:
    """The windows of ``now`` that are new or have another state."""
    return {window for window, state in now.items() if before.get(window) != state}


# Everything, every so often


@_KINDS
@pytest.mark.parametrize("every", [1, 3, 5])
def test_all_windows_are_written_every_so_many_batches_and_none_between(
    kind: str, every: int
) -> None:
    run = Followed(_CASES[kind], FullSnapshot(every))
    for (report,) in run.steps():
        is_due = report.batch % every == 0
        expected = set(_states(run)) if is_due else set()
        assert _written(run, report.batch) == expected, f"batch {report.batch}"
        if is_due and expected:
            assert (report.account.oldest, report.account.extent) == (
                report.batch,
                len(expected) + report.results.num_rows,
            )


def _batches_written(policy: Policy, idle_us: float) -> list[int]:
    rows = [[(item, 1) for item in range(5)]] * 24
    run = Worked(count_case(rows, size=1_000), policy, _NO_TIME, idle_us=idle_us)
    reports = [run.step() for _ in range(24)]
    return [r.batch for r in reports if r.footprints_opened + r.footprints_checked]


@pytest.mark.parametrize(
    "policy", [FullSnapshot("5 seconds"), Periodic("5 seconds"), Delta("5 seconds")], ids=str
)
def test_a_snapshot_is_written_in_the_first_batch_that_ends_so_long_after_the_last(
    policy: Policy,
) -> None:
    assert _batches_written(policy, _SECOND_US) == [0, 5, 10, 15, 20]
    assert _batches_written(policy, 2 * _SECOND_US) == [0, 3, 6, 9, 12, 15, 18, 21]
    assert _batches_written(policy, 60 * _SECOND_US) == list(range(24))
    assert _batches_written(policy, 0.0) == [0]


@pytest.mark.parametrize(("first", "then"), [(FullSnapshot, Periodic), (Periodic, FullSnapshot)])
def test_logs_go_on_in_the_same_rhythm_under_the_other_name(
    first: type[FullSnapshot], then: type[FullSnapshot], tmp_path: Path
) -> None:
    """The table is in the cache, so nothing is written before it is due."""
    run = Followed(_CASES["tumbling"], first(7), cache_root=tmp_path)
    run.run(10)
    run.query.stop()
    run.query.policy = then(7)
    run.run()
    run.query.stop()
    assert [batch for batch in range(_BATCHES) if _written(run, batch)] == [0, 7, 14]


@_KINDS
def test_a_recovery_begins_at_the_last_snapshot(kind: str) -> None:
    run = Followed(_CASES[kind], FullSnapshot(5))
    while run.next_batch < _BATCHES - 1:
        run.step()
        target = run.next_batch - 1
        last = target // 5 * 5
        (report,) = run.copy().step()
        assert report.recovery is not None
        plan = report.recovery.plan
        assert plan.replay_from == last + 1, f"after batch {target}"
        assert plan.segments_read <= target - last + 1


@pytest.mark.parametrize("policy", [FullSnapshot(7), Delta(7)], ids=str)
def test_after_a_recovery_everything_is_written_at_once(policy: Policy) -> None:
    run = Followed(_CASES["tumbling"], policy)
    run.run(10)
    run.query.stop()
    run.run()
    due = [batch for batch in range(_BATCHES) if _written(run, batch)]
    assert due == [0, 7, 10, 17]
    assert len(_written(run, 10)) == len(run.recounts[0].open_after[10])


def test_a_footer_says_that_all_windows_are_in_its_segment() -> None:
    run = Followed(_CASES["tumbling"], FullSnapshot(4))
    run.run(6)
    log = run.query.logs().output(0)
    found = [log.read_footer(batch)[0].attributes.get("decision") for batch in range(6)]
    windows = {batch: len(run.recounts[0].open_after[batch]) for batch in (0, 4)}
    assert found[0] == {"snapshot_of": windows[0]}
    assert found[4] == {"snapshot_of": windows[4]}
    assert found[1:4] == [None] * 3


# What has changed


def _check_deltas(run: Followed, policy: Delta) -> None:
    assert isinstance(policy.every, int)
    before: dict[Identity, Row] = {}
    for (report,) in run.steps():
        number, rest = divmod(report.batch, policy.every)
        expected: set[Identity] = set()
        if not rest:
            now = _states(run)
            is_full = number % policy.full_every == 0
            expected = set(now) if is_full else _changed(before, now)
            before = now
        assert _written(run, report.batch) == expected, f"batch {report.batch}"


@_KINDS
@pytest.mark.parametrize(("every", "full_every"), [(1, 100), (2, 100), (1, 4), (3, 2), (2, 1)])
def test_exactly_the_windows_that_changed_since_the_last_delta_are_written(
    kind: str, every: int, full_every: int
) -> None:
    policy = Delta(every, full_every=full_every)
    _check_deltas(Followed(_CASES[kind], policy), policy)


@_KINDS
def test_which_windows_have_changed_is_known_to_the_next_process(
    kind: str, cache_dir: Path
) -> None:
    """As on Spark, where any process may get the next batch."""
    policy = Delta(2, full_every=100)
    run = Followed(_CASES[kind], policy, cache_root=cache_dir)
    before: dict[Identity, Row] = {}
    for (report,) in run.steps():
        assert report.recovery is None
        run.query.stop()
        if report.batch % 2 == 0:
            now = _states(run)
            expected = _changed(before, now) if report.batch else set(now)
            assert _written(run, report.batch) == expected, f"batch {report.batch}"
            before = now


@pytest.mark.parametrize("part", range(2))
def test_random_queries_write_all_windows_that_changed(part: int) -> None:
    """And those whose state stayed the same though they took tuples."""
    for seed in seeds(40)[part::2]:
        rng = random.Random(seed)
        case = random_case(rng)
        every = rng.randint(1, 3)
        with reported(seed, case):
            run = Followed(case, Delta(every, full_every=rng.randint(1, 5)))
            before: dict[Identity, Row] = {}
            for (report,) in run.steps():
                if report.batch % every == 0:
                    assert _changed(before, _states(run)) <= _written(run, report.batch)
                    before = _states(run)
                else:
                    assert not _written(run, report.batch)


def _plan_of(report: BatchReport) -> tuple[int, int, int]:
    assert report.recovery is not None
    plan = report.recovery.plan
    return plan.base, plan.oldest, plan.replay_from


@_KINDS
def test_a_recovery_reads_back_to_the_oldest_footprint_and_replays_from_the_last_delta(
    kind: str,
) -> None:
    run = Followed(_CASES[kind], Delta(3, full_every=4))
    chains = 0
    while run.next_batch < _BATCHES - 1:
        (done,) = run.step()
        target, last = done.batch, done.batch // 3 * 3
        (report,) = run.copy().step()
        base, oldest, replay_from = _plan_of(report)
        assert replay_from == last + 1, f"after batch {target}"
        assert oldest >= done.batch // 12 * 12, "the chain is cut by a full one"
        assert base <= target
        chains += oldest < last
    assert chains > 0 or kind == "time", "windows of time all change, or close"


@_KINDS
def test_every_full_delta_cuts_the_chain(kind: str) -> None:
    run = Followed(_CASES[kind], Delta(2, full_every=3))
    for (report,) in run.steps():
        if report.batch % 6 == 0 and report.account.open_windows:
            assert report.account.oldest == report.batch
            assert report.account.segments == 1
            assert report.account.foundation is Foundation.FOOTPRINTS


def test_a_window_that_did_not_change_is_not_written_again_however_long_it_stays() -> None:
    rows = [[(item, 1) for item in range(10)], *[[(0, 1)]] * 20]
    run = Followed(count_case(rows, size=1_000), Delta(1, full_every=100))
    written = [report.footprints_opened + report.footprints_checked for (report,) in run.steps()]
    assert written == [10, *[1] * 20]
