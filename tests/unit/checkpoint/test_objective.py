"""`Continuous.within`: recoveries take no longer than the objective, or somebody is told."""

from __future__ import annotations

import logging

import pytest

from tests.support.followed import Followed
from tests.support.orders import Order, count_case
from tests.support.work import Costs, Worked, workloads
from trailmark.checkpoint.policy import Continuous, NoCheckpoint
from trailmark.engine import BatchReport

_BATCHES = 55
#: From here on the rates are learnt.
_LEARNT = 25
_SHARE = 0.8
_CASES = workloads(_BATCHES)
_KINDS = pytest.mark.parametrize("kind", _CASES)


def _learn(run: Worked) -> None:
    """Restarts at odd moments, as they come, until the rates of loading and replaying are known."""
    while run.next_batch < _LEARNT:
        run.step()
        if run.next_batch % 5 in (2, 4):
            run.restart()


def _written(reports: list[BatchReport]) -> list[int]:
    return [report.footprints_opened + report.footprints_checked for report in reports]


@_KINDS
@pytest.mark.parametrize(
    ("objective", "costs"),
    [
        ("1 second", Costs()),
        ("300 ms", Costs()),
        ("500 ms", Costs(replay_factor=2.5)),
        ("200 ms", Costs(read_segment=500, batch=500, load=120)),
    ],
    ids=["long", "short", "slow replay", "cheap segments"],
)
def test_a_restart_after_any_batch_recovers_within_the_objective(
    kind: str, objective: str, costs: Costs
) -> None:
    policy = Continuous.within(objective)
    run = Worked(_CASES[kind], policy, costs)
    _learn(run)
    reports = []
    while run.next_batch < _BATCHES - 1:
        report = run.step()
        reports.append(report)
        what = f"batch {report.batch}"
        assert report.account.is_reachable, what
        assert report.account.predicted_us <= _SHARE * policy.objective_us, what
        assert run.recovery_us() <= policy.objective_us, what
    rounds = sum(map(bool, _written(reports)))
    assert rounds < len(reports) / 2, "and waits as long as it can"


@pytest.mark.parametrize("objective", ["1300 ms", "1500 ms", "2750 ms"])
def test_an_objective_that_loading_takes_most_of_is_kept_to(objective: str) -> None:
    """Windows that never close, and so all have a footprint: a recovery reads back to these, past
    segments that have nothing for it."""
    case = count_case([[(item, 1) for item in range(400)]] * 45, size=1_000_000)
    policy = Continuous.within(objective)
    run = Worked(case, policy, Costs(load=4_000))
    _learn(run)
    while run.next_batch < 45:
        report = run.step()
        assert report.account.is_reachable
        assert report.account.predicted_us <= _SHARE * policy.objective_us, f"batch {report.batch}"


def test_what_a_recovery_right_after_a_round_teaches_holds_before_the_next_one() -> None:
    """Ten slow windows among two thousand that open and close within every batch. A recovery that
    finds all ten in the newest segment does not look at its results, others do."""
    fast = [(item, 1) for item in range(2_000) for _ in range(2)]
    slow = [(10_000 + item, 1) for item in range(10)]
    case = count_case([fast + slow, *[fast] * 40], size=2)
    objective = Continuous.within("1 second")
    run = Worked(case, NoCheckpoint(), Costs(look=40, load=0, batch=5_000, tuple=2))
    for batch in range(18):
        run.policy = NoCheckpoint() if batch < 8 else Continuous(u=0)
        run.step()
        run.restart()
    run.policy = objective
    while run.next_batch < 40:
        batch = run.step().batch
        assert run.recovery_us() <= objective.objective_us, f"batch {batch}"


@_KINDS
def test_a_shorter_objective_takes_more_footprints(kind: str) -> None:
    written = []
    for objective in ("3 seconds", "1 second", "300 ms"):
        run = Worked(_CASES[kind], Continuous.within(objective))
        _learn(run)
        written.append(sum(_written([run.step() for _ in range(_LEARNT, _BATCHES)])))
    assert written == sorted(written)
    assert written[0] < written[-1] / 3


@_KINDS
def test_the_same_run_makes_the_same_rounds(kind: str) -> None:
    def rounds() -> list[tuple[int, int, int]]:
        run = Worked(_CASES[kind], Continuous.within("400 ms"))
        reports = [run.step() for _ in range(_BATCHES)]
        return [(r.footprints_opened, r.footprints_checked, r.account.extent) for r in reports]

    assert rounds() == rounds()


# What cannot be reached

#: 400 windows that never close.
_SLOW: list[list[Order]] = [[(item, 1) for item in range(400)] for _ in range(40)]


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_an_objective_out_of_reach_is_complained_about_once_per_bucket(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It leaves enough time to open a bucket, but not to load 200 windows."""
    run = Followed(count_case(_SLOW[:5], size=100), Continuous.within("25100 us"), buckets=2)
    with caplog.at_level(logging.WARNING, logger="trailmark"):
        run.run()
    messages = sorted(_warnings(caplog))
    assert len(messages) == 2
    for bucket, message in enumerate(messages):
        assert f"bucket {bucket}" in message
        assert f"{len(run.recounts[bucket].open_after[0]):,} open windows" in message
        assert "25 milliseconds 100 microseconds" in message
        assert "use more buckets" in message


def test_an_objective_too_short_to_open_a_bucket_is_not_blamed_on_the_windows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Worked(count_case(_SLOW[:5], size=100), Continuous.within("7 us"))
    with caplog.at_level(logging.WARNING, logger="trailmark"):
        for _ in range(5):
            run.step()
    (message,) = _warnings(caplog)
    assert "opening a bucket alone takes about 20 ms" in message
    assert "7 microseconds" in message
    assert "give the recovery more time" in message


def test_an_objective_out_of_reach_is_said_to_be_so_in_every_footer() -> None:
    run = Worked(count_case(_SLOW[:5], size=100), Continuous.within("7 us"))
    assert not any(run.step().account.is_reachable for _ in range(5))


def test_an_objective_out_of_reach_does_not_make_every_batch_write_every_window() -> None:
    """Loading alone takes longer."""
    case = count_case(_SLOW, size=1_000_000)
    run = Worked(case, Continuous.within("1 second"), Costs(load=4_000))
    _learn(run)
    reports = [run.step() for _ in range(_LEARNT, 40)]
    assert not any(report.account.is_reachable for report in reports)
    rounds = sum(map(bool, _written(reports)))
    assert 0 < rounds <= len(reports) * 2 / 3


def test_an_objective_within_reach_is_not_complained_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Worked(_CASES["mixed"], Continuous.within("1 second"))
    with caplog.at_level(logging.WARNING, logger="trailmark"):
        assert all(run.step().account.is_reachable for _ in range(_BATCHES))
    assert not caplog.records


# A budget


def test_a_budget_too_small_for_the_objective_is_complained_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = Continuous.within("500 ms", interval="20 us", period="1 minute")
    run = Worked(count_case(_SLOW, size=1_000_000), policy)
    with caplog.at_level(logging.WARNING, logger="trailmark"):
        reports = [run.step() for _ in range(40)]
    (message,) = _warnings(caplog)
    assert "bucket 0: the budget" in message
    assert "500 milliseconds" in message
    assert "raise interval" in message
    assert [r.account.is_reachable for r in reports].count(False) > 5
    assert sum(r.footprints_checked for r in reports) < 40, "it is kept to all the same"


def test_a_budget_large_enough_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    case = count_case(_SLOW, size=1_000_000)
    written = []
    for budget in ({}, {"interval": "1 second", "period": "1 second"}):
        run = Worked(case, Continuous.within("500 ms", **budget))
        with caplog.at_level(logging.WARNING, logger="trailmark"):
            written.append(_written([run.step() for _ in range(40)]))
    assert written[0] == written[1]
    assert not caplog.records
